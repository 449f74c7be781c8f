"""Signs of life: what is renewed, by which clock it is judged, and what does not end them."""

import errno
import os
import threading
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.engine.staging import heartbeat
from ckpt_surgery.engine.staging.locks import FileLock, read_note
from tests.support.directories import names
from tests.support.generations import lock_of, staged, write_lock


@pytest.mark.parametrize("silent", [120.0, 121.0])
def test_ages_are_differences_of_the_file_systems_own_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: float
) -> None:
    """Whatever this machine's clock says: on network file systems it is the server's that counts."""
    lock, real = FileLock(lock_of(tmp_path / "out")), os.utime
    write_lock(tmp_path / "out", boot="another")
    os.utime(lock_of(tmp_path / "out"), (1000, 1000))
    sign = lock.read()
    assert sign is not None
    monkeypatch.setattr(os, "utime", lambda handle: real(handle, (1000 + silent, 1000 + silent)))
    assert lock.judge(sign) == heartbeat.Life(ended=silent > 120, known=False, age=silent)
    assert names(tmp_path) == [lock_of(tmp_path / "out").name]


def test_what_is_no_file_is_nobodys(tmp_path: Path) -> None:
    """Reading a pipe that nobody writes would never end."""
    os.mkfifo(tmp_path / "pipe")
    sign = FileLock(tmp_path / "pipe").read()
    assert sign is not None
    assert sign.owner is None
    assert read_note(tmp_path / "pipe").owner is None


def test_a_run_renews_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileLock, "interval", 0.001)
    renewed, real = threading.Event(), FileLock.renew

    def renew(self: FileLock) -> None:
        real(self)
        if lock_of(tmp_path / "out").stat().st_mtime > 1000:
            renewed.set()

    with staged(tmp_path / "out"):
        os.utime(lock_of(tmp_path / "out"), (1000, 1000))
        monkeypatch.setattr(FileLock, "renew", renew)
        assert renewed.wait(60)
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("error", [OSError(errno.ESTALE, "Stale file handle"), StorageError("no answer")])
def test_signs_go_on_where_some_cannot_be_given(error: Exception) -> None:
    given, enough = [], threading.Event()

    def renew() -> None:
        given.append(1)
        if len(given) == 3:
            enough.set()
        raise error

    with heartbeat.keep_alive(renew, 0.001):
        assert enough.wait(60)
