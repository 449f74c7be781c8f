"""Many runs to one destination in an object store at the same time: one wins, and the result is its own."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.storage.store import store_of
from tests.emulators.fixtures import Bucket
from tests.faults import key_value_runs
from tests.faults.crowd import Ended, together
from tests.faults.stores import KeyValues
from tests.support.checkpoints import save_pytree

ARRAYS = {name: np.arange(1000.0) + number for number, name in enumerate("abc")}

LOSES = "is writing this destination|exists already|just taking this lock|changed during"

Store = tuple[str, Mapping[str, str]]
"""URL of a bucket, and the environment in which a process finds it."""


@pytest.fixture
def of_kv(key_values: KeyValues, tmp_path: Path) -> Store:
    return key_values.url, key_value_runs.environment(tmp_path / "bucket")


@pytest.fixture
def of_s3(s3_bucket: Bucket) -> Store:
    return s3_bucket.url, {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def race(store: Store, count: int, directory: Path, *options: str) -> list[Ended]:
    """Let runs begin together, each with a factor of its own; checks that the result is a winner's."""
    url, environment = store
    save_pytree(directory / "in", ARRAYS)
    arguments = []
    for factor in range(2, count + 2):
        recipe = directory / f"{factor}.yaml"
        recipe.write_text(f"version: 1\nrules: [{{match: '.*', value: x * {factor}}}]\n")
        arguments.append(["apply", recipe, directory / "in", f"{url}/runs/out", *options])
    runs = together(arguments, directory, environment)
    won = [number + 2 for number, run in enumerate(runs) if run.code == 0]
    for run in runs:
        assert run.code in (0, 4), run
        if run.code:
            told = " ".join(run.told.split())
            assert re.search(LOSES, told)
            assert "Traceback" not in told
    assert any(holds(f"{url}/runs/out", directory, factor) for factor in won), runs
    assert ckpt_surgery.verify(f"{url}/runs/out", mode="full").flaws == ()
    opened, name = store_of(f"{url}/runs/out")
    left = [one for one in opened.walk() if not one.startswith(f"{name}/") or ".ckpt-surgery/" in one]
    assert left == []
    return runs


def holds(url: str, directory: Path, factor: int) -> bool:
    """Whether the destination is the result of the run with this factor."""
    wanted = directory / f"wanted-{factor}"
    ckpt_surgery.apply(directory / f"{factor}.yaml", directory / "in", dst=wanted)
    return not ckpt_surgery.diff(wanted, url, values=True).different


@pytest.mark.parametrize("store", ["of_kv", "of_s3"])
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(5, marks=pytest.mark.slow("starts several programs")),
        pytest.param(20, marks=pytest.mark.faults),
    ],
)
def test_one_of_many_runs_wins(
    store: str, count: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runs = race(request.getfixturevalue(store), count, tmp_path)
    assert sorted(run.code for run in runs) == [0] + [4] * (len(runs) - 1)


@pytest.mark.faults
def test_twenty_runs_that_overwrite(of_kv: Store, tmp_path: Path) -> None:
    """One or more win, one after another."""
    save_pytree(tmp_path / "old", {"old": np.arange(5.0)})
    ckpt_surgery.apply(None, tmp_path / "old", dst=f"{of_kv[0]}/runs/out")
    assert 0 in [run.code for run in race(of_kv, 20, tmp_path, "--overwrite")]
