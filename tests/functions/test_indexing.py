"""Subscripts and functions like `take` and `flip` against NumPy, and what they refuse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.indexing import Index, expand_dims, flip, repeat, squeeze, take, tile
from tests.support.arrays import numbers
from tests.support.calling import result_of
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import Changed, by, changed, lazy

F32 = np.dtype(np.float32)


ARRAY = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def items_of(subscript: Any) -> tuple[Any, ...]:
    """A subscript as `Index` has it."""
    items = subscript if isinstance(subscript, tuple) else (subscript,)
    return tuple((i.start, i.stop, i.step) if isinstance(i, slice) else i for i in items)


def test_subscripts_are_numpys() -> None:
    for subscript in (
        np.s_[1],
        np.s_[-1, ..., -5],
        np.s_[:, 1:3],
        np.s_[..., ::2],
        np.s_[::-1, :, 4:0:-2],
        np.s_[None, 0, :, None, -3:],
        np.s_[3:],  # nothing, but within bounds
        np.s_[2:1],
        np.s_[...],
        np.s_[:, :, :],
        np.s_[0, 0, 0],
        np.s_[..., None],
    ):
        assert same(evaluate(Index(items_of(subscript)), [ARRAY]), ARRAY[subscript])


@examples(80)
@given(st.integers(0, 6), st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6), st.integers(-3, 3))
def test_slices_are_numpys_or_out_of_bounds(
    length: int, start: int | None, stop: int | None, step: int
) -> None:
    array = np.arange(length)
    item = (start, stop, step or None)
    inside = all(
        bound is None or -length <= bound <= length - (step < 0 and bound is start) for bound in (start, stop)
    )
    if inside:
        assert same(evaluate(Index((item,)), [array]), array[slice(*item)])
    else:
        with pytest.raises(FunctionError, match=f"is out of bounds for axis 0 of length {length}"):
            evaluate(Index((item,)), [array])


def test_a_subscript_reads_only_what_it_takes() -> None:
    spec = ArraySpec((100, 100), F32)
    result = Index(((10, 90, 10), (None, None, -1)))
    assert result.needs(Region((2, 0), (4, 3)), [spec]) == [(0, Region((30, 97), (41, 100)))]


REFUSED: list[tuple[Changed, tuple[int, ...], str]] = [
    (Index((0, -6)), (3, 5), "index -6 is out of bounds for axis 1 of length 5"),
    (Index(((None, None, None), (6, None, -1))), (3, 5), "slice 6::-1 is out of bounds for axis 1"),
    (by(flip, 2), (3, 5), "`flip`: there is no axis 2"),
    (by(take, (5,), 1), (3, 5), "`take`: index 5 is out of bounds for axis 1 of length 5"),
    (by(repeat, -1, 0), (3,), "repeats should be 0 or more, not -1"),
    (by(tile, (2, 2)), (3,), "`tile`: 2 reps for an array of 1 axes"),
    (by(tile, -2), (3,), "reps should be 0 or more"),
    (by(squeeze, 0), (3, 1), "`squeeze`: axis 0 of float32[3,1] does not have length 1"),
    (by(expand_dims, 3), (3,), "`expand_dims`: there is no axis 3 in an array of 2 axes"),
]


@pytest.mark.parametrize(("function", "shape", "message"), REFUSED)
def test_what_is_refused_before_any_data(function: Changed, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        assert changed(function, lazy(shape).node).spec
    assert message in str(caught.value)


def test_subscripts_that_are_refused_for_any_array() -> None:
    with pytest.raises(FunctionError, match="can have only one"):
        Index((..., 0, ...))
    with pytest.raises(FunctionError, match="step of a slice cannot be 0"):
        Index(((None, None, 0),))


def test_layout_leaves_every_dtype_and_bit_alone() -> None:
    array = np.array([0x7FA1, 0xFFC1, 0x8000, 0x0001], np.uint16).view(numbers("bfloat16[1]").dtype)
    twice = result_of(flip, result_of(flip, array))
    assert same(twice, array)  # NaN payloads and the sign of zero included
