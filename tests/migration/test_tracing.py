"""Why a function is no expression."""

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ckpt_surgery.migration.numpy_calls import NumpyRecorder
from ckpt_surgery.migration.orbax_transforms import Trace, trace
from ckpt_surgery.migration.standins import Branch, RequestedKey

ARRAY = np.ones(3)
ADD = np.add


def traced(function: Callable[[Any, Any], Any]) -> Trace:
    recorder = NumpyRecorder()
    return trace(function, [RequestedKey(recorder), Branch((), recorder)], recorder)


@pytest.mark.parametrize(
    ("function", "flaw"),
    [
        (lambda key, t: t["a"] if t["a"] > 0 else 0, "it asks for values, by `__bool__`"),
        (lambda key, t: float(t["a"]), "it asks for values, by `__float__`"),
        (lambda key, t: [*t["a"]], "it asks for values, by `__iter__`"),
        (lambda key, t: t["a"] + ARRAY, "it combines an array with ndarray, a value from elsewhere"),
        (lambda key, t: t["a"] * 1j, "it combines an array with complex, a value from elsewhere"),
        (lambda key, t: t["a"][ARRAY > 0], "it indexes with ndarray"),
        (lambda key, t: t["a"][True], "it indexes with a boolean"),
        (lambda key, t: t["a"].astype("no dtype"), "it uses the dtype 'no dtype'"),
        (lambda key, t: np.sort(t["a"]), "it calls `sort`"),
        (lambda key, t: ADD.reduce(t["a"]), "it uses `numpy.add.reduce`"),
        (
            lambda key, t: jnp.reshape(t["a"], (2,), order="F"),
            "it calls `reshape` with arguments",
        ),
        (lambda key, t: t["a"].values(), "it asks by `.values` which leaves there are"),
        (lambda key, t: t[0], "it looks at the tree as a whole"),
        (lambda key, t: t["a"] if key == "b" else t["c"], "it looks at the key by `__eq__`"),
        (lambda key, t: t[key.lower()], "it looks at the key by `.lower`"),
        (lambda key, t: 3, "it gives int that does not come from an array"),
        (lambda key, t: [t["a"]], "it gives list that does not come from an array"),
        (lambda key, t: 1 / 0, "it raises ZeroDivisionError: division by zero"),
    ],
)
def test_flaws(function: Callable[[Any, Any], Any], flaw: str) -> None:
    found = traced(function)
    assert found.expression is None
    assert re.match(re.escape(flaw), found.flaw), found.flaw


def test_a_flaw_that_the_function_hides() -> None:
    def sneaky(key: Any, t: Any) -> Any:
        try:
            return t["a"] * 2 if t["a"] > 0 else t["a"]
        except BaseException:  # noqa: BLE001  (nobody should, and somebody does)
            return t["a"] * 2

    assert traced(sneaky) == Trace(None, "it asks for values, by `__bool__`")


@pytest.mark.parametrize(
    ("function", "expression"),
    [
        (lambda key, t: t["a"]["b"] + t.c.d, "source['a/b'] + source['c/d']"),
        (lambda key, t: sum([t["a"], t["b"]]) / 2, "(source['a'] + source['b']) / 2"),
        (lambda key, t: t["a"][key] * t[key], "source[f'a/{key}'] * source[key]"),
        (lambda key, t: t["a"][-1, ..., None, 2:], "source['a'][-1, ..., None, 2:]"),
        (
            lambda key, t: jnp.where(t["a"] > t["b"], 0, t["a"]),
            "where(source['a'] > source['b'], 0, source['a'])",
        ),
        (lambda key, t: jnp.add(1, t["a"]), "1 + source['a']"),
    ],
)
def test_expressions(function: Callable[[Any, Any], Any], expression: str) -> None:
    assert traced(function) == Trace(expression)
