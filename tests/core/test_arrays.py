"""Specs, regions and chunk grids, against NumPy's own shapes and slices."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import (
    ArraySpec,
    Region,
    chunk_regions,
    covering_chunks,
    ravelled,
    unravelled,
)
from tests.support.effort import examples
from tests.support.strategies import chunk_shapes, regions, shapes


@pytest.mark.parametrize(
    ("shape", "dtype", "size", "nbytes", "text"),
    [
        ((2, 3), np.float32, 6, 24, "float32[2,3]"),
        ((), np.int64, 1, 8, "int64[]"),
        ((0, 5), np.complex64, 0, 0, "complex64[0,5]"),
        ((4,), ml_dtypes.bfloat16, 4, 8, "bfloat16[4]"),
        ((3,), ml_dtypes.int4, 3, 3, "int4[3]"),  # a byte each in memory
        ((2**40, 2**40), np.float64, 2**80, 2**83, "float64[1099511627776,1099511627776]"),
    ],
)
def test_a_spec_counts_elements_and_bytes(shape, dtype, size, nbytes, text) -> None:
    spec = ArraySpec(shape, np.dtype(dtype))
    assert (spec.ndim, spec.size, spec.nbytes, str(spec)) == (len(shape), size, nbytes, text)
    assert spec == ArraySpec(shape, np.dtype(dtype))
    assert hash(spec) == hash(ArraySpec(shape, np.dtype(dtype)))


def test_a_region_slices_as_numpy_does() -> None:
    region = Region((1, 0), (3, 4))
    assert (region.shape, region.size, region.slices) == ((2, 4), 8, (slice(1, 3), slice(0, 4)))
    assert Region.whole((5, 0)) == Region((0, 0), (5, 0))
    assert Region.whole(()).size == 1


@examples(60)
@given(data=st.data(), shape=shapes(7, 1, max_ndim=3))
def test_a_region_is_cut_out_of_a_block_that_holds_more(data: st.DataObject, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    outer = data.draw(regions(shape))
    inner = data.draw(regions(outer.shape))
    moved = Region(
        tuple(o + a for o, a in zip(outer.starts, inner.starts, strict=True)),
        tuple(o + b for o, b in zip(outer.starts, inner.stops, strict=True)),
    )
    np.testing.assert_array_equal(array[outer.slices][moved.within(outer)], array[moved.slices])


@pytest.mark.parametrize(
    ("index", "shape", "region"),
    [
        ((slice(2, 4), slice(None)), (8, 3), Region((2, 0), (4, 3))),
        ((slice(None, 2),), (8, 3), Region((0, 0), (2, 3))),  # an axis without a slice
        ((slice(6, None),), (8,), Region((6,), (8,))),
        ((), (), Region((), ())),
    ],
)
def test_slices_as_a_region(index: tuple[slice, ...], shape: tuple[int, ...], region: Region) -> None:
    assert Region.of_slices(index, shape) == region


@examples(60)
@given(data=st.data(), shape=shapes(7, max_ndim=3))
def test_two_regions_have_in_common_what_numpy_finds_in_both(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    one, other = data.draw(regions(shape)), data.draw(regions(shape))
    marks = np.zeros(shape, np.int64)
    marks[one.slices] += 1
    marks[other.slices] += 1
    expected = np.zeros(shape, np.int64)
    if (found := one.common(other)) is not None:
        expected[found.slices] = 1
        assert found.size
    assert np.array_equal(marks == 2, expected == 1)


def test_chunk_regions_are_in_c_order_and_end_with_the_array() -> None:
    assert list(chunk_regions((3, 4), (2, 3))) == [
        Region((0, 0), (2, 3)),
        Region((0, 3), (2, 4)),
        Region((2, 0), (3, 3)),
        Region((2, 3), (3, 4)),
    ]


@examples(100)
@given(data=st.data(), shape=shapes(7, max_ndim=3))
def test_chunk_regions_hold_every_element_once(data: st.DataObject, shape: tuple[int, ...]) -> None:
    chunks = data.draw(chunk_shapes(shape))
    seen = np.zeros(shape, int)
    for region in chunk_regions(shape, chunks):
        seen[region.slices] += 1
        assert all(start % chunk == 0 for start, chunk in zip(region.starts, chunks, strict=True))
        assert all(length <= chunk for length, chunk in zip(region.shape, chunks, strict=True))
    assert (seen == 1).all()


@examples(100)
@given(data=st.data(), shape=shapes(7, 1, max_ndim=3))
def test_covering_chunks_are_those_that_the_region_touches(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    chunks, region = data.draw(chunk_shapes(shape)), data.draw(regions(shape, empty=False))
    touched, wanted = np.zeros(shape, bool), np.zeros(shape, bool)
    touched[region.slices] = True
    for chunk in chunk_regions(shape, chunks):
        wanted[chunk.slices] = touched[chunk.slices].any()
    found = np.zeros(shape, bool)
    found[covering_chunks(region, shape, chunks).slices] = True
    np.testing.assert_array_equal(found, wanted)


def test_numbers_of_elements_in_c_order() -> None:
    shape = (3, 1, 4)
    indices = list(np.ndindex(shape))
    assert [ravelled(index, shape) for index in indices] == list(range(12))
    assert [unravelled(number, shape) for number in range(12)] == indices
    assert (ravelled((), ()), unravelled(0, ())) == (0, ())


def test_a_region_is_a_view_of_an_array() -> None:
    array = np.arange(12).reshape(3, 4)
    region = Region((1, 0), (3, 2))
    assert region.taken_from(array).tolist() == [[4, 5], [8, 9]]
    assert region.taken_from(array[1:], Region((1, 0), (3, 4))).tolist() == [[4, 5], [8, 9]]
    number = np.array(5)
    Region((), ()).taken_from(number)[...] = 6
    assert number == 6
