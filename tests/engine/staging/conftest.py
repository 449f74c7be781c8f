"""A store that each test has for itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.key_value import key_value


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A destination in an empty store."""
    with key_value(tmp_path / "bucket") as root:
        yield f"{root}/runs/out"
