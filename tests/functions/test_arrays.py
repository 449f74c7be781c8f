"""Lazy arrays: specs, rounding, reads in order, and the operators that expressions have."""

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Apply, Array, Node, apply, reads
from ckpt_surgery.functions.contractions import product
from ckpt_surgery.functions.dtypes import Rounded
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary
from tests.support.lazy_arrays import lazy

NARROW = np.dtype(ml_dtypes.bfloat16)


def read(name: str, dtype: Any = np.float32) -> Node:
    return lazy((2, 3), dtype, name).node


def test_narrow_floats_are_rounded_once_at_the_end() -> None:
    array = Array(read("a", dtype=NARROW), NARROW)
    assert array.rounded_to_declared() is array.node
    doubled = apply(Binary("*", None, 2), array)
    assert (doubled.dtype, doubled.node.spec.dtype) == (NARROW, np.dtype(np.float32))
    assert doubled.spec == ArraySpec((2, 3), NARROW)
    settled = doubled.rounded_to_declared()
    assert isinstance(settled, Apply)
    assert settled.function == Rounded(NARROW, "inf")
    assert settled.inputs == (doubled.node,)


def test_reads_come_depth_first_and_once() -> None:
    a, b, c = read("a"), read("b"), read("c")
    node = Apply(Stack(), (Apply(Concat(), (b, a)), Apply(Concat(), (c, a))))
    assert [r.leaf.key.text for r in reads(node)] == ["b", "a", "c"]
    assert list(reads(a)) == [a]
    seen: set[int] = set()
    assert list(reads(node.inputs[0], seen)) == [b, a]
    assert list(reads(node, seen)) == [c]


COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "==": (operator.eq, "=="),
    "!=": (operator.ne, "!="),
    "<": (operator.lt, ">"),
    "<=": (operator.le, ">="),
    ">": (operator.gt, "<"),
    ">=": (operator.ge, "<="),
}
"""Each with the operator that means the same with its sides exchanged."""


def made(array: Array) -> tuple[Any, list[Any]]:
    """The function and the inputs of an array."""
    assert isinstance(array.node, Apply)
    return array.node.function, list(array.node.inputs)


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_comparisons_give_lazy_masks(symbol: str) -> None:
    x, y = lazy(), lazy()
    compare, exchanged = COMPARISONS[symbol]
    assert made(compare(x, y)) == (Binary(symbol), [x.node, y.node])
    assert made(compare(2.5, x)) == (Binary(exchanged, None, 2.5), [x.node])
    assert compare(x, y).dtype == np.bool_


def test_other_operators_subscripts_and_attributes() -> None:
    x, w = lazy((4, 6)), lazy((6, 2))
    assert made(x @ w) == (product(2, 2), [x.node, w.node])
    assert made(-x) == (Unary("neg"), [x.node])
    assert made(~(x < 0))[0] == Unary("not")
    assert +x is x
    assert made(x[1:, ::-1]) == (Index(((1, None, None), (None, None, -1))), [x.node])
    assert made(x[..., None, 0]) == (Index((..., None, 0)), [x.node])
    assert made(x.T) == (Transpose(), [x.node])
    assert (x.shape, x.ndim, x.size, x.dtype) == ((4, 6), 2, 24, np.float32)
    assert made(np.float64(2) * x)[0] == Binary("*", 2.0)


def test_what_an_array_refuses() -> None:
    for call, message in (
        (lambda x: x + lazy((5,)), "do not broadcast"),
        (lambda x: x @ 2, "`@` takes two arrays, not a number"),
        (lambda x: x[9], "index 9 is out of bounds for axis 0 of length 4"),
        (lambda x: bool(x), "an array float32\\[4,6\\] is neither true nor false"),
        (lambda x: x in [lazy()], "is neither true nor false"),
    ):
        with pytest.raises(FunctionError, match=message):
            call(lazy())


@pytest.mark.parametrize("call", [lambda x: x + "1", lambda x: [1] * x, iter])
def test_what_python_refuses_for_an_array(call: Callable[[Array], Any]) -> None:
    with pytest.raises(TypeError):
        call(lazy())


def test_arrays_are_told_apart_by_identity() -> None:
    x, y = lazy(), lazy()
    assert len({x, y, x}) == 2
