"""Reflinks, and which files nothing rewrites in place."""

import ctypes
import errno
import fcntl
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.linking import FICLONE, SafeToHardlink, can_reflink, link_rest, reflink
from tests.support.directories import state_of
from tests.support.failing import refusing

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "source"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


# --- which files are replaced -----------------------------------------------------------------------------


def test_a_checkpoint_s_format_says_whether_its_files_are_replaced(source: Path) -> None:
    directory = source.parent
    for checkpoints, held in (
        ({}, False),
        ({str(directory): True}, True),
        ({str(directory.parent): True}, True),
        ({str(directory): False}, False),
        ({str(directory.parent): False, str(directory): True}, True),  # the innermost
        ({str(directory): True, str(source): False}, False),
        ({f"{directory}x": True, str(directory)[:-1]: True}, False),
    ):
        assert SafeToHardlink(checkpoints).allows(str(source)) == held


@pytest.mark.parametrize(
    ("path", "beside", "held"),
    [
        ("models--a--b/blobs/0f3a", "models--a--b/snapshots", True),
        ("models--a--b/blobs/parts/0f3a", "models--a--b/snapshots", True),
        ("models--a--b/blobs/0f3a", "models--a--b/refs", False),
        ("models--a--b/others/0f3a", "models--a--b/snapshots", False),
        ("blobs", "snapshots", False),  # a file of that name
    ],
)
def test_blobs_of_a_hugging_face_cache_are_replaced(
    path: str, beside: str, held: bool, tmp_path: Path
) -> None:
    (tmp_path / beside).mkdir(parents=True)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    assert SafeToHardlink().allows(str(tmp_path / path)) == held


@pytest.mark.parametrize(("mode", "held"), [(0o444, True), (0o400, True), (0o644, False), (0o464, False)])
def test_files_that_nobody_may_write_are_not_rewritten(mode: int, held: bool, source: Path) -> None:
    source.chmod(mode)
    assert SafeToHardlink().allows(str(source)) == held


# --- reflinks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [None, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL])
def test_reflinks_are_probed_and_nothing_is_left(
    number: int | None, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ioctl(descriptor: int, request: int, other: int) -> int:
        asked.append((request, os.path.samestat(os.fstat(other), os.stat(source))))
        assert os.fstat(descriptor).st_nlink == 0  # it has no name
        if number is not None:
            raise OSError(number, os.strerror(number))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    (tmp_path / "out").mkdir()
    before, handles = state_of(tmp_path), len(os.listdir("/proc/self/fd"))
    assert can_reflink(str(source), tmp_path / "out") is (number is None)
    assert asked == [(FICLONE, True)]
    assert state_of(tmp_path) == before
    assert len(os.listdir("/proc/self/fd")) == handles


def test_only_trying_tells_where_files_must_have_names(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_reflink(str(source), tmp_path / "gone") is None
    monkeypatch.delattr(os, "O_TMPFILE")
    assert can_reflink(str(source), tmp_path) is None
    monkeypatch.setattr(system_calls, "_library", lambda: SimpleNamespace(clonefile=None))
    assert can_reflink(str(source), tmp_path) is True  # macOS


def test_a_refused_reflink_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", refusing(errno.EOPNOTSUPP))
    with pytest.raises(OSError, match="not supported"):
        reflink(source, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("refusal", [None, errno.ENOTSUP, errno.EIO])
def test_macos_clones_files(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    def clonefile(one: bytes, other: bytes, flags: int) -> int:
        assert flags == 0
        if refusal is not None:
            ctypes.set_errno(refusal)
            return -1
        shutil.copyfile(one, other)
        return 0

    monkeypatch.setattr(system_calls, "_library", lambda: SimpleNamespace(clonefile=clonefile))
    if refusal is None:
        reflink(source, tmp_path / "new")
        assert (tmp_path / "new").read_bytes() == CONTENT
    else:
        with pytest.raises(OSError, match=os.strerror(refusal)):
            reflink(source, tmp_path / "new")


# --- the other items of a step ----------------------------------------------------------------------------


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """A step whose item `b` has a directory of its own mode, a symbolic link and a file."""
    (tmp_path / "step" / "b" / "inner").mkdir(parents=True)
    (tmp_path / "step" / "b" / "inner" / "data").write_bytes(CONTENT)
    (tmp_path / "step" / "b" / "link").symlink_to("gone")
    (tmp_path / "step" / "a").mkdir()
    (tmp_path / "step" / "b" / "inner").chmod(0o750)
    (tmp_path / "new" / "a").mkdir(parents=True)
    (tmp_path / "new" / "rest").mkdir()
    return tmp_path / "step"


@pytest.mark.parametrize("number", [None, errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_the_rest_of_a_step_is_linked_or_copied(
    number: int | None, step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = step.parent / "new"
    if number is not None:
        monkeypatch.setattr(os, "link", refusing(number))
    link_rest(step, new, keep={"a"}, leave_out={"a"})
    assert sorted(os.listdir(new)) == ["a", "b"], "what an earlier attempt linked is removed"
    assert os.readlink(new / "b" / "link") == "gone"
    assert (new / "b" / "inner").stat().st_mode == (step / "b" / "inner").stat().st_mode
    old, data = step / "b" / "inner" / "data", new / "b" / "inner" / "data"
    assert data.read_bytes() == CONTENT
    assert data.samefile(old) == (number is None)


def test_the_rest_of_a_step_that_cannot_be_linked_fails_with_the_reason(
    step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deep inside, too: the number of the error is what hints depend on."""
    monkeypatch.setattr(os, "link", refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left") as caught:
        link_rest(step, step.parent / "new", keep={"a"}, leave_out={"a"})
    assert caught.value.errno == errno.ENOSPC
