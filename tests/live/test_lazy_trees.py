"""Trees that hold lazy arrays, as sources: they are read by region, and keep what they are."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery import LazyArray
from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import PlanError
from tests.live.test_lazy_arrays import Counted
from tests.support import checkpoints

W = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_planning_reads_nothing_and_a_slice_its_region() -> None:
    lazy = Counted(W)
    recipe = {"version": 1, "rules": [{"match": "a/w", "to": "v", "value": "x[1:3]"}]}
    plan = ckpt_surgery.plan(recipe, {"a": {"w": lazy}})
    assert [(step.leaf.key.text, step.leaf.spec) for step in plan.steps] == [
        ("v", ArraySpec((2, 4), np.dtype(np.float32)))
    ]
    assert lazy.regions == []
    found = ckpt_surgery.restore(recipe, {"a": {"w": lazy}})
    assert isinstance(found["v"], jax.Array)
    np.testing.assert_array_equal(found["v"], W[1:3])
    assert lazy.regions == [Region((1, 0), (3, 4))]


def test_a_tree_of_lazy_arrays_is_written_like_the_checkpoint_that_it_is_of(tmp_path: Path) -> None:
    tree = {
        "w": W,
        "step": 3,
        "l": [1.5, jnp.ones(2)],
        "k": jax.random.key(0),
        "s": "text",
        "e": {},
        "n": None,
    }
    with checkpoints.quiet():
        ocp.PyTreeCheckpointer().save(tmp_path / "a", tree)
    opened = ckpt_surgery.open(tmp_path / "a")
    ckpt_surgery.apply({"version": 1}, opened.tree, dst=tmp_path / "b")
    difference = ckpt_surgery.diff(tmp_path / "a", tmp_path / "b", values=True)
    assert not difference.different
    assert not ckpt_surgery.diff(opened.tree, tmp_path / "a", values=True).different
    stats = ckpt_surgery.inspect(opened.tree, stats=True)
    assert stats.statistics == opened.statistics()
    restored = ckpt_surgery.restore(None, opened.tree)
    assert str(jax.tree.structure(restored)) == str(jax.tree.structure(tree))
    assert (restored["step"], restored["k"]) == (3, jax.random.key(0))


def test_arrays_of_several_checkpoints_and_of_functions_in_one_tree(tmp_path: Path) -> None:
    save_file({"w": W}, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", v=np.ones(3))
    one, other = ckpt_surgery.open(tmp_path / "a.safetensors"), ckpt_surgery.open(tmp_path / "b.npz")
    tree: dict[str, Any] = {
        "w": one["w"].astype("bfloat16"),
        "v": other["v"],
        "x": np.zeros(1),
        "f": LazyArray.of((2,), np.int32, lambda: [1, 2]),
    }
    found = ckpt_surgery.restore(None, tree)
    np.testing.assert_array_equal(found["w"], W.astype(jnp.bfloat16))
    np.testing.assert_array_equal(found["f"], [1, 2])
    assert (found["v"].sum(), found["x"].sum()) == (3, 0)
    flat = flatten_dict({"a": tree})
    assert ckpt_surgery.restore(None, flat)["a", "f"][1] == 2


def test_a_lazy_array_in_the_target_is_an_array_to_fall_back_on() -> None:
    lazy = Counted(W)
    recipe = {"version": 1, "rules": [{"fill": "w", "fallback": True}]}
    found = ckpt_surgery.restore(recipe, {"v": np.ones(1)}, target={"v": np.zeros(1), "w": lazy})
    assert isinstance(found["w"], jax.Array)
    np.testing.assert_array_equal(found["w"], W)


def test_a_part_of_a_checkpoint_within_a_tree_is_refused(tmp_path: Path) -> None:
    save_file({"a/w": W}, tmp_path / "a.safetensors")
    opened = ckpt_surgery.open(tmp_path / "a.safetensors")
    with pytest.raises(PlanError, match="Checkpoint"):
        ckpt_surgery.plan(None, {"b": opened["a"]}, dst=tmp_path / "b")
    assert [*ckpt_surgery.open({"b": opened["a"].tree})] == ["b/w"]
