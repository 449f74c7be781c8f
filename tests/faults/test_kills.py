"""Runs that are killed at random moments, spread over their system calls; and the run after that."""

import random
from collections.abc import Callable

import pytest

from tests.faults.calls import Fault
from tests.faults.scenarios import Bench
from tests.faults.tally import Tally

KIND = "killed at a system call"
KILLED = -9


def kill(bench: Bench, overwrite: bool, resume: bool, call: int, tally: Tally) -> bool:
    """Kill a run before one of its system calls, then run again; whether the first was killed."""
    bench.prepare(overwrite)
    options = ["--overwrite"] if overwrite else []
    run = bench.run(*options, fault=Fault(number=call))
    assert run.in_time
    assert run.code in (0, KILLED), run
    ended = bench.holds(run, overwrite)
    assert run.code == KILLED or ended == "new"
    bench.check_source(run)
    bench.check_names(run)
    bench.check_next_run(run, *(["--resume"] if resume else []))
    if run.code == KILLED:
        tally.add(KIND, f"{bench.name}{', overwriting' * overwrite}", ended)
    return run.code == KILLED


def calls_of(bench: Bench, overwrite: bool) -> int:
    """How many system calls that are not reads an undisturbed run makes."""
    bench.prepare(overwrite)
    run = bench.run(*(["--overwrite"] if overwrite else []), fault=Fault())
    assert run.code == 0, run
    return sum(run.counted.values())


@pytest.mark.faults
@pytest.mark.parametrize("resume", [False, True], ids=["afresh", "resume"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("name", ["orbax-links", "orbax-cast", "orbax-safetensors", "npz-npz", "zarr-zarr"])
def test_killed(
    name: str, overwrite: bool, resume: bool, bench: Callable[[str], Bench], tally: Tally
) -> None:
    at, chance = bench(name), random.Random(f"{name} {overwrite} {resume}")
    calls = calls_of(at, overwrite)
    killed = sum(kill(at, overwrite, resume, chance.randrange(calls) + 1, tally) for _ in range(14))
    assert killed >= 10  # threads make a few calls more or less
