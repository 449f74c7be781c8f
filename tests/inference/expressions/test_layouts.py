"""Layouts of elements: each is found from sums alone, and its expression does what it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.inference.expressions.layouts import (
    MOST,
    Layout,
    composed,
    identity,
    reshaping,
    restricted,
    stacked,
)
from ckpt_surgery.inference.expressions.layouts import layouts as layouts_of_shapes
from ckpt_surgery.inference.expressions.source_expressions import indexed, laid, of_leaves
from ckpt_surgery.inference.values.pieces import MOST_LAYOUTS, layouts_between
from tests.inference.two_sides import arranged, array_of, fingerprint, layouts, normal, text_of_layout
from tests.support.comparing import same


def between(given: np.ndarray, wanted: np.ndarray) -> list[Layout]:
    return layouts_between(fingerprint(given), fingerprint(wanted))


@given(layout=layouts(), stacked=st.integers(0, 2), dtype=st.sampled_from(["float32", "int64"]))
def test_every_layout_is_found(layout: Layout, stacked: int, dtype: str) -> None:
    """Of a leaf, and of leaves that are stacked along one axis or two, which come last."""
    lengths = (2, 3)[:stacked]
    digits = dict(enumerate(layout.lengths)) | {-1: 2, -2: 3}
    stack = [(-1,), (-2,)][:stacked]
    whole = Layout.of([*stack, *layout.before], [*layout.after, *stack], digits)
    array = (normal(*whole.shape_in) * 1000).astype(dtype)
    wanted = arranged(whole, array)
    leaves = {str(i): part for i, part in enumerate(array.reshape(-1, *layout.shape_in))}
    possible = between(array, wanted)
    assert possible
    for one in possible:
        assert (one.shape_in, one.shape_out) == (array.shape, wanted.shape)
        assert same(arranged(one, array), wanted)
        assert same(array_of(laid(one, of_leaves(list(leaves), lengths, layout.shape_in)), leaves), wanted)


@given(layout=layouts(), data=st.data())
def test_a_member_of_a_leaf(layout: Layout, data: st.DataObject) -> None:
    array = normal(*layout.shape_in)
    wanted = arranged(layout, array)
    count = data.draw(st.integers(0, wanted.ndim))
    for place in np.ndindex(wanted.shape[:count]):
        piece = array_of(indexed(laid(layout, of_leaves(["a"], (), array.shape)), place), {"a": array})
        assert same(piece, np.asarray(wanted[place]))


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 1, 2, 2]])
def test_other_values_have_no_layout(order: list[int]) -> None:
    array = normal(4, 6)
    assert between(array, array[order]) == []


def test_equal_slices_have_several_layouts_and_not_too_many() -> None:
    assert len(between(np.ones((4, 4)), np.ones((4, 4)))) == MOST_LAYOUTS
    symmetric = normal(3, 3) + normal(3, 3).T
    assert [text_of_layout(one) for one in between(symmetric, symmetric)] == ["x", "x.T"]
    assert len(layouts_of_shapes((2,) * 12, (2,) * 12)) == MOST


def test_axes_that_are_cut_across_each_other_have_no_layout() -> None:
    assert reshaping((2, 3), (3, 2)) is None
    assert reshaping((0, 2), (2, 0)) is None
    assert layouts_of_shapes((0, 3), (3, 0)) == []
    assert layouts_of_shapes((0, 3), (0, 3)) == [identity((0, 3))]
    assert composed(identity((6,)), identity((6,))) == identity((6,))
    turned = Layout((2, 3), ((0, 1),), ((1, 0),))
    assert composed(turned, turned) is None


def test_a_part_of_every_second_element_is_no_region() -> None:
    split = reshaping((6,), (3, 2))
    assert split is not None
    assert restricted(split, Region((0, 0), (3, 1))) is None
    assert restricted(split, Region((1, 0), (3, 2))) == (Region((2,), (6,)), reshaping((4,), (2, 2)))
    joined = reshaping((2, 3), (6,))
    assert joined is not None
    assert restricted(joined, Region((1,), (5,))) is None


def test_each_of_a_stack() -> None:
    arrays = np.arange(72).reshape(3, 4, 6)
    each = stacked(Layout((4, 6), ((0,), (1,)), ((1,), (0,))), 3)
    assert np.array_equal(arranged(each, arrays), arrays.transpose(0, 2, 1))


def test_a_layout_has_as_few_digits_as_possible() -> None:
    """Digits of length 1 are none, and neighbours in the input and in the result are one."""
    layout = Layout.of(["abc", "d"], ["d", "ac", "b"], {"a": 2, "b": 1, "c": 3, "d": 4})
    assert layout == Layout((6, 4), ((0,), (1,)), ((1,), (0,), ()))
