"""The remarks that plans print below their rows."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.inputs.warnings import filled_chunks, leaves_read
from tests.support.command_line import run

SPARSE = Path(__file__).parents[1] / "data" / "orbax_versions" / "0.9.1-zarr3-plain"
"""A checkpoint in which 6 of the 8 chunks of `params/sparse` and the only one of `zeros` are not stored."""


def test_chunks_that_are_not_stored_are_counted(tmp_path: Path) -> None:
    made = applying.plan(None, SPARSE, dst=tmp_path / "c")
    wanted = "7 chunks of `params/sparse`, `zeros` are not stored and have the fill value"
    assert made.warnings == filled_chunks(made, leaves_read(made)) == (wanted,)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ("{match: 'params/.*', drop: true}", "1 chunk of `zeros` is not stored and has the fill value"),
        ("{match: 'params/sparse|zeros', drop: true}", None),
        ("{match: zeros, to: a, value: 'x + 1'}", "7 chunks of `"),
        ("{match: zeros, to: {a: x, b: 2 * x}}", "7 chunks of `"),
    ],
)
def test_only_of_what_is_read(rules: str, told: str | None, tmp_path: Path) -> None:
    made = applying.plan(f"version: 1\nrules:\n  - {rules}\n", SPARSE, dst=tmp_path / "c")
    found = [warning for warning in made.warnings if "fill value" in warning]
    assert [warning.startswith(told or "") for warning in found] == [True] * (told is not None)


def test_in_zarr_that_is_a_matter_of_course(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("x", shape=(8,), chunks=(2,), dtype="f4", fill_value=0)[2:4] = 1
    made = applying.plan(None, tmp_path / "g.zarr", dst=tmp_path / "c")
    assert made.warnings == ()


def test_weights_beside_a_checkpoint_are_reported(tmp_path: Path) -> None:
    for name in ("model.safetensors", "consolidated.safetensors"):
        save_file({"w": np.zeros(2, np.float32)}, tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    warnings = ckpt_surgery.plan(None, tmp_path).warnings
    assert warnings == (f"not read, as they are not part of {tmp_path}: consolidated.safetensors",)
    assert ckpt_surgery.inspect(tmp_path).warnings == warnings
    assert "consolidated.safetensors" in run("inspect", tmp_path).stdout
    named = tmp_path / "model.safetensors"
    ckpt_surgery.convert(named, tmp_path / "shards", format="safetensors", shard_size=4)
    assert ckpt_surgery.inspect(tmp_path / "shards").warnings == ()  # all shards of an index are read
    assert (ckpt_surgery.plan(None, named).warnings, ckpt_surgery.inspect(named).warnings) == ((), ())
