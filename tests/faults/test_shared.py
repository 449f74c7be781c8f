"""Source files that are rewritten in place after a run that could have linked them."""

from pathlib import Path

import numpy as np
import pytest

from tests.faults.runs import Runner
from tests.faults.tally import Tally
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same
from tests.support.libraries import ORIGINS, Arrays

KIND = "shared file rewritten"
ARRAYS: Arrays = {
    f"m/w{i}": np.random.default_rng(i).standard_normal((40, 30)).astype("f4") for i in range(3)
}
OTHERS: Arrays = {key: -value for key, value in ARRAYS.items()}


def in_place(name: str, path: Path) -> None:
    """Write other arrays into the same file, or files, as the format's library or a plain program does."""
    origin = ORIGINS[name]
    fresh = path.with_name(f"fresh{origin.suffix}")
    origin.save(OTHERS, fresh)
    pairs = (
        [(fresh, path)]
        if path.is_file()
        else [(file, path / file.relative_to(fresh)) for file in fresh.rglob("*")]
    )
    for new, old in pairs:
        if new.is_file():
            inode = old.stat().st_ino
            old.write_bytes(new.read_bytes())
            assert old.stat().st_ino == inode


REWRITTEN = ("npz", "torch", "safetensors", "flax", "npy")


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["auto", "hardlink"])
@pytest.mark.parametrize("name", REWRITTEN)
def test_a_result_does_not_change_with_its_source_or_is_watched(
    name: str, mode: str, runner: Runner, tmp_path: Path, tally: Tally
) -> None:
    path = ORIGINS[name].save(ARRAYS, tmp_path / f"source{ORIGINS[name].suffix}")
    made = runner.run("convert", path, "out", "--link-mode", mode, directory=tmp_path)
    assert made.code == 0, made
    assert runner.run("verify", "out", "--fast", directory=tmp_path).code == 0
    in_place(name, path)
    run = runner.run("verify", "out", "--fast", directory=tmp_path)
    if run.code == 3:
        assert mode == "hardlink"
        assert "source" in run.err + run.out
        tally.add(KIND, f"{name}, link mode {mode}", "verify --fast exits 3")
    else:
        assert run.code == 0, run
        assert_same(restored(tmp_path / "out"), ARRAYS)
        tally.add(KIND, f"{name}, link mode {mode}", "not linked, unchanged")
