"""Values over whole arrays are the same bits however a plan is carried out."""

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from tests.support.comparing import assert_same, same
from tests.support.recipes import write_recipe

RECIPE = """\
version: 1
sources: [a, b]
rules:
  - match: '.*'
    to:
      cosine/${key}: x / norm(x) * sum(x / norm(x) * (b[key] / norm(b[key]))) - mean(x)
      largest/${key}: where(topk_mask(b[key] - x, x.size // 5), b[key] - x, 0)
      drawn/${key}: x * random_mask(x, 0.25, 7, model=1) / norm(x * random_mask(x, 0.25, 7, model=1))
"""
RNG = np.random.default_rng(11)
ARRAYS = {
    "w": RNG.normal(size=(1700, 600)).astype(np.float32),
    "v": RNG.normal(size=(900, 1100)).astype(ml_dtypes.bfloat16),
}
SMALL = "16MiB"
"""So little that tasks and streams are in several pieces."""
SOURCES = ("a.safetensors", "b.safetensors")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe, in the working directory with its sources."""
    monkeypatch.chdir(tmp_path)
    save_file(ARRAYS, "a.safetensors")
    save_file({name: array[::-1].copy() for name, array in ARRAYS.items()}, "b.safetensors")
    return write_recipe(tmp_path, RECIPE)


@pytest.fixture
def whole(recipe: Path) -> dict[str, Any]:
    """The result of a run in one piece."""
    ckpt_surgery.apply(recipe, *SOURCES, dst="whole.safetensors", memory="4GiB", workers=1)
    return load_file("whole.safetensors")


def test_the_values_are_numpys(whole: dict[str, Any]) -> None:
    for name, array in ARRAYS.items():
        a, b = (one / np.linalg.norm(one) for one in (array.astype(float), array[::-1].astype(float)))
        tolerance = 1e-6 if array.dtype == np.float32 else 1e-2
        expected = a * np.sum(a * b) - array.astype(float).mean()
        np.testing.assert_allclose(
            whole[f"cosine/{name}"].astype(float), expected, rtol=tolerance, atol=tolerance
        )
        difference = array[::-1].astype(np.float32) - array.astype(np.float32)
        kept = np.argsort(-np.abs(difference).ravel(), kind="stable")[: array.size // 5]
        largest = np.zeros(array.size, np.float32)
        largest[kept] = difference.ravel()[kept]
        assert same(whole[f"largest/{name}"], largest.reshape(array.shape).astype(array.dtype))
        assert abs((whole[f"drawn/{name}"] != 0).mean() - 0.25) < 0.01


@pytest.mark.parametrize("workers", [1, 3])
def test_in_little_memory(recipe: Path, whole: dict[str, Any], workers: int) -> None:
    made = ckpt_surgery.apply(recipe, *SOURCES, dst="out.safetensors", memory=SMALL, workers=workers)
    assert all(step.cut is not None and step.cut.pieces for step in made.plan.steps)
    assert_same(load_file("out.safetensors"), whole)


def test_by_a_saved_plan_in_shards(recipe: Path, whole: dict[str, Any]) -> None:
    ckpt_surgery.plan(recipe, *SOURCES, dst="out.safetensors", memory=SMALL, out="plan.json")
    for number in (2, 0, 1):
        ckpt_surgery.apply_shard("plan.json", dst="out.safetensors", shard=f"{number}/3")
    ckpt_surgery.commit("out.safetensors")
    assert_same(load_file("out.safetensors"), whole)


def test_in_arrays_of_a_program(recipe: Path, whole: dict[str, Any]) -> None:
    target = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in whole.items()}
    found = ckpt_surgery.restore(recipe, *SOURCES, target=target, memory="64MiB")
    assert_same({name: np.asarray(array) for name, array in found.items()}, whole)
