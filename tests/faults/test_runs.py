"""The tools of the suite: what they disturb is disturbed, and nothing else."""

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.faults.calls import KILL, Counter, Fault
from tests.faults.runs import Runner


@pytest.fixture
def place(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", w=np.arange(100))
    return tmp_path


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("kind", ["open", "write", "sync", "mkdir", "remove"])
def test_each_kind_of_call_is_hit(kind: str, place: Path, runner: Runner) -> None:
    fault = Fault(kind, 1, errno.EROFS)
    run = runner.run("convert", "x.npz", "out.npz", directory=place, fault=fault)
    assert run.hit, run
    assert run.counted[kind] >= 1


@pytest.mark.slow("disturbs programs")
def test_an_undisturbed_run_is_only_counted(place: Path, runner: Runner) -> None:
    run = runner.run("convert", "x.npz", "out.npz", directory=place, fault=Fault())
    assert (run.code, run.hit) == (0, ""), run
    assert run.counted["sync"] >= 3


@pytest.mark.slow("disturbs programs")
def test_a_kill_comes_before_the_call(place: Path, runner: Runner) -> None:
    run = runner.run("convert", "x.npz", "out.npz", directory=place, fault=Fault("mkdir", 1))
    assert run.code == -9
    assert not [path for path in place.iterdir() if path.is_dir()]


@pytest.mark.slow("disturbs programs")
def test_a_run_that_takes_too_long_is_ended(place: Path, runner: Runner) -> None:
    run = runner.run("convert", "x.npz", "out.npz", directory=place, seconds=0)
    assert (run.code, run.in_time) == (-9, False)


def test_which_calls_are_hit() -> None:
    once = Counter(Fault("write", 2, errno.EIO), "/a")
    lasting = Counter(Fault("write", 2, errno.EIO, lasting=True), "/a")
    kill = Counter(Fault(number=2), "/a")
    calls = [
        ("write", "/a/x"),
        ("write", "/ab"),
        ("read", "/a/x"),
        ("sync", "/a"),
        ("write", "/a/y"),
        ("write", "/a"),
    ]
    assert [once.decide(kind, "call", path) for kind, path in calls] == [0, 0, 0, 0, errno.EIO, 0]
    assert [lasting.decide(kind, "call", path) for kind, path in calls] == [0, 0, 0, 0, errno.EIO, errno.EIO]
    assert [kill.decide(kind, "call", path) for kind, path in calls] == [0, 0, 0, KILL, 0, 0]
    assert (once.counted, once.hit) == ({"write": 3, "read": 1, "sync": 1}, "call /a/y")
