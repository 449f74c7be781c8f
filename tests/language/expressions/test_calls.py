"""Calls of Python functions of lazy arrays: what their annotations take, and what is refused."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from ckpt_surgery.core.dtypes import DType, dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series
from ckpt_surgery.functions.base import LeafKey, Number, in_expressions
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.calls import LONGEST_TEXT, call
from tests.support.lazy_arrays import lazy

A, B = lazy((2,)), lazy((3,))
GAPS = Series((A, B), (0, 2))


@in_expressions
def echo_(
    x: Array | Number, /, to: int | tuple[int, ...] = 1, dtype: DType | None = None, **axes: int
) -> Any:
    return x, to, dtype, axes


@in_expressions
def joined(pattern: str, *xs: Array) -> Any:
    return pattern, xs


@in_expressions
def mixed(x: Array | Sequence[Array], *, mode: Literal["fast", "slow"] = "fast") -> Any:
    return x, mode


@in_expressions
def placed(xs: Sequence[Array] | Series, leaf: str = "", *, leaf_key: LeafKey) -> Any:
    return xs, leaf, leaf_key


@in_expressions
def counted(x: Any, *more: float) -> Any:
    return x, more


@in_expressions
def failing(x: int) -> float:
    return 1 / x


def called(function: Callable[..., Any] | str, *arguments: Any, **keywords: Any) -> Any:
    """The value of a call of a function here, or of the one of this name in the registry."""
    given = registry()[function] if isinstance(function, str) else function
    return call(given, arguments, keywords, "the/key")


def test_arguments_are_what_the_annotations_say() -> None:
    for value, expected in (
        (called(echo_, A), (A, 1, None, {})),
        (called(echo_, 2.0, [3, 4], "bfloat16", x=5), (2.0, (3, 4), dtype_named("bfloat16"), {"x": 5})),
        (called(echo_, True, to=range(2)), (True, (0, 1), None, {})),
        (called(joined, "a", A, B), ("a", (A, B))),
        (called(joined, "a", [A, B]), ("a", (A, B))),
        (called(joined, "a", Series((A, B), None)), ("a", (A, B))),
        (called(mixed, A), (A, "fast")),
        (called(mixed, (A, B), mode="slow"), ([A, B], "slow")),
        (called(placed, GAPS, "b"), (GAPS, "b", "the/key")),
        (called(placed, [A]), ([A], "", "the/key")),
        (called(counted, [A, 1], 1, 2.5), ([A, 1], (1.0, 2.5))),
        (called(counted, Series((A,), None)), ([A], ())),
    ):
        assert value == expected


def test_refusals() -> None:
    for function, arguments, keywords, message in (
        (echo_, ("0",), {}, "`x` of `echo` has to be an array or a number, not '0'"),
        (echo_, ([A, B],), {}, "not a list of 2 arrays\n  stack(…) makes one array of them."),
        (echo_, (A, "bfloat16"), {}, "'bfloat16' is a dtype: give it by name, dtype='bfloat16'."),
        (echo_, (A, "b"), {}, "not 'b'\n  The arguments are echo(x, [to], [dtype])."),
        (echo_, (A, B), {}, "`to` of `echo` has to be an integer or a list of integers, not an array"),
        (echo_, (A,), {"dtype": "f32"}, "unknown dtype `f32`"),
        (echo_, (A,), {"dtype": 16}, "`dtype` of `echo` has to be the name of a dtype or None, not 16"),
        (echo_, (A,), {"h": 0.5}, "`h` of `echo` has to be an integer, not 0.5"),
        (echo_, (A,), {"h": True}, "`h` of `echo` has to be an integer, not True"),
        (joined, (3, A), {}, "`pattern` of `joined` has to be a text, not 3"),
        (joined, ("a" * (LONGEST_TEXT + 1), A), {}, "has 4,097 characters; the limit is 4,096"),
        (joined, ("a",), {}, "`joined` needs `xs`: joined(pattern, xs)"),
        (joined, ("a", []), {}, "`xs` of `joined` has to be a list of arrays, not an empty one"),
        (joined, ("a", A, 3), {}, "`xs` of `joined` has to be an array, not 3"),
        (mixed, (3,), {}, "`x` of `mixed` has to be an array, not 3"),
        (mixed, ([[A, B]],), {}, "has to be a list of arrays, but item 0 is a list of 2 arrays"),
        (mixed, ([A, 3],), {}, "has to be a list of arrays, but item 1 is 3"),
        (mixed, (A,), {"mode": "quick"}, "`mode` of `mixed` has to be 'fast' or 'slow', not 'quick'"),
        (mixed, (A, "slow"), {}, "`mixed` takes at most one argument, 2 given"),
        (mixed, (GAPS,), {}, "no leaf is at place 1; `by` gives 0, 2"),
        (placed, (A,), {}, "`xs` of `placed` has to be a list of arrays, not an array"),
        (placed, ([A],), {"leaf_key": "k"}, "`placed` has no argument `leaf_key`; did you mean `leaf`?"),
        (counted, (A,), {}, "`counted` takes text, numbers and lists, not an array float32[2]"),
        (counted, (1, "2"), {}, "`more` of `counted` has to be a number, not '2'"),
        (failing, (0,), {}, "`failing` raised ZeroDivisionError: division by zero"),
        ("pad", (A, 0), {"value": 1}, "`pad` needs `to`: pad(x, axis, to, [value])"),
        ("pad", (A, 0, 9, "edge"), {}, "not 'edge'\n  The arguments are pad("),
        ("transpose", (A, [True]), {}, "has to be a list of integers or None, not [True]"),
        ("mean", (A,), {"keepdims": 1}, "`keepdims` of `mean` has to be True or False, not 1"),
        ("mean", ([A], 0), {}, "`mean` of a list takes no axis and no keepdims: mean(xs)"),
        ("mean", ([A],), {"axis": 0}, "`mean` of a list takes no axis and no keepdims: mean(xs)"),
        ("arange", (24, "float32"), {}, "dtype='float32'"),
        ("zeros", ("float32", (2, 3)), {}, "dtype='float32'"),
        ("zeros", (2, 3), {}, "not 3\n  The arguments are zeros("),
        ("zeros", ("x" * 99, "int8"), {}, "not '" + "x" * 56 + "..."),
        ("quantize", (A, "int8"), {"part": "scale"}, "`quantize` has no argument `part`"),
    ):
        with pytest.raises(FunctionError) as caught:
            called(function, *arguments, **keywords)
        assert message in str(caught.value)
