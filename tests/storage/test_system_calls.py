"""Calls of the C library by name: this system's own, and a library that answers as told."""

import ctypes
import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckpt_surgery.storage import system_calls


class Library:
    """A C library with one function, which gives the same answer whatever its arguments."""

    def __init__(self, answer: int, number: int) -> None:
        self.answer = answer
        self.number = number
        self.arguments: list[tuple[object, ...]] = []

    def move(self, *arguments: object) -> int:
        self.arguments.append(arguments)
        ctypes.set_errno(self.number)
        return self.answer


def test_the_system_has_the_functions_of_its_library_and_no_others() -> None:
    assert system_calls.has("rename")
    assert not system_calls.has("rename_files_by_magic")


def test_a_call_does_what_the_function_does(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o644)
    system_calls.call("chmod", os.fsencode(tmp_path / "file"), 0o600, path=tmp_path / "file")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_call_that_fails_raises_the_system_s_error_with_the_path(tmp_path: Path) -> None:
    """The path of the error is the one that is given, not one of the arguments."""
    with pytest.raises(FileNotFoundError) as caught:
        system_calls.call("rename", b"/no/such/file", b"/no/such/either", path=tmp_path / "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "new"))
    assert caught.value.strerror == os.strerror(errno.ENOENT)


def test_a_function_that_the_system_lacks_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)) as caught:
        system_calls.call("rename_files_by_magic", b"a", path=tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSYS, str(tmp_path))


def test_arguments_are_passed_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(0, 0)
    monkeypatch.setattr(system_calls, "_library", lambda: SimpleNamespace(move=library.move))
    flags = ctypes.c_uint(4)
    system_calls.call("move", -100, b"from", -100, b"to", flags, path=Path("to"))
    assert library.arguments == [(-100, b"from", -100, b"to", flags)]


@pytest.mark.parametrize("answer", [-1, 1])
def test_any_answer_but_zero_is_a_failure(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "_library", lambda: Library(answer, errno.EEXIST))
    with pytest.raises(FileExistsError, match=r"File exists: 'to'"):
        system_calls.call("move", path=Path("to"))


def test_success_is_no_error_whatever_the_last_error_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "_library", lambda: Library(0, errno.EEXIST))
    system_calls.call("move", path=Path("to"))
