"""Layouts inferred from sums alone."""

import re

import einops
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.inference.expressions.holders import laid, of_leaves
from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.values.marginals import MOST_LAYOUTS, Marginals, layouts_between
from tests.inference.two_sides import arranged, array_of, fingerprint, layouts, normal, text_of_layout
from tests.support.comparing import same


def between(given: np.ndarray, wanted: np.ndarray) -> list[Layout]:
    return layouts_between(Marginals(fingerprint(given)), fingerprint(wanted))


@given(layout=layouts(), dtype=st.sampled_from(["float32", "int64"]))
def test_every_layout_is_found(layout: Layout, dtype: str) -> None:
    array = (normal(*layout.shape_in) * 1000).astype(dtype)
    wanted = arranged(layout, array)
    possible = between(array, wanted)
    assert possible
    for one in possible:
        assert (one.shape_in, one.shape_out) == (array.shape, wanted.shape)
        assert same(arranged(one, array), wanted)
        assert same(array_of(laid(one, of_leaves(["x"], (), array.shape)), {"x": array}), wanted)


@given(layout=layouts(), stacked=st.integers(1, 2))
def test_every_layout_of_a_stack_is_found(layout: Layout, stacked: int) -> None:
    digits = dict(enumerate(layout.lengths)) | {-1: 2, -2: 3}
    stack = [(-1,), (-2,)][:stacked]
    whole = Layout.of([*stack, *layout.before], [*layout.after, *stack], digits)
    array = normal(*whole.shape_in)
    wanted = arranged(whole, array)
    members = array.reshape(-1, *layout.shape_in)
    for one in between(array, wanted):
        leaves = {str(i): part for i, part in enumerate(members)}
        assert same(
            array_of(laid(one, of_leaves(list(leaves), (2, 3)[:stacked], layout.shape_in)), leaves), wanted
        )
    assert between(array, wanted)


PLAIN = [
    ((4, 6), "a b -> a b", "x"),
    ((4, 6), "a b -> b a", "x.T"),
    ((4, 6), "(h c) b -> h c b", "reshape(x, (2, 2, 6))"),
    ((4, 6), "(h c) b -> b h c", "rearrange(x, '(h d) a -> a h d', h=2)"),
    ((8, 3), "(h d e) b -> (e d h) b", "rearrange(x, '(h p d) a -> (d p h) a', h=2, p=2)"),
    ((1, 4, 1), "1 b 1 -> b", "reshape(x, (4,))"),
    ((2, 3, 4), "a b c -> c b a", "x.T"),
    ((2, 3, 4), "a b c -> b a c", "rearrange(x, 'a b c -> b a c')"),
    ((), "->", "x"),
]


@pytest.mark.parametrize(("shape", "pattern", "wanted"), PLAIN)
def test_the_plainest_layout_comes_first(shape: tuple[int, ...], pattern: str, wanted: str) -> None:
    array = normal(*shape)
    result = einops.rearrange(array, pattern, **dict.fromkeys(re.findall(r"[hd](?= )", pattern), 2))
    assert text_of_layout(between(array, result)[0]) == wanted


def test_a_long_axis_of_length_one_is_no_digit() -> None:
    possible = between(normal(1, 4), normal(1, 4).reshape(4, 1, 1))
    assert possible == [Layout((4,), ((), (0,)), ((0,), (), ()))]


def test_other_values_have_no_layout() -> None:
    assert between(normal(4, 6), normal(4, 6, seed=1)) == []


def test_the_same_slices_in_another_order_have_no_layout() -> None:
    array = normal(4, 6)
    assert between(array, array[[1, 0, 2, 3]]) == []


def test_equal_slices_have_several_layouts_and_not_too_many() -> None:
    assert len(between(np.ones((4, 4)), np.ones((4, 4)))) == MOST_LAYOUTS
    symmetric = normal(3, 3) + normal(3, 3).T
    assert [text_of_layout(one) for one in between(symmetric, symmetric)] == ["x", "x.T"]


def test_an_array_of_many_digits_is_given_up_in_time() -> None:
    array = np.arange(1 << 14, dtype=np.float32).reshape((2,) * 14) % 2
    for one in between(array, array.T):
        assert one.shape_out == array.shape
