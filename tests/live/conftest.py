"""What tests of shardings share."""

import pytest
from jax.sharding import Mesh

from tests.support.shardings import eight_devices


@pytest.fixture(scope="session")
def mesh() -> Mesh:
    return eight_devices()
