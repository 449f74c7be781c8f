"""`apply_transformations` on a checkpoint: the result is that of Orbax on the tree that it restores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckpt_surgery import Transform, apply_transformations
from ckpt_surgery.api.opening import open as open_checkpoint
from ckpt_surgery.core.errors import KeyNotFound, OriginalMissingError, UsageError
from ckpt_surgery.live.lazy_arrays import LazyArray
from tests.migration.test_transforming import assert_identical
from tests.oracle.test_guide import GUIDE, Example
from tests.oracle.trees import Tree, save
from tests.support.calls import record_calls

ORIGINAL = {
    "a": np.array([1, 2, 3, 4]),
    "b": {"c": np.array([5, 6, 7, 8], np.int16), "d": [1.5, np.ones(2, ml_dtypes.bfloat16) / 3]},
    "jax": jnp.arange(4.0),
    "step": 7,
    "text": "written",
    "none": None,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("transformations") / "checkpoint", ORIGINAL)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the arrays that are read, in order."""
    return record_calls(monkeypatch, LazyArray, "get", lambda array: array.key)


def restored(path: Path) -> Tree:
    """What a program has in memory without us; jax warns about arrays whose sharding it reads from a file."""
    return ocp.PyTreeCheckpointer().restore(path)


def as_from_memory(path: Path, transforms: Tree, new: Tree, default: bool = True) -> Tree:
    """Compare the result with that of Orbax on the tree that it restores."""
    result = apply_transformations(path, transforms, new, default)
    assert_identical(result, ocp.apply_transformations(restored(path), transforms, new, default))
    return result


@pytest.mark.parametrize("example", GUIDE, ids=lambda example: example.recipe)
def test_the_examples_of_the_guide(tmp_path: Path, example: Example) -> None:
    as_from_memory(save(tmp_path / "original", example.original), example.transforms, example.new)


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
@pytest.mark.parametrize(
    "function",
    [
        lambda key, kv: kv["a"] + kv["b"]["c"],
        lambda key, kv: sum(kv["b"]["d"]),
        lambda key, kv: [isinstance(value, dict | list) for value in kv.values()],
        lambda key, kv: jax.tree.map(lambda leaf: leaf * 2, {**kv, "text": 1}),
        lambda key, kv: kv["b"],
        lambda key, kv: {"inner": (kv["b"]["d"], kv["jax"])},
        lambda key, kv: jnp.stack([kv["jax"], kv["a"]]).sum(0),
        lambda key, kv: (isinstance(kv["b"], dict), isinstance(kv["b"]["d"], list), kv["none"], key),
        lambda key, kv: {**kv["b"], "step": kv["step"]},
        lambda key, kv: kv["text"] + key,
        lambda key, kv: kv["b"]["d"][1].dtype,
    ],
)
def test_functions_of_the_whole_tree(path: Path, function: Callable[[str, Any], Any]) -> None:
    as_from_memory(path, {"x": ocp.Transform(multi_value_fn=function)}, {"x": ...})


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_leaves_are_what_orbax_restores(path: Path) -> None:
    new = {"y": ..., "z": [..., ...], "step": ..., "text": ..., "jax": ..., "own": 5, "none": 6}
    transforms = {
        "y": ocp.Transform(original_key="b/d/1", value_fn=lambda v: v * 2 + v),
        r"z/(\d)": ocp.Transform(original_key=r"b/d/\1"),
        "step": ocp.Transform(value_fn=lambda v: (type(v), v)),
    }
    result = as_from_memory(path, transforms, new)
    assert isinstance(result["jax"], jax.Array)
    assert (result["step"], result["none"]) == ((int, 7), 6)


def test_only_what_is_asked_for_is_read(path: Path, reads: list[str]) -> None:
    transforms = {
        "x": Transform(multi_value_fn=lambda key, kv: kv["b"]["c"] + kv["b"]["c"] + len(kv["b"])),
        ".*": Transform(original_key="jax"),
        "y": Transform(original_key="a"),
    }
    result = apply_transformations(path, transforms, {"x": 0, "y": 0})
    assert sorted(reads) == ["a", "b/c"]
    np.testing.assert_array_equal(result["x"], np.array([12, 14, 16, 18]))
    np.testing.assert_array_equal(result["y"], ORIGINAL["a"])


def test_an_open_checkpoint_and_a_part_of_one(path: Path) -> None:
    transforms = {"x": Transform(multi_value_fn=lambda key, kv: kv["c"] * 2), "d/.*": Transform()}
    new = {"x": 0, "d": [0, 0]}
    with open_checkpoint(path) as checkpoint:
        part = apply_transformations(checkpoint["b"], transforms, new)
        assert_identical(part, apply_transformations(ORIGINAL["b"], transforms, new))
        whole = apply_transformations(checkpoint, {}, {"a": 0, "step": 0})
        assert_identical(whole, {"a": ORIGINAL["a"], "step": 7})
    with pytest.raises(UsageError, match="was closed"):
        apply_transformations(checkpoint, {}, {"a": 0})
    with open_checkpoint({"a": np.arange(2), "b": 3}) as checkpoint:  # a tree
        result = apply_transformations(checkpoint, {"b": Transform(value_fn=str)}, {"a": 0, "b": 0})
    assert_identical(result, {"a": np.arange(2), "b": "3"})


def test_missing_leaves_are_named_before_anything_is_read(path: Path, reads: list[str]) -> None:
    transforms = {"x": Transform(original_key="b/cc"), "y": Transform(original_key="none"), "a": Transform()}
    with pytest.raises(OriginalMissingError) as caught:
        apply_transformations(path, transforms, {"x": 0, "y": 0, "a": 0})
    assert len(caught.value.problems) == 2  # empty nodes are no leaves, as in Orbax
    assert "`b/cc`; did you mean `b/c`?" in str(caught.value)
    assert reads == []


def test_an_error_of_a_function_is_its_own(path: Path) -> None:
    with pytest.raises(KeyError) as caught:
        apply_transformations(path, {"x": Transform(multi_value_fn=lambda key, kv: kv["z"])}, {"x": 0})
    assert not isinstance(caught.value, KeyNotFound)
