"""Errors of the file system as messages."""

import errno
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import (
    StorageError,
)
from ckpt_surgery.storage import failures


def test_storage_errors_name_the_path_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, failures.storage_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "d" / "0"))
    assert str(caught.value) == (
        f"{tmp_path}/d/0: No space left on device\n"
        "  Free some space, or choose a destination on another file system."
    )
