"""Whose lock it is, whether its run is dead, and what is done about it."""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import local, locks
from tests.support.directories import names
from tests.support.generations import NEW, fill, found, lock_of, put, write_lock


def test_a_living_run_is_not_disturbed(tmp_path: Path) -> None:
    with local.staged(tmp_path / "out") as staging:
        with pytest.raises(DestinationError, match=f"process {os.getpid()}") as caught:
            put(tmp_path / "out", "second")
        assert caught.value.exit_code == 4
        fill(staging.directory, NEW)
        local.publish(staging, overwrite=False)
    assert found(tmp_path / "out") == NEW


def test_runs_to_other_destinations_are_independent(tmp_path: Path) -> None:
    with local.staged(tmp_path / "a") as staging:
        put(tmp_path / "b", NEW)
        put(tmp_path / "a.ckpt-surgery-0123456789abcdef", NEW)
        assert staging.directory.is_dir()


def test_a_dead_runs_lock_and_leftovers_are_taken_over(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = tmp_path / ".out.ckpt-surgery-0123456789abcdef"
    left.mkdir()
    fill(left, "half")
    write_lock(tmp_path / "out", pid=int(ended.stdout))
    assert put(tmp_path / "out", NEW) == (
        f"took over the lock of process {int(ended.stdout)} on {os.uname().nodename}, "
        "which has ended without finishing",
        f"removed {left}, which an unfinished run left behind",
    )
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({}, False),  # this very process
        ({"started": "1"}, True),  # its number was given to another process
        ({"boot": "another"}, True),  # the machine has restarted since
        ({"host": "elsewhere"}, False),  # cannot be seen from here
        ({"host": "elsewhere", "boot": "another", "pid": 1}, False),
        ({"namespace": "pid:[1]", "started": "1"}, False),  # another container's processes
    ],
)
def test_whether_a_lock_is_dead(tmp_path: Path, changes: dict[str, object], dead: bool) -> None:
    write_lock(tmp_path / "out", **changes)
    if dead:
        assert len(put(tmp_path / "out", NEW)) == 1
    else:
        with pytest.raises(DestinationError, match="remove the lock file"):
            put(tmp_path / "out", NEW)
        assert names(tmp_path) == [lock_of(tmp_path / "out").name]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_lock_that_was_left_half_written(tmp_path: Path, text: str) -> None:
    lock_of(tmp_path / "out").write_text(text)
    (notice,) = put(tmp_path / "out", NEW)
    assert "left behind unfinished" in notice


def test_without_a_guard_a_half_written_lock_may_be_a_living_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(handle: int, operation: int) -> None:
        raise OSError(errno.EBADF, "as a network file system may say")

    monkeypatch.setattr(fcntl, "flock", refused)
    put(tmp_path / "a", NEW)
    lock_of(tmp_path / "out").write_text("")
    with pytest.raises(DestinationError, match="another run is writing"):
        put(tmp_path / "out", NEW)


def test_while_another_process_has_the_guard_no_dead_lock_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: two runs that took over the same lock would both write."""
    monkeypatch.setattr(locks, "_GUARD_TRIES", 2)
    write_lock(tmp_path / "out", boot="another")
    with other_handle(tmp_path) as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(DestinationError, match="cannot be taken over while another process has locked"):
            put(tmp_path / "out", NEW)
        assert put(tmp_path / "fresh", NEW) == ()
    assert len(put(tmp_path / "out", NEW)) == 1
    assert names(tmp_path) == ["fresh", "out"]


@contextlib.contextmanager
def other_handle(directory: Path) -> Iterator[int]:
    """As another process would have it: a lock belongs to the handle, not to the process."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def test_a_process_that_waits_to_be_reaped_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert locks._start_time(child.pid) == ""
    assert locks._start_time(os.getpid()) != ""


# --- without /proc --------------------------------------------------------------------------------


@pytest.fixture(params=["ps", "no ps"])
def without_proc(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """As on macOS, where ps(1) tells of processes; and as where not even that is there."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(locks, "_PROC", tmp_path / "empty")
    if request.param == "no ps":
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    elif shutil.which("ps") is None:
        fake_ps(tmp_path / "bin", monkeypatch)
    return str(request.param)


def fake_ps(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ps(1) for machines that lack it: state and start of a process, from Linux's /proc."""
    directory.mkdir()
    (directory / "ps").write_text(
        f"#!{sys.executable}\nimport sys\n"
        "fields = open(f'/proc/{sys.argv[-1]}/stat').read().rpartition(')')[2].split()\n"
        "print(fields[0] + '+', ' Sun Nov 22', fields[19])\n"
    )
    (directory / "ps").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


def test_without_proc_a_living_run_is_not_disturbed(tmp_path: Path, without_proc: str) -> None:
    write_lock(tmp_path / "out")
    with pytest.raises(DestinationError, match=f"process {os.getpid()}"):
        put(tmp_path / "out", NEW)


def test_without_proc_a_dead_run_is_noticed(tmp_path: Path, without_proc: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        pass
    write_lock(tmp_path / "out", pid=child.pid)
    assert len(put(tmp_path / "out", NEW)) == 1
    assert found(tmp_path / "out") == NEW


def test_without_proc_another_process_of_the_same_number(tmp_path: Path, without_proc: str) -> None:
    """Only ps tells the two apart; without it the run counts as alive."""
    write_lock(tmp_path / "out", started="Sat Jan  1 00:00:00 2000")
    if without_proc == "ps":
        assert len(put(tmp_path / "out", NEW)) == 1
    else:
        with pytest.raises(DestinationError, match="remove the lock file"):
            put(tmp_path / "out", NEW)


def test_without_proc_a_lock_that_was_made_without_ps(tmp_path: Path, without_proc: str) -> None:
    write_lock(tmp_path / "out", started="running")
    with pytest.raises(DestinationError, match=f"process {os.getpid()}"):
        put(tmp_path / "out", NEW)


def test_without_proc_a_process_that_waits_to_be_reaped(without_proc: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert locks._start_time(child.pid) == ("" if without_proc == "ps" else "running")
