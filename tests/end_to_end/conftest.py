"""Checkpoints that several files of these tests only read, and a store that each test has for itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_surgery.storage import views
from tests.support import linked_sources, sharded_runs
from tests.support.checkpoints import save_pytree
from tests.support.key_value import key_value
from tests.support.linked_sources import Layout


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """`layout(name)`: the checkpoint of `linked_sources` in that layout, written once."""
    return linked_sources.layouts(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of `sharded_runs`."""
    path = tmp_path_factory.mktemp("sharded") / "in"
    save_pytree(path, sharded_runs.ARRAYS)
    return path


@pytest.fixture
def bucket(tmp_path: Path, own_temporary_directory: Path) -> Iterator[str]:
    """The URL of an empty store, of which nothing is remembered before or afterwards."""
    views.forget()
    with key_value(tmp_path / "bucket") as url:
        yield url
    views.forget()
