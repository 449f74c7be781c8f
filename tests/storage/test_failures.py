"""Errors of the system and of checkpoints: the path, the reason, and what to do."""

import errno
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.storage.failures import DAMAGED, LINKS, storage_errors, unreadable


@pytest.mark.each
@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (errno.ENOENT, SourceError, DAMAGED),  # something is missing
        (errno.ENOTDIR, SourceError, DAMAGED),
        (errno.ENXIO, SourceError, LINKS),  # it is a socket
        (errno.ELOOP, SourceError, LINKS),
        (errno.EIO, StorageError, "The device that it lies on reports an error"),
    ],
)
def test_what_to_do_about_what_cannot_be_read(number: int, kind: type, hint: str) -> None:
    found = unreadable("a\x1bb", OSError(number, "the reason"))
    assert type(found) is kind
    (problem,) = found.problems
    assert problem.message == "a\\x1bb cannot be read: the reason"
    assert (problem.hint or "").startswith(hint)


def test_storage_errors_name_the_path_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, storage_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "d" / "0"))
    assert str(caught.value) == (
        f"{tmp_path}/d/0: No space left on device\n"
        "  Free some space, or choose a destination on another file system."
    )
    with pytest.raises(StorageError, match=f"{tmp_path}: Read-only file system"), storage_errors(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system")
    with pytest.raises(StorageError, match=r"ulimit -n"), storage_errors(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files")
