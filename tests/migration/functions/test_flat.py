"""Functions of flat dicts as functions of trees."""

import functools
import inspect
from typing import Any

import numpy as np
import pytest
from flax import traverse_util
from flax.core import freeze

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.migration.functions.tracing import OnFlatDicts

TREE: Any = {"params": {"dense": {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}}, "step": 3, "empty": {}}


def test_a_function_gets_and_returns_flat_dicts() -> None:
    seen: list[Any] = []

    def function(flat: Any) -> Any:
        seen.append(dict(flat))
        flat["new/step"] = flat.pop("step")  # a dict of its own
        return flat

    made = OnFlatDicts(function)(TREE)
    [flat] = seen
    assert flat == traverse_util.flatten_dict(TREE, sep="/", keep_empty_nodes=False) | {"empty": {}}
    assert flat["params/dense/kernel"] is TREE["params"]["dense"]["kernel"]
    assert made == {"params": TREE["params"], "new": {"step": 3}, "empty": {}}
    assert TREE["step"] == 3


def test_lists_stay_lists_while_they_are_whole() -> None:
    tree = {"opt_state": [{"mu": {"w": 1}}, None, {"nu": {"w": 2}}], "frozen": freeze({"a": {"b": 3}})}
    assert OnFlatDicts(lambda flat: flat)(tree) == {
        "opt_state": [{"mu": {"w": 1}}, None, {"nu": {"w": 2}}],
        "frozen": {"a": {"b": 3}},
    }
    without = OnFlatDicts(lambda flat: {key: value for key, value in flat.items() if "/1" not in key})
    assert without(tree)["opt_state"] == {"0": {"mu": {"w": 1}}, "2": {"nu": {"w": 2}}}
    assert OnFlatDicts(lambda flat: {"kept": flat["opt_state/0/mu/w"]})(tree) == {"kept": 1}


def test_flat_trees_stay_flat() -> None:
    flat = {"a/b": 1, "a/c": 2, "d": 3}
    made = OnFlatDicts(lambda flat: flat | {"e/f": 4})
    assert made(flat) == {**flat, "e/f": 4}
    by_tuples = {tuple(key.split("/")): value for key, value in flat.items()}
    assert made(by_tuples) == {**by_tuples, ("e", "f"): 4}


def test_several_trees() -> None:
    both = OnFlatDicts(lambda one, other: {f"one/{k}": v for k, v in one.items()} | {"x/y": other["y"]})
    assert both({"a": {"b": 1}}, {"y": 2}) == {"one": {"a": {"b": 1}}, "x": {"y": 2}}


def test_what_is_asked_of_a_function_is_that_of_the_user_s() -> None:
    def named(one: Any, other: Any) -> Any:
        return one

    wrapped: Any = OnFlatDicts(named)
    assert inspect.unwrap(wrapped) is named
    assert list(inspect.signature(wrapped).parameters) == ["one", "other"]
    partial: Any = OnFlatDicts(functools.partial(named, other=3))
    assert list(inspect.signature(partial).parameters) == ["one", "other"]
    assert partial({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, "returns None, which is not a flat dict"),
        ([1], r"returns \[1\], which is not a flat dict"),
        ({"a": 0, ("a", "b"): 1}, r"returns a dict with the key \('a', 'b'\), which is not a flat dict"),
        ({"a/b": 1, "a": 2, "a/b/c": 3}, "returns `a`, and below it `a/b`"),
    ],
)
def test_what_is_no_flat_dict(made: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OnFlatDicts(lambda flat: made)(TREE)
