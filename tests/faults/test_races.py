"""Two runs to one destination at the same time: one wins, and the result is the winner's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.faults.runs import Run, Runner
from tests.faults.scenarios import beside, check_message, remove
from tests.faults.tally import Tally
from tests.support.comparing import same
from tests.support.directories import names
from tests.support.libraries import DESTINATIONS

ARRAY = np.random.default_rng(1).standard_normal((30, 40)).astype(np.float32)


@pytest.fixture(scope="module")
def runners() -> Iterator[list[Runner]]:
    made = [Runner(), Runner()]
    yield made
    for runner in made:
        runner.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a source and two recipes, one for each run."""
    np.savez(tmp_path / "x.npz", w=ARRAY)
    for factor in (2, 3):
        rules = f"rules: [{{match: w, value: 'x * {factor}'}}]"
        (tmp_path / f"{factor}.yaml").write_text(f"version: 1\n{rules}\n")
    return tmp_path


@pytest.mark.faults
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("format", DESTINATIONS)
def test_two_runs_to_one_destination(
    format: str, overwrite: bool, place: Path, runners: list[Runner], tally: Tally
) -> None:
    race(format, overwrite, place, runners, tally, times=10)


@pytest.mark.slow("starts several programs")
def test_two_runs_to_one_safetensors_file(place: Path, runners: list[Runner], tally: Tally) -> None:
    race("safetensors", False, place, runners, tally, times=3)


def race(format: str, overwrite: bool, place: Path, runners: list[Runner], tally: Tally, times: int) -> None:
    name, load = DESTINATIONS[format]
    kept = [*names(place), name]

    def run(number: int) -> Run:
        recipe = f"{number + 2}.yaml"
        more = ["--overwrite"] if overwrite else []
        return runners[number].run("apply", recipe, "x.npz", name, *more, directory=place)

    for _ in range(times):
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(run, (0, 1)))
        winners = [number for number, run in enumerate(runs) if run.code == 0]
        for run_ in runs:
            assert run_.in_time
            assert run_.code in (0, 4), run_
            if run_.code:
                check_message(run_)
        assert len(winners) == 1 or (overwrite and winners), runs
        found = load(place / name)
        assert list(found) == ["w"]
        assert any(same(np.asarray(found["w"]), ARRAY * np.float32(n + 2)) for n in winners), runs
        assert set(names(place)) <= {*kept, beside(place / name).name}, runs
        whole = runners[0].run("verify", name, directory=place)
        assert whole.code == 0, f"{runs}\nand then: {whole}"  # the record is the winner's too
        tally.add("two runs to one destination", f"npz to {name}{', overwriting' * overwrite}", {
            1: "one wins, the other exits 4", 2: "one after the other"}[len(winners)])  # fmt: skip
        for path in (place / name, beside(place / name)):
            if path.exists():
                remove(path)
