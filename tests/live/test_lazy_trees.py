"""Lazy arrays in trees: as results of `restore(…, lazy=True)`, and as sources, which are read by region."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import SingleDeviceSharding
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery import LazyArray
from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import DataError, PlanError, SourceError, UsageError
from ckpt_surgery.formats.plain_files import ListedSource
from ckpt_surgery.live import carrying_out
from tests.live.test_lazy_arrays import Counted
from tests.support import checkpoints
from tests.support.calls import record_calls

W = np.arange(24, dtype=np.float32).reshape(6, 4)
RECIPE = {
    "version": 1,
    "rules": [
        {"match": "a/(.*)", "to": "b/\\1"},
        {"match": "w", "value": "transpose(x) * 2"},
        {"match": "n", "value": "x - mean(x)"},
    ],
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_file({"a/c": W, "w": W, "n": W}, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Region]]:
    """Keys and regions that are read from safetensors."""
    return record_calls(
        monkeypatch, ListedSource, "read", lambda source, leaf, region: (leaf.key.text, region)
    )


def test_arrays_are_computed_when_they_are_read(model: Path, reads: list[tuple[str, Region]]) -> None:
    lazy = ckpt_surgery.restore(RECIPE, model, lazy=True)
    whole = ckpt_surgery.restore(RECIPE, model)
    assert str(jax.tree.structure(lazy)) == str(jax.tree.structure(whole))
    reads.clear()
    assert all(isinstance(leaf, LazyArray) for leaf in jax.tree.leaves(lazy))
    assert (lazy["b"]["c"].key, lazy["w"].shape, lazy["w"].dtype) == ("b/c", (4, 6), np.float32)
    assert reads == []
    np.testing.assert_array_equal(lazy["w"][1, 2:4], (W.T * 2)[1, 2:4], strict=True)
    assert reads == [("w", Region((2, 1), (4, 2)))]
    np.testing.assert_array_equal(lazy["b"]["c"][::2], W[::2], strict=True)
    for found, expected in zip(jax.tree.leaves(lazy), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(found.get(), expected, strict=True)
        np.testing.assert_array_equal(found[1:3, [0, 2]], expected[1:3, np.array([0, 2])], strict=True)
    np.testing.assert_array_equal(lazy["n"].astype("bfloat16").get(), whole["n"].astype(jnp.bfloat16))


def test_the_target_says_structure_and_dtypes(tmp_path: Path) -> None:
    key = jax.random.key(0)
    with checkpoints.quiet():
        ocp.PyTreeCheckpointer().save(tmp_path / "a", {"w": W, "step": 3, "s": "text", "e": {}, "k": key})
    plain = ckpt_surgery.restore(None, tmp_path / "a", lazy=True)
    assert (plain["step"], plain["s"], plain["e"], plain["k"].prng_impl) == (3, "text", {}, "threefry2x32")
    np.testing.assert_array_equal(plain["k"].get(), jax.random.key_data(key))
    target: dict[str, Any] = {
        "w": jax.ShapeDtypeStruct((6, 4), jnp.bfloat16),
        "step": int,
        "s": "",
        "e": {},
        "k": jax.random.key(1),
        "new": np.ones(2, np.float32),
    }
    recipe = {"version": 1, "rules": [{"fill": "new", "fallback": True}]}
    found = ckpt_surgery.restore(recipe, tmp_path / "a", target=target, lazy=True)
    assert (found["step"], found["s"], found["e"]) == (3, "text", {})
    assert (found["w"].dtype, found["new"].key) == (ml_dtypes.bfloat16, "new")
    np.testing.assert_array_equal(found["w"][5], W[5].astype(ml_dtypes.bfloat16), strict=True)
    np.testing.assert_array_equal(found["new"].get(), [1, 1])


def test_the_plan_is_refused_as_always(model: Path) -> None:
    with pytest.raises(PlanError):
        ckpt_surgery.restore(None, model, target={"w": jnp.ones(3)}, lazy=True)
    for options in ({"donate": True}, {"shardings": SingleDeviceSharding(jax.devices()[0])}):
        with pytest.raises(UsageError, match="lazy"):
            ckpt_surgery.restore(None, model, lazy=True, **options)  # type: ignore[arg-type]


def test_bad_values_are_refused_or_told_when_they_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_file({"a": np.array([0, 1e6], np.float32)}, tmp_path / "m.safetensors")
    target = {"a": jax.ShapeDtypeStruct((2,), np.float16)}
    lazy = ckpt_surgery.restore(None, tmp_path / "m.safetensors", target=target, lazy=True)["a"]
    assert lazy[0] == 0
    with pytest.raises(DataError, match="`a`"):
        lazy.get()
    recipe = {"version": 1, "rules": [{"match": "a", "value": "allow_nonfinite(1 / x)"}]}
    lazy = ckpt_surgery.restore(recipe, tmp_path / "m.safetensors", lazy=True)["a"]
    assert caplog.text == ""
    assert np.isinf(lazy[0])
    assert "1 in `a`" in caplog.text


def test_a_source_that_changed_is_refused(model: Path) -> None:
    lazy = ckpt_surgery.restore(RECIPE, model, lazy=True)
    os.utime(model, ns=(0, 1))
    for leaf in jax.tree.leaves(lazy):
        with pytest.raises(SourceError, match="changed"):
            leaf.get()


def test_a_large_array_is_computed_in_blocks(
    tmp_path: Path, reads: list[tuple[str, Region]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying_out, "BLOCK", 1 << 20)
    large = np.arange(2**20, dtype=np.float32).reshape(2**10, 2**10)
    save_file({"a": large}, tmp_path / "m.safetensors")
    recipe = {"version": 1, "rules": [{"match": "a", "value": "x * 2"}]}
    lazy = ckpt_surgery.restore(recipe, tmp_path / "m.safetensors", lazy=True)["a"]
    reads.clear()
    np.testing.assert_array_equal(lazy.get(), large * 2, strict=True)
    assert len(reads) > 1
    assert sum(region.size for _, region in reads) == large.size


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
