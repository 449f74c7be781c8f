"""The layouts that shapes allow, against NumPy and against brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.possible_layouts import MOST, layouts
from tests.inference.two_sides import arranged, text_of_layout

LENGTHS = st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4)


def numbered(shape: Shape) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


@pytest.mark.parametrize(
    ("shape_in", "shape_out", "stacked", "texts"),
    [
        ((9, 9), (9, 9), 0, ["x", "x.T"]),
        ((5, 9), (9, 5), 0, ["x.T"]),
        ((5, 9), (9, 5, 1), 0, ["rearrange(x, 'a b -> b a 1')"]),
        ((1, 5, 1), (1, 5, 1), 0, ["x"]),
        ((20, 7), (7, 4, 5), 0, ["rearrange(x, '(h d) a -> a h d', h=4)"]),
        ((20, 7), (4, 7, 5), 0, ["rearrange(x, '(h d) a -> h a d', h=4)"]),
        ((7, 4, 5), (20, 7), 0, ["rearrange(x, 'a b c -> (b c) a')"]),
        (
            (3, 20, 7),
            (7, 4, 3, 5),
            1,
            ["rearrange(stack(xs), 'l (h d) a -> a h l d', h=4)"],
        ),  # inside the axis
        ((3, 5), (15,), 1, ["rearrange(stack(xs), 'l a -> (l a)')", "rearrange(stack(xs), 'l a -> (a l)')"]),
        ((3, 5), (15,), 0, ["reshape(x, (15,))"]),
        ((6, 6), (4, 9), 0, []),  # neither shape has the axes of the other
        ((6,), (5,), 0, []),
        ((0, 3), (0, 3), 0, ["x"]),
        ((0, 3), (3, 0), 0, []),
    ],
)
def test_layouts(shape_in: Shape, shape_out: Shape, stacked: int, texts: list[str]) -> None:
    possible = layouts(shape_in, shape_out, stacked)
    assert [text_of_layout(layout, stacked) for layout in possible] == texts


@given(LENGTHS, st.permutations(range(4)), st.integers(0, 3), st.integers(0, 2))
def test_each_layout_makes_the_shape(lengths: list[int], order: list[int], join: int, stacked: int) -> None:
    shape_in = tuple(lengths)
    moved = [lengths[axis] for axis in order if axis < len(lengths)]
    shape_out = (*moved[:join], math.prod(moved[join : join + 2]), *moved[join + 2 :])
    for one, other in ((shape_in, shape_out), (shape_out, shape_in)):
        effects = set()
        for layout in layouts(one, other, min(stacked, len(one))):
            assert (layout.shape_in, layout.shape_out) == (one, other)
            array = arranged(layout, numbered(one))
            assert array.shape == other
            effects.add(array.tobytes())
        assert len(effects) == len(layouts(one, other, min(stacked, len(one))))


@given(LENGTHS, st.permutations(range(4)))
def test_no_order_of_whole_axes_is_missed(lengths: list[int], order: list[int]) -> None:
    shape_in = tuple(lengths)
    shape_out = tuple(lengths[axis] for axis in order if axis < len(lengths))
    x = numbered(shape_in)
    wanted = {
        x.transpose(axes).tobytes()
        for axes in itertools.permutations(range(len(lengths)))
        if x.transpose(axes).shape == shape_out
    }
    assert wanted <= {arranged(layout, x).tobytes() for layout in layouts(shape_in, shape_out)}


def test_the_number_of_layouts_is_bounded() -> None:
    assert len(layouts((2,) * 12, (2,) * 12)) == MOST
