"""Waiting for the disk: in another thread, so that a signal ends it; large files piece by piece."""

import ctypes
import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.engine.staging import syncing
from ckpt_surgery.storage import system_calls
from ckpt_surgery.system import signals
from tests.support.directories import names
from tests.support.generations import NEW, fill, staged


@pytest.mark.parametrize("ended_by", ["signal", "time"])
def test_a_signal_or_the_time_ends_the_wait_and_the_work(ended_by: str) -> None:
    over = threading.Event()

    def work() -> None:
        if ended_by == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            while True:
                raise_if_cancelled()
        finally:
            over.set()

    if ended_by == "signal":
        with pytest.raises(Interrupted), signals.interruptible():
            syncing.interruptibly(work)
    else:
        assert not syncing.interruptibly(work, seconds=0)
    assert over.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_disk_that_never_answers_does_not_keep_a_run_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    answer, real = threading.Event(), os.fsync

    def hanging(handle: int) -> None:
        if threading.current_thread().name == "sync":
            os.kill(os.getpid(), number)
            answer.wait()
        real(handle)

    before = signal.signal(number, signal.SIG_DFL)
    try:
        monkeypatch.setattr(os, "fsync", hanging)
        with (
            pytest.raises(Interrupted) as caught,
            signals.interruptible(),
            staged(tmp_path / "out") as staging,
        ):
            fill(staging.tree, NEW)
            staging.publish()
    finally:
        answer.set()
        signal.signal(number, before)
    assert caught.value.signal_number == number
    assert f"nothing was published: {tmp_path / 'out'} does not exist" in str(caught.value)
    assert names(tmp_path) == []


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three and a half pieces."""
    monkeypatch.setattr(syncing, "PIECE", 1000)
    (tmp_path / "large").write_bytes(b"x" * 3500)
    return tmp_path / "large"


def test_large_files_are_waited_for_in_pieces(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them the work can end: a process does not end before its threads' requests do."""
    done: list[object] = []

    def call(
        name: str, handle: int, start: ctypes.c_int64, count: ctypes.c_int64, *rest: object, path: Path
    ) -> None:
        done.append((name, start.value, count.value))

    monkeypatch.setattr(system_calls, "has", lambda name: True)
    monkeypatch.setattr(system_calls, "call", call)
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync"))
    monkeypatch.setattr(syncing, "raise_if_cancelled", lambda: done.append("check"))
    syncing.sync_file(large)
    pieces = [("sync_file_range", start, 1000) for start in range(0, 3500, 1000)]
    assert done == [*(each for piece in pieces for each in ("check", piece)), "check", "fsync"]
    done.clear()
    (large.parent / "small").write_bytes(b"x" * 1000)
    syncing.sync_file(large.parent / "small")
    assert done == ["check", "fsync"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL, errno.EIO])
def test_what_the_disk_says_of_a_piece(large: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """An error of the disk is told once, so it must not be lost; without the call, fsync(2) waits for all."""
    calls: list[str] = []

    def call(name: str, *_: object, path: Path) -> None:
        calls.append(name)
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(system_calls, "has", lambda name: True)
    monkeypatch.setattr(system_calls, "call", call)
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            syncing.sync_file(large)
        assert calls == ["sync_file_range"]
    else:
        syncing.sync_file(large)
        assert calls == ["sync_file_range", "fsync"]
