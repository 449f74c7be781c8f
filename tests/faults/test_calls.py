"""The Nth system call of each kind fails, for every N, whichever library makes it."""

from collections.abc import Callable

import pytest

from tests.faults.calls import ERRORS, Fault
from tests.faults.scenarios import SCENARIOS, Bench
from tests.faults.tally import Tally

KIND = "a system call fails"


def try_every_call(bench: Bench, kind: str, overwrite: bool, tally: Tally, lasting: bool = False) -> int:
    """Let each call of a kind fail in turn until a run needs no more of them; how many there were."""
    number, errors, broken = 0, ERRORS[kind], []
    while True:
        number += 1
        bench.prepare(overwrite)
        fault = Fault(kind, number, errors[number % len(errors)], lasting)
        run = bench.run(*(["--overwrite"] if overwrite else []), fault=fault)
        try:
            ended = bench.check(run, overwrite)
            bench.settle(run)
        except AssertionError as error:
            broken.append(str(error))
            continue
        if not run.hit:
            assert not broken, "\n\n".join(broken)
            assert run.code == 0, run
            return number - 1
        where = f"{bench.name}{', overwriting' * overwrite}"
        tally.add(KIND, where, ended if run.code else "done all the same")


@pytest.mark.faults
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_call(
    name: str, kind: str, overwrite: bool, bench: Callable[[str], Bench], tally: Tally
) -> None:
    tried = try_every_call(bench(name), kind, overwrite, tally)
    assert tried or kind in ("link", "rename")


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["write", "sync", "remove"])
@pytest.mark.parametrize("name", ["orbax-cast", "orbax-safetensors", "npz-npz", "zarr-zarr"])
def test_every_call_from_one_on(name: str, kind: str, bench: Callable[[str], Bench], tally: Tally) -> None:
    """As on a disk that is full, or whose device is gone."""
    assert try_every_call(bench(name), kind, True, tally, lasting=True)
