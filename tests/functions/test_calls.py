"""Calls: arguments find their places, and a wrong one is refused in words that help."""

from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arithmetic import Where
from ckpt_surgery.functions.arrays import Array, Read, Series
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.contractions import Einsum
from ckpt_surgery.functions.create import Full, Init
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.functions.quantization import Quantize
from ckpt_surgery.functions.reductions import ListReduction, Mean
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


def one(function: Function, *inputs: Array) -> Any:
    return (function, *(array.node for array in inputs))


CALLS: list[tuple[Any, Any]] = [
    (called("cast", A, "bfloat16"), one(Cast(dtype_named("bfloat16")), A)),
    (called("cast", A, "int8", on_overflow="saturate"), one(Cast(dtype_named("int8"), "saturate"), A)),
    (called("concat", [A, B], -1), one(Concat(-1), A, B)),
    (called("stack", (A, B), fill=0), one(Stack(fill=0), A, B)),
    (called("stack", Series((A, B), (0, 2)), fill=0), one(Stack(fill=0, places=(0, 2)), A, B)),
    (called("einsum", "i,j->ij", A, B), one(Einsum("i,j->ij"), A, B)),
    (called("einsum", "i,j->ij", [A, B]), one(Einsum("i,j->ij"), A, B)),
    (called("mean", A, axis=0), one(Mean(0), A)),
    (called("mean", [A, B]), one(ListReduction("mean"), A, B)),
    (called("where", M, 0, B), one(Where(a=0), M, B)),
    (called("where", M, B, 1.5), one(Where(b=1.5), M, B)),
    (called("maximum", 0, A), one(Binary("maximum", 0), A)),
    (called("clip", A, max=True), one(Binary("minimum", None, True), A)),
    (called("abs", A), one(Unary("abs"), A)),
    (called("zeros", (2,), "int4"), one(Full((2,), 0, dtype_named("int4")))),
    (
        called("init", "normal", 3, "float32", stddev=0.5),
        one(Init("normal", (3,), dtype_named("float32"), "the/key", 0, (("stddev", 0.5),))),
    ),
    (called("sqrt", 4), 2.0),
    (called("maximum", 4, 5), 5),
    (
        called("quantize", A, "int8", 0),
        [one(Quantize(dtype_named("int8"), 0, part), A) for part in ("values", "scale")],
    ),
]


@pytest.mark.parametrize(("found", "expected"), CALLS, ids=lambda value: str(value)[:50])
def test_calls(found: Any, expected: Any) -> None:
    assert found == expected


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
    ("stack", ([[[A]]],), {}, "has to be a list of arrays; a list of 1 values is in it"),
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


def test_sqrt_of_an_array_is_not_a_constant() -> None:
    assert called("sqrt", A) == one(Unary("sqrt"), A)


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
