"""Expressions over leaves: what they give, in the shortest words."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.inference.expressions.holder_text import written
from ckpt_surgery.inference.expressions.holders import (
    Holder,
    after,
    cast,
    cut,
    laid,
    member,
    of_leaves,
    rows,
)
from ckpt_surgery.inference.expressions.layouts import Layout, identity, transposing
from tests.inference.two_sides import arranged, array_of, layouts, normal, text_of
from tests.support.comparing import same


@given(layout=layouts(), data=st.data())
def test_a_member_of_a_leaf(layout: Layout, data: st.DataObject) -> None:
    array = normal(*layout.shape_in)
    wanted = arranged(layout, array)
    count = data.draw(st.integers(0, wanted.ndim))
    for place in np.ndindex(wanted.shape[:count]):
        piece = array_of(member(layout, of_leaves(["a"], (), array.shape), place), {"a": array})
        assert same(piece, np.asarray(wanted[place]))


@given(layout=layouts(most_axes=2, most_digits=3), stacked=st.integers(1, 2), data=st.data())
def test_a_member_of_a_stack(layout: Layout, stacked: int, data: st.DataObject) -> None:
    """The axes along which leaves are stacked stay, or become axes of the members."""
    lengths = (2, 3)[:stacked]
    digits = dict(enumerate(layout.lengths)) | {-1 - n: length for n, length in enumerate(lengths)}
    before = [*([-1 - n] for n in range(stacked)), *layout.before]
    apart = [[digit] for digit in data.draw(st.permutations(list(digits)))]
    after = data.draw(st.sampled_from([apart, [*before[:stacked], *layout.after]]))
    whole = Layout.of(before, after, digits)
    array = normal(*whole.shape_in)
    wanted = arranged(whole, array)
    leaves = {str(i): part for i, part in enumerate(array.reshape(-1, *layout.shape_in))}
    count = data.draw(st.integers(0, wanted.ndim))
    for place in np.ndindex(wanted.shape[:count]):
        piece = array_of(member(whole, of_leaves(list(leaves), lengths, layout.shape_in), place), leaves)
        assert same(piece, np.asarray(wanted[place]))


A = of_leaves(["a"], (), (4, 6))
BF16 = np.dtype(ml_dtypes.bfloat16)
IN_TWO = ((0, 1), (2,))
MEMBERS = [
    (identity((3, 4)), (2,), "x[2]"),
    (transposing((4, 3), (1, 0)), (1,), "x[:, 1]"),
    (transposing((2, 3, 4), (0, 2, 1)), (1,), "x[1].T"),
    (identity((2, 3, 4)), (1, 2), "x[1, 2]"),
    (Layout((2, 3, 4), IN_TWO, ((0,), (1,), (2,))), (1,), "x[3:]"),
    (Layout((2, 3, 4), IN_TWO, ((1,), (0,), (2,))), (1,), "rearrange(x, '(h d) a -> d h a', h=2)[1]"),
]


@pytest.mark.parametrize(("layout", "place", "wanted"), MEMBERS, ids=[row[-1] for row in MEMBERS])
def test_words_of_members(layout: Layout, place: tuple[int, ...], wanted: str) -> None:
    leaf = of_leaves(["a"], (), layout.shape_in)
    assert text_of(member(layout, leaf, place)) == wanted


STACK = of_leaves(["a", "b", "c"], (3,), (4, 6))
WORDS: list[tuple[Holder, str]] = [
    (cut(rows((4, 6), 1, 0, 2), A), "x[:, :2]"),
    (cut(rows((4, 6), 0, 1, 3), A), "x[1:3]"),
    (cast(A, BF16), "cast(x, 'bfloat16')"),
    (after(" + 1.0", cut(rows((4, 6), 0, 2, 4), A)), "x[2:] + 1.0"),
    (cut(rows((4, 6), 0, 2, 4), after(" + 1.0", A)), "x[2:] + 1.0"),
    (STACK, "stack(xs)"),
    (of_leaves(["a"], (1,), (4, 6)), "stack(xs)"),
    (of_leaves(["a", "b"], (1, 2), (6,)), "rearrange(stack(xs), 'l a -> 1 l a')"),
    (cut(rows((3, 4, 6), 1, 1, 2), STACK), "stack(xs)[:, 1:2]"),
    (cut(rows((3, 4, 6), 0, 1, 3), STACK), "stack(xs)[1:]"),
    (member(identity((3, 4, 6)), STACK, (1,)), "stack(xs)[1]"),
    (member(transposing((3, 4, 6), (1, 0, 2)), STACK, (1,)), "stack(xs)[:, 1]"),
]


@pytest.mark.parametrize(("holder", "wanted"), WORDS)
def test_words(holder: Holder, wanted: str) -> None:
    assert text_of(holder) == wanted


def test_numbers_are_holes() -> None:
    """So that the members of one array are one rule; at the ends of an axis they are left out at last."""
    layout = Layout((2, 3, 4), IN_TWO, ((0,), (2,), (1,)))
    values = [written(member(layout, of_leaves(["a"], (), (6, 4)), (i,)))[1] for i in range(2)]
    assert [one.text for one in values] == ["x[{0}:{1}].T"] * 2
    assert [one.numbers for one in values] == [(0, 3), (3, 6)]
    assert [str(one) for one in values] == ["x[:3].T", "x[3:].T"]


def test_a_layout_of_nothing() -> None:
    empty = of_leaves(["a", "b"], (2, 1), (0, 3))
    array = np.zeros((0, 3), np.float32)
    turned = laid(transposing((2, 1, 0, 3), (0, 1, 3, 2)), empty)
    assert array_of(turned, {"a": array, "b": array}).shape == (2, 1, 3, 0)
