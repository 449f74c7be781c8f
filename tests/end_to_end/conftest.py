"""Checkpoints that several files of these tests only read."""

import pytest

from tests.support import linked_sources
from tests.support.linked_sources import Layout


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """`layout(name)`: the checkpoint of `linked_sources` in that layout, written once."""
    return linked_sources.layouts(tmp_path_factory.mktemp)
