"""Runs to object stores that are killed at any of their requests, and the run after that."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.runs import Runner
from tests.faults.stores import KILLED, Hit, KeyValues, OfS3, StoreBench
from tests.faults.tally import Tally

KIND = "killed at a request to a store"
KINDS = ("fresh", "overwrite", "step")

Make = Callable[[str, str], StoreBench]


@pytest.fixture
def make(key_values: KeyValues, tmp_path: Path, runner: Runner, request: pytest.FixtureRequest) -> Make:
    """`make(store, kind)`: see `StoreBench`; the stores are `kv` and `s3`."""

    def made(store: str, kind: str) -> StoreBench:
        if store == "kv":
            return StoreBench(key_values, runner, tmp_path / "bench", kind)
        return StoreBench(
            OfS3(request.getfixturevalue("s3_bucket"), tmp_path), runner, tmp_path / "bench", kind
        )

    return made


def kill(bench: StoreBench, chance: random.Random, options: list[str], tally: Tally) -> None:
    """Kill a run at one of its requests, look what is there, and run again."""
    bench.prepare()
    number, after = chance.randrange(len(bench.requests)) + 1, chance.random() < 0.5
    request = bench.requests[number - 1]
    try:
        run = bench.run(hit=Hit(number, after))
        assert run.in_time
        assert run.code in (0, KILLED), run
        held = bench.state()
        assert run.code == KILLED or held == "new"
        bench.check_next_run(run, *options)
    except AssertionError as error:
        error.add_note(f"killed {'after' if after else 'before'} request {number}, such as {request}")
        raise
    if run.code == KILLED:
        tally.add(KIND, f"{request.phase}, {bench.kind}", held)


@pytest.mark.faults
@pytest.mark.parametrize("options", [[], ["--overwrite"], ["--resume"]], ids=["plain", "overwrite", "resume"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", ["kv", "s3"])
def test_killed_at_any_request(store: str, kind: str, options: list[str], make: Make, tally: Tally) -> None:
    bench, chance = make(store, kind), random.Random(f"{store} {kind} {options}")
    for _ in range(12):
        kill(bench, chance, options, tally)


@pytest.mark.slow("kills programs")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", ["kv", pytest.param("s3", marks=pytest.mark.slow("one more case"))])
def test_killed_at_a_random_request(store: str, kind: str, make: Make, tally: Tally) -> None:
    bench, chance = make(store, kind), random.Random(random.random())
    for options in (["--resume"], []):
        kill(bench, chance, options, tally)


@pytest.mark.slow("kills programs")
def test_data_that_was_put_and_not_noted_is_not_published(make: Make) -> None:
    bench = make("kv", "fresh")
    data = [n for n, one in enumerate(bench.requests, 1) if one.phase == "data" and "/d/" in one.name]
    bench.prepare()
    run = bench.run(hit=Hit(data[2], after=True))
    assert run.code == KILLED
    bench.check_next_run(run, "--resume")


@pytest.mark.slow("kills programs")
def test_between_two_checkpoints_nothing_is_read(make: Make) -> None:
    """The older one's marker is deleted, documents are replaced one by one, and the new marker is put."""
    bench = make("kv", "overwrite")
    markers = [n for n, request in enumerate(bench.requests, 1) if request.phase == "marker"]
    seen = set()
    for number in range(markers[0], markers[-1] + 1):
        bench.prepare()
        bench.run(hit=Hit(number, after=True))
        seen.add(bench.state())
    assert seen == {"old", "uncommitted", "new"}
