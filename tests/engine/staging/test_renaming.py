"""Renames that refuse or exchange: in one step, and without the system's own call."""

import ctypes
import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import syncing
from ckpt_surgery.storage import system_calls
from tests.support.failing import refusing


@pytest.fixture(params=["this system", "as on macOS", "an unknown system", "no such function", "refused"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Systems and file systems that differ in what they offer."""
    name: str = request.param
    if name == "as on macOS":
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(system_calls, "_library", lambda: SimpleNamespace(renameatx_np=renameatx_np))
    elif name == "an unknown system":
        monkeypatch.setattr(sys, "platform", "plan9")
    elif name == "no such function":
        monkeypatch.setattr(system_calls, "_library", SimpleNamespace)
    elif name == "refused":
        monkeypatch.setattr(syncing, "_rename_in_one_step", refusing(errno.EINVAL))
    return name


def renameatx_np(from_handle: int, source: bytes, to_handle: int, target: bytes, flags: ctypes.c_uint) -> int:
    """macOS's rename(2), done by Linux's: the numbers are those of macOS's headers."""
    assert (from_handle, to_handle) == (-2, -2)
    linux = {4: 1, 2: 2}[flags.value]
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.renameat2(-100, source, -100, target, ctypes.c_uint(linux)))


@pytest.mark.usefixtures("system")
def test_a_move_refuses_what_exists(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    with pytest.raises(DestinationError, match="old: another program created it during this run"):
        syncing.move(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
    syncing.move(tmp_path / "new", tmp_path / "free")
    assert (tmp_path / "free").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["free", "old"]
    with pytest.raises(FileNotFoundError):
        syncing.move(tmp_path / "gone", tmp_path / "out")


@pytest.mark.usefixtures("system")
def test_an_exchange_leaves_both(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").mkdir()
    syncing.exchange(tmp_path / "new", tmp_path / "old", tmp_path / "aside")
    assert (tmp_path / "old").read_text() == "new"
    assert (tmp_path / "new").is_dir()
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
