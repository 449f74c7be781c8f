"""Calls: arguments find their places, and a wrong one is refused in words that help."""

from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.calls import call


def array(name: str, dtype: Any = np.float32) -> Array:
    spec = ArraySpec((2,), np.dtype(dtype))
    return Array(Read("source", Leaf(Key.parse(name), LeafKind.ARRAY, spec)), spec.dtype)


A, B = array("a"), array("b")
M = array("m", bool)


def called(name: str, *arguments: Any, **keywords: Any) -> Any:
    """What a call gives: a number, or for each array its primitive and the nodes that it is applied to."""
    value = call(registry()[name], arguments, keywords, "the/key")
    if isinstance(value, list):
        return [(array.node.function, *array.node.inputs) for array in value]
    return (value.node.function, *value.node.inputs) if isinstance(value, Array) else value


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("reshape", (A,), {}, "`reshape` needs `shape`: reshape(x, shape)"),
    ("pad", (A, 0), {"value": 1}, "`pad` needs `to`: pad(x, axis, to, [value])"),
    ("transpose", (), {}, "`transpose` needs `x`: transpose(x, [axes])"),
    ("transpose", (3,), {}, "`x` of `transpose` has to be an array, not 3"),
    ("transpose", (A, "a"), {}, "`axes` of `transpose` has to be a list of integers or None, not 'a'"),
    ("transpose", (A, [0.5]), {}, "`axes` of `transpose` has to be a list of integers or None, not [0.5]"),
    ("transpose", (A, [True]), {}, "has to be a list of integers or None, not [True]"),
    ("reshape", (A, B), {}, "`shape` of `reshape` has to be an integer or a list of integers, not an array"),
    ("pad", (A, True, 3), {}, "`axis` of `pad` has to be an integer, not True"),
    ("pad", (A, 0, 3, "x"), {}, "`value` of `pad` has to be a number, not 'x'"),
    ("mean", (A,), {"keepdims": 1}, "`keepdims` of `mean` has to be True or False, not 1"),
    ("cast", (A, 16), {}, "`dtype` of `cast` has to be the name of a dtype, not 16"),
    ("rearrange", (A, 3), {}, "`pattern` of `rearrange` has to be a text, not 3"),
    ("rearrange", (A, "a -> a"), {"a": 1.5}, "`a` of `rearrange` has to be an integer, not 1.5"),
    ("rearrange", (A, "x -> x"), {"x": B}, "`x` of `rearrange` has to be an integer, not an array"),
    ("where", (A, [A, B], 0), {}, "to be an array or a number, not a list of 2 arrays\n  stack(…) makes"),
    ("transpose", ([A, 3],), {}, "has to be an array, not a list of 2 values"),
    ("reshape", (A, [A, B]), {}, "an integer or a list of integers, not a list of 2 arrays"),
    ("stack", ([[A, B]],), {}, "has to be a list of arrays; a list of 2 arrays is in it"),
    ("stack", ([[[A]]],), {}, "has to be a list of arrays; a list of 1 value is in it"),
    ("stack", ([A],), {"places": (0,)}, "`stack` has no argument `places`"),
    ("mean", ([A], 0), {}, "`mean` takes at most one argument, 2 given: mean(xs)"),
    ("mean", ([A],), {"axis": 0}, "`mean` takes at most one argument, 2 given: mean(xs)"),
    ("mean", (3,), {}, "`x` of `mean` has to be an array, not 3"),
    ("where", (A, "0", B), {}, "`a` of `where` has to be an array or a number, not '0'"),
    ("quantize", (A, "int8"), {"part": "scale"}, "`quantize` has no argument `part`"),
    ("zeros", ("x" * 99, "int8"), {}, "not '" + "x" * 56 + "..."),
    ("sqrt", (-1,), {}, "sqrt(-1) is not a number"),
]


@pytest.mark.parametrize(("name", "arguments", "keywords", "message"), REFUSED)
def test_refusals(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        called(name, *arguments, **keywords)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("arange", [24, "float32"]),
        ("arange", [0, 24, "float32"]),
        ("zeros", ["float32", (2, 3)]),
        ("ones", ["bfloat16", 3]),
        ("full", [(2, 3), "float32", 1.0]),
        ("init", ["normal", "float32", (2, 3)]),
        ("cast", ["float16", A]),
    ],
)
def test_a_dtype_in_the_place_of_another_argument_is_told_where_it_belongs(name, arguments):
    with pytest.raises(FunctionError) as caught:
        called(name, *arguments)
    [problem] = caught.value.problems
    dtype = next(value for value in arguments if isinstance(value, str) and value != "normal")
    assert f"dtype='{dtype}'" in (problem.hint or "")


def test_other_arguments_in_the_wrong_place_show_the_order():
    for name, arguments in {
        "pad": [A, 0, 9, "edge"],
        "repeat": [A, "3", 0],
        "zeros": [2, 3],
    }.items():
        with pytest.raises(FunctionError) as caught:
            called(name, *arguments)
        assert f"{name}(" in (caught.value.problems[0].hint or ""), name
