"""Whose lock it is, whether its run is dead, and what is done about it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import local, owners
from tests.support.directories import names
from tests.support.generations import NEW, age, fill, found, lock_of, put, write_lock


def test_a_living_run_is_not_disturbed(tmp_path: Path) -> None:
    with local.staged(tmp_path / "out") as staging:
        with pytest.raises(DestinationError, match=f"process {os.getpid()}") as caught:
            put(tmp_path / "out", "second")
        assert caught.value.exit_code == 4
        fill(staging.work, NEW)
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
    left = tmp_path / ".out.ckpt-surgery-0000000000000000"
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


ELSEWHERE = {"host": "elsewhere", "boot": "another", "namespace": "pid:[1]", "pid": 1}


@pytest.mark.parametrize(
    ("changes", "silent", "dead"),
    [
        ({}, 0, False),  # this very process
        ({}, 1000, False),  # it was stopped for a while
        ({"started": "1"}, 0, True),  # its number was given to another process
        ({"host": "renamed", "started": "1"}, 0, True),
        ({"boot": "another", "started": "1"}, 0, False),  # another machine of the same name
        ({"boot": "another"}, 121, True),
        ({"namespace": "pid:[1]", "started": "1"}, 0, False),  # another container's processes
        ({"namespace": "pid:[1]"}, 121, True),
        ({"boot": "", "namespace": "", "started": "1"}, 0, False),  # a system that does not tell
        ({"boot": "", "namespace": ""}, 121, True),
        (ELSEWHERE, 119 - 10, False),  # ten seconds for a machine that is busy
        (ELSEWHERE, 121, True),
        (ELSEWHERE, -1000, False),  # the clock was set back
    ],
)
def test_whether_a_lock_is_dead(
    tmp_path: Path, changes: dict[str, object], silent: float, dead: bool
) -> None:
    write_lock(tmp_path / "out", silent, **changes)
    if dead:
        assert len(put(tmp_path / "out", NEW)) == 1
        assert names(tmp_path) == ["out"]
    else:
        with pytest.raises(DestinationError, match="remove the lock file"):
            put(tmp_path / "out", NEW)
        assert names(tmp_path) == [lock_of(tmp_path / "out").name]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_lock_that_was_left_half_written(tmp_path: Path, text: str) -> None:
    lock_of(tmp_path / "out").write_text(text)
    with pytest.raises(DestinationError, match="another run is writing"):
        put(tmp_path / "out", NEW)
    age(lock_of(tmp_path / "out"), 121)
    (notice,) = put(tmp_path / "out", NEW)
    assert "left behind unfinished" in notice


def test_a_process_that_waits_to_be_reaped_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owners._start_time(child.pid) == ""
    assert owners._start_time(os.getpid()) != ""


# --- without /proc --------------------------------------------------------------------------------


@pytest.fixture(params=["ps", "no ps"])
def without_proc(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """As on macOS, where ps(1) tells of processes; and as where not even that is there."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(owners, "_PROC", tmp_path / "empty")
    monkeypatch.setattr(owners, "_system", lambda: ("B00", "macos"))
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
        assert owners._start_time(child.pid) == ("" if without_proc == "ps" else "running")
