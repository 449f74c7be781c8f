"""The tools of the suite: what they disturb is disturbed, and nothing else."""

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.faults.calls import KILL, Counter, Fault
from tests.faults.runs import Runner


@pytest.fixture(scope="module")
def in_python() -> Iterator[Runner]:
    """A runner that needs nothing of the kernel."""
    made = Runner(in_python=True)
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", w=np.arange(100))
    return tmp_path


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("kind", ["open", "write", "sync", "mkdir", "remove"])
def test_both_ways_hit_the_same_kinds(kind: str, place: Path, runner: Runner, in_python: Runner) -> None:
    hits = []
    for one in (runner, in_python):
        fault = Fault(kind, 1, errno.EROFS)
        run = one.run("convert", "x.npz", "out.npz", "--overwrite", directory=place, fault=fault)
        assert run.hit, run
        assert run.counted[kind] >= 1
        hits.append(run.code)
    assert hits[0] == hits[1]


@pytest.mark.slow("disturbs programs")
def test_an_undisturbed_run_is_only_counted(place: Path, runner: Runner, in_python: Runner) -> None:
    for one in (runner, in_python):
        run = one.run("convert", "x.npz", "out.npz", "--overwrite", directory=place, fault=Fault())
        assert (run.code, run.hit) == (0, ""), run
        assert run.counted["sync"] >= 3


@pytest.mark.slow("disturbs programs")
def test_a_kill_comes_before_the_call(place: Path, runner: Runner, in_python: Runner) -> None:
    for one in (runner, in_python):
        run = one.run("convert", "x.npz", "out.npz", directory=place, fault=Fault("mkdir", 1))
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
