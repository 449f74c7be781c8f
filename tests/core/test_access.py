"""Which errors of the system are no flaw of what is read, and what to do about each."""

import errno
import os
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import access_error, name_beside


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "Whoever runs this has to be allowed to read it"),
        (errno.EPERM, "Whoever runs this has to be allowed to read it"),
        (errno.EIO, "The device that it lies on reports an error: take another copy"),
        (errno.ESTALE, "The device that it lies on reports an error"),
        (errno.EMFILE, "Raise the limit on open files (`ulimit -n`)"),
        (errno.ENOMEM, "The system refuses it, whatever the file holds: try again"),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_what_is_there_and_cannot_be_read(number: int, advice: str) -> None:
    error = access_error("a\x1bb", OSError(number, os.strerror(number)))
    assert error is not None
    assert error.exit_code == 5
    (problem,) = error.problems
    assert problem.message == f"a\\x1bb cannot be read: {os.strerror(number)}"
    assert (problem.hint or "").startswith(advice)
    other = access_error("a", OSError(number, "the reason"))
    assert str(other).startswith("a cannot be read: the reason")


def test_a_name_beside_a_path(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "a.yaml").touch()
    assert name_beside(f"{tmp_path}/bc.yaml") == ""  # an ending alone makes no likeness
    assert name_beside(f"{tmp_path}/chekpoint/") == "; did you mean `checkpoint`?"
    assert name_beside(f"{tmp_path}/other") == ""
    assert name_beside(f"{tmp_path}/nothing/checkpoint") == ""
