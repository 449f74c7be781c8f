"""One member of what a layout makes, in the shortest words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.inference.fingerprints import Fingerprint
from ckpt_surgery.inference.layouts import Layout
from ckpt_surgery.inference.members import array_of, member
from ckpt_surgery.inference.stacks import Stack, single
from ckpt_surgery.inference.values import XS, X, around
from tests.inference.two_sides import arranged, computed, layouts, normal
from tests.support.comparing import same

NOTHING = Fingerprint((), 0, ())


@given(layout=layouts(), data=st.data())
def test_a_member_of_a_leaf(layout: Layout, data: st.DataObject) -> None:
    array = normal(*layout.shape_in)
    wanted = arranged(layout, array)
    count = data.draw(st.integers(0, wanted.ndim))
    for place in np.ndindex(wanted.shape[:count]):
        found = computed(member(layout, X, 0, place), {"x": array})
        assert same(found, np.asarray(wanted[place]))


@given(layout=layouts(most_axes=2, most_digits=3), stacked=st.integers(1, 2), data=st.data())
def test_a_member_of_a_stack(layout: Layout, stacked: int, data: st.DataObject) -> None:
    """The axes along which leaves are stacked stay, or become axes of the members."""
    cuts = ((2,), (3,))[:stacked] + layout.cuts
    order = data.draw(st.permutations(range(stacked + len(layout.order))))
    joins = data.draw(st.sampled_from([(1,) * len(order), (1,) * stacked + layout.joins]))
    whole = Layout(cuts, tuple(order), joins)
    array = normal(*whole.shape_in)
    wanted = arranged(whole, array)
    leaves = {str(i): part for i, part in enumerate(array.reshape(-1, *layout.shape_in))}
    count = data.draw(st.integers(0, wanted.ndim))
    for place in np.ndindex(wanted.shape[:count]):
        made = computed(member(whole, XS, stacked, place), leaves)
        assert same(made, np.asarray(wanted[place]))
        inner = around(XS, "stack(", ")")
        again = computed(member(whole, inner, stacked, place, array=True), leaves)
        assert same(again, np.asarray(wanted[place]))


ROWS = [
    (Layout(((3,), (4,)), (0, 1), (1, 1)), 0, (2,), "x[2]", "a layer of a stack"),
    (Layout(((4,), (3,)), (1, 0), (1, 1)), 0, (1,), "x[:, 1]", "a layer along the second axis"),
    (Layout(((2,), (3,), (4,)), (0, 2, 1), (1, 1, 1)), 0, (1,), "x[1].T", "transposed"),
    (Layout(((2,), (3,), (4,)), (0, 1, 2), (1, 1, 1)), 0, (1, 2), "x[1, 2]", "along two axes"),
    (Layout(((2, 3), (4,)), (0, 1, 2), (1, 1, 1)), 0, (1,), "reshape(x, (2, 3, 4))[1]", "a part of an axis"),
    (Layout(((5,), (2,), (3,)), (1, 0, 2), (1, 1, 1)), 1, (1,), "stack(xs)[:, 1]", "of each leaf a part"),
]


@pytest.mark.parametrize(
    ("layout", "stacked", "place", "wanted", "what"), ROWS, ids=[row[-1] for row in ROWS]
)
def test_words(layout: Layout, stacked: int, place: tuple[int, ...], wanted: str, what: str) -> None:
    assert str(member(layout, XS if stacked else X, stacked, place)) == wanted


def test_numbers_are_holes() -> None:
    """So that the members of one array are one rule."""
    layout = Layout(((2,), (3,), (4,)), (0, 2, 1), (1, 1, 1))
    found = [member(layout, X, 0, (i,)) for i in range(2)]
    assert [one.text for one in found] == ["x[{0}].T"] * 2
    assert [one.numbers for one in found] == [(0,), (1,)]


def test_what_a_layout_is_applied_to() -> None:
    assert array_of(single("a", NOTHING)) == X
    assert array_of(Stack(("a", "b"), (2,), (NOTHING, NOTHING))) == XS
