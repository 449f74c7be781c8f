"""Runs to object stores that a signal asks to stop: how they end, what they keep, and what is done again."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_surgery.storage.store import store_of
from tests.faults.runs import Runner
from tests.faults.scenarios import check_message, flowing
from tests.faults.stores import ARRAYS, OWN, Hit, KeyValues, Request, StoreBench
from tests.support.slow import slow

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""The exit codes of runs that they stop."""


@pytest.fixture
def make(key_values: KeyValues, tmp_path: Path, runner: Runner) -> Callable[[str], StoreBench]:
    """`make(kind)`: see `StoreBench`."""
    return lambda kind: StoreBench(key_values, runner, tmp_path / "bench", kind)


def is_data(request: Request) -> bool:
    """Whether a request puts values of arrays."""
    return request.method == "put" and "ocdbt.process_" in request.name and "/d/" in request.name


def finished(bench: StoreBench) -> int:
    """How many tasks an interrupted run has noted as done."""
    journals = [
        data for name, data in bench.objects().items() if name.startswith(OWN) and "/journal-" in name
    ]
    return sum(data.count(b"\n") for data in journals)


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("kind", [slow("fresh"), "overwrite"])
@pytest.mark.parametrize("what", SIGNALS)
def test_what_was_done_is_not_done_again(
    what: signal.Signals, kind: str, make: Callable[[str], StoreBench]
) -> None:
    bench = make(kind)
    data = [number for number, request in enumerate(bench.requests, 1) if is_data(request)]
    run = bench.run_from_before(hit=Hit(data[2], what=what))
    assert run.code == SIGNALS[what], run
    check_message(run)
    assert "--resume" in run.err
    assert bench.state() == ("old" if kind == "overwrite" else "uncommitted")
    done = finished(bench)
    assert done >= 2
    again = bench.run("--resume")
    assert again.code == 0, again
    assert len([one for one in bench.place.requests if is_data(one)]) <= len(ARRAYS) - done
    bench.check_clean(resumed=True)


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("what", SIGNALS)
def test_without_finished_tasks_nothing_is_kept(
    what: signal.Signals, make: Callable[[str], StoreBench]
) -> None:
    bench = make("fresh")
    first = next(number for number, request in enumerate(bench.requests, 1) if request.phase == "journal")
    run = bench.run_from_before(hit=Hit(first, what=what))
    assert run.code == SIGNALS[what], run
    check_message(run, hinted=False)
    assert "nothing was published" in flowing(run.err)
    assert dict(store_of(bench.url)[0].walk()) == {}


@pytest.mark.slow("disturbs programs")
def test_a_publication_is_carried_to_its_end_first(make: Callable[[str], StoreBench]) -> None:
    bench = make("overwrite")
    first = next(number for number, request in enumerate(bench.requests, 1) if request.phase == "marker")
    run = bench.run_from_before(hit=Hit(first, what=signal.SIGTERM))
    assert run.code == 143, run
    assert "is new and complete" in flowing(run.err)
    assert not [name for name in bench.objects() if name.startswith(OWN)]
    bench.check_clean()


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("kind", [slow("fresh"), "overwrite"])
def test_no_signal_leaves_a_lock_or_anything_that_is_not_told(
    kind: str, make: Callable[[str], StoreBench]
) -> None:
    """At the requests for the lock, where the run notes itself, and in the clean-up after the publication."""
    bench = make(kind)
    phases = [request.phase for request in bench.requests]
    numbers = {1 + phases.index(phase) for phase in ("lock", "journal", "clean-up")}
    numbers |= {len(phases) - back for back in range(4)}
    for number in sorted(numbers):
        run = bench.run_from_before(hit=Hit(number, what=signal.SIGTERM))
        assert run.code in (0, 143), run
        assert bench.state() in (("new",) if run.code == 0 else ("old", "uncommitted", "new"))
        left = [name for name in store_of(bench.url)[0].walk() if "-lock" in name or OWN in name]
        assert left == [], f"{run}: {number}"
