"""Layouts of functions, one after another, and of parts: compared with what the functions do."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import BOOL
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.layout import Reshape, Transpose
from ckpt_surgery.inference.expressions.layouts import (
    Layout,
    composed,
    identity,
    is_identity,
    reshaping,
    restricted,
    stacked,
    transposing,
)
from tests.inference.two_sides import arranged
from tests.support.evaluation import evaluate

SHAPE = (4, 1, 6)
FUNCTIONS = [
    Transpose(),
    Transpose((1, 2, 0)),
    Reshape((2, 2, 3, 2)),
    Reshape((-1, 12)),
    Reshape(24),
]


def laid(function: Function, shape: tuple[int, ...] = SHAPE) -> Layout:
    if isinstance(function, Transpose):
        return transposing(shape, function.permutation(len(shape)))
    layout = reshaping(shape, function.infer([ArraySpec(shape, BOOL)]).shape)
    assert layout is not None
    return layout


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_the_layout_of_a_function_does_what_it_does(function: Function) -> None:
    layout, array = laid(function), numbers(SHAPE)
    assert layout.shape_in == SHAPE
    assert np.array_equal(arranged(layout, array), evaluate(function, [array]))
    assert np.array_equal(arranged(layout.inverse(), arranged(layout, array)), array)


@pytest.mark.parametrize("first", FUNCTIONS, ids=str)
@pytest.mark.parametrize("second", [Transpose(), Reshape((2, 12)), Reshape((4, 6))], ids=str)
def test_two_layouts_are_one(first: Function, second: Function) -> None:
    array = numbers(SHAPE)
    between = first.infer([ArraySpec(SHAPE, BOOL)]).shape
    after = transposing(between, second.permutation(len(between))) if isinstance(second, Transpose) else None
    after = after or reshaping(between, second.infer([ArraySpec(between, BOOL)]).shape)
    both = composed(laid(first), after) if after else None
    if both:
        assert np.array_equal(arranged(both, array), evaluate(second, [evaluate(first, [array])]))
    assert is_identity(composed(laid(first), laid(first).inverse()) or laid(first))


def test_axes_that_are_cut_across_each_other_have_no_layout() -> None:
    assert reshaping((2, 3), (3, 2)) is None
    assert composed(identity((6,)), identity((6,))) == identity((6,))
    assert reshaping((0, 2), (2, 0)) is None
    turned = Layout((2, 3), ((0, 1),), ((1, 0),))
    assert composed(turned, turned) is None


def test_a_layout_has_as_few_digits_as_possible() -> None:
    """Digits of length 1 are none, and neighbours in the input and in the result are one."""
    lengths = {"a": 2, "b": 1, "c": 3, "d": 4}
    layout = Layout.of(["abc", "d"], ["d", "ac", "b"], lengths)
    assert layout == Layout((6, 4), ((0,), (1,)), ((1,), (0,), ()))


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_the_part_that_becomes_a_region(function: Function) -> None:
    layout, array = laid(function), numbers(SHAPE)
    result = arranged(layout, array)
    count = 0
    for axis, length in enumerate(result.shape):
        for start in range(length):
            for stop in range(start + 1, length + 1):
                starts = tuple(start if i == axis else 0 for i in range(result.ndim))
                stops = tuple(stop if i == axis else n for i, n in enumerate(result.shape))
                region = Region(starts, stops)
                part = restricted(layout, region)
                if part is not None:
                    count += 1
                    before, lies = part
                    assert np.array_equal(arranged(lies, array[before.slices]), result[region.slices])
    assert count > 3


def test_a_region_of_every_second_element_is_none() -> None:
    split = reshaping((6,), (3, 2))
    assert split is not None
    assert restricted(split, Region((0, 0), (3, 1))) is None
    rows = restricted(split, Region((1, 0), (3, 2)))
    assert rows is not None
    assert rows[0] == Region((2,), (6,))


def test_each_of_a_stack() -> None:
    layout = transposing((4, 6), (1, 0))
    arrays = numbers((3, 4, 6))
    assert np.array_equal(arranged(stacked(layout, 3), arrays), arrays.transpose(0, 2, 1))
