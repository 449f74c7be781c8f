"""Whose lock it is, whether its run is dead, and what is done about it."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, StorageError
from ckpt_surgery.engine.staging import locks, owners, syncing
from ckpt_surgery.engine.staging.heartbeat import Sign
from ckpt_surgery.engine.staging.locks import FileLock
from tests.support.calls import record_calls
from tests.support.conformance import file_size_limit
from tests.support.directories import names
from tests.support.failing import refusing
from tests.support.generations import NEW, age, fill, lock_of, put, staged, write_lock


def test_runs_to_other_destinations_are_independent(tmp_path: Path) -> None:
    with staged(tmp_path / "a") as staging:
        put(tmp_path / "b", NEW)
        put(tmp_path / "a.ckpt-surgery-0123456789abcdef", NEW)
        assert staging.directory.is_dir()


ELSEWHERE: dict[str, object] = {"host": "elsewhere", "boot": "another", "namespace": "pid:[1]", "pid": 1}


def test_a_lock_that_may_not_be_read_is_judged_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lock(tmp_path / "out", started="1")
    file, refuse = lock_of(tmp_path / "out"), refusing(errno.EACCES)
    record_calls(monkeypatch, os, "open", lambda path, *_: path == file and refuse())
    with pytest.raises(DestinationError, match="another run is writing"):
        lock(tmp_path, 1).check()
    age(file, 121)
    lock(tmp_path, 1).check()


def test_a_lock_of_its_own_that_may_not_be_read_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known to be another run's."""
    with pytest.raises(StorageError, match="Permission denied"), staged(tmp_path / "out") as staging:
        fill(staging.tree, NEW)
        with monkeypatch.context() as patch:
            patch.setattr(locks, "_read", refusing(errno.EACCES))
            staging.publish()
    assert names(tmp_path) == []


# --- how it is made -------------------------------------------------------------------------------


@pytest.fixture(params=["exclusive rename", "hard link", "neither"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the file system offers for a file that must not replace another."""
    if request.param != "exclusive rename":
        monkeypatch.setattr(syncing, "_rename_in_one_step", refusing(errno.EINVAL))
    if request.param == "neither":
        monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    return str(request.param)


def lock(directory: Path, number: int) -> FileLock:
    made = FileLock(lock_of(directory / "out"))
    made.owner = owners.this_process(f"{number:016x}")
    return made


def written(directory: Path) -> owners.Owner | None:
    return locks.read_note(lock_of(directory / "out")).owner


@pytest.mark.usefixtures("way")
def test_a_dead_runs_lock_is_taken_over(tmp_path: Path) -> None:
    write_lock(tmp_path / "out", started="1", run="a" * 16)
    (notice,) = lock(tmp_path, 1).acquire()
    assert "has ended without finishing" in notice
    with pytest.raises(DestinationError, match="is writing this destination"):
        lock(tmp_path, 2).acquire()
    assert written(tmp_path) == lock(tmp_path, 1).owner
    assert names(tmp_path) == [lock_of(tmp_path / "out").name]
    lock(tmp_path, 1).release()
    assert names(tmp_path) == []


@pytest.mark.usefixtures("way")
def test_a_lock_that_another_run_has_just_taken_over_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found it dead, and the file system cannot keep them apart."""
    write_lock(tmp_path / "out", started="1")
    real = FileLock._take_away

    def late(self: FileLock, sign: Sign) -> bool:
        monkeypatch.setattr(FileLock, "_take_away", real)
        lock(tmp_path, 2).acquire()
        return real(self, sign)

    monkeypatch.setattr(FileLock, "_take_away", late)
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOTSUP))
    with pytest.raises(DestinationError, match="is writing this destination"):
        lock(tmp_path, 1).acquire()
    assert written(tmp_path) == lock(tmp_path, 2).owner
    assert names(tmp_path) == [lock_of(tmp_path / "out").name]


def test_a_lock_that_was_renewed_while_it_was_judged_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was suspended for long, on another machine, and goes on right now."""
    file = lock_of(tmp_path / "out")
    write_lock(tmp_path / "out", silent=1000, **ELSEWHERE)
    before = file.read_bytes()
    record_calls(monkeypatch, FileLock, "_take_away", lambda lock, sign: os.utime(file))
    with pytest.raises(DestinationError, match="process 1 on elsewhere is writing"):
        lock(tmp_path, 1).acquire()
    assert file.read_bytes() == before
    assert names(tmp_path) == [file.name]


def test_a_directory_that_another_program_has_locked_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_GUARD_TRIES", 2)
    write_lock(tmp_path / "out", started="1")
    handle = os.open(tmp_path, os.O_RDONLY)  # as another process would have it
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert len(put(tmp_path / "out", NEW)) == 1
    finally:
        os.close(handle)


# --- before publication ---------------------------------------------------------------------------


def test_a_lock_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    """A lock that is cut off would name nobody, and keep the next run away until it is taken for dead."""
    with file_size_limit(20), pytest.raises(OSError, match="File too large"):
        FileLock(tmp_path / "lock")._create()
    assert list(tmp_path.iterdir()) == []
