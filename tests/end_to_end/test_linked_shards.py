"""Zarr's shards reach Orbax as links where that keeps the values, and are decoded and written elsewhere.

A shard that lacks a chunk stands for the fill value there, which Orbax's arrays do not have. Stock Orbax
restores every result.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from ckpt_surgery.api import applying
from ckpt_surgery.planner.plan import Plan
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same
from tests.support.plans import transfers_of
from tests.support.recipes import write_recipe

FILLS: Mapping[str, float] = {"zero": 0.0, "nine": 9.0, "nan": np.nan}
LOCATIONS = ("start", "end")


def values(fill: float, whole: bool) -> np.ndarray:
    """Of shards of 2 × 4, which reach over both edges of the array, one lacks its second chunk, or none."""
    array = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
    if not whole:
        array[2:4, 2:4] = fill
    return array


def checkpoint(path: Path) -> dict[str, np.ndarray]:
    """A group with groups in it, by zarr-python: each fill value at each place of the index, whole or not."""
    group = zarr.open_group(path, mode="w", zarr_format=3)
    held = {}
    for name, fill in FILLS.items():
        for location in LOCATIONS:
            for kind in ("whole", "lacking"):
                key = f"{location}/{name}/{kind}"
                held[key] = values(fill, kind == "whole")
                made = group.create_array(
                    name=key,
                    shape=(5, 7),
                    chunks=(2, 2),
                    shards={"shape": (2, 4), "index_location": location},
                    dtype="float32",
                    fill_value=fill,
                )
                made[...] = held[key]
    return held


def run(recipe: str, tmp_path: Path) -> tuple[Plan, Any]:
    """The plan, and what stock Orbax restores."""
    result = applying.apply(write_recipe(tmp_path, recipe), tmp_path / "g", dst=tmp_path / "out")
    return result.plan, restored(tmp_path / "out")


CHANGES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "x": lambda x: x,
    "x.T": lambda x: x.T,
    "x[2:]": lambda x: x[2:],
    "x * 1": lambda x: x * 1,
}


@pytest.mark.parametrize("value", CHANGES)
def test_shards_of_every_fill_value_are_restored_renamed_and_changed(value: str, tmp_path: Path) -> None:
    held = checkpoint(tmp_path / "g")
    recipe = f"version: 1\nrules: [{{match: '(?P<k>.*)', to: 'renamed/${{k}}', value: '{value}'}}]"
    plan, found = run(recipe, tmp_path)
    assert_same(found, {f"renamed/{key}": CHANGES[value](array) for key, array in held.items()})
    moved = {key: value != "x * 1" and key.endswith("whole") for key in found}
    assert transfers_of(plan) == {key: "link" if moved[key] else "compute" for key in found}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_shards_are_stacked_by_links_where_no_chunk_is_missing(axis: int, tmp_path: Path) -> None:
    """Whole shards are put together whatever their fill values were; one that lacks a chunk is enough."""
    held = checkpoint(tmp_path / "g")
    rules = "".join(
        f"- {{match: '{location}/(.*)/{kind}', to: {location}_{kind}, value: 'stack(xs, axis={axis})'}}\n"
        for location in LOCATIONS
        for kind in ("whole", "lacking")
    )
    parts = "source['start/nine/whole'], source['start/nine/lacking']"
    rules += f'- {{add: mixed, value: "stack([{parts}], axis={axis})"}}\n'
    plan, found = run(f"version: 1\nrules:\n{rules}", tmp_path)
    wanted = {
        f"{location}_{kind}": np.stack([held[f"{location}/{name}/{kind}"] for name in sorted(FILLS)], axis)
        for location in LOCATIONS
        for kind in ("whole", "lacking")
    }
    wanted["mixed"] = np.stack([held["start/nine/whole"], held["start/nine/lacking"]], axis)
    assert_same(found, wanted)
    assert transfers_of(plan) == {
        key: "link" if key.endswith("whole") else "compute" for key in transfers_of(plan)
    }
    assert "link" in transfers_of(plan).values()
