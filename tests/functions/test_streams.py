"""Blocks of arrays, and the passes over them: what is found depends on the array's values and shape alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.functions import streams
from ckpt_surgery.functions.reductions import Extreme, Mean, Norm, Sum
from ckpt_surgery.functions.streams import block_shape, blocks_of
from tests.support.comparing import same
from tests.support.evaluation import evaluate, spec_of
from tests.support.strategies import shapes


def test_blocks_follow_from_the_shape() -> None:
    for shape, blocks in (
        ((), ()),
        ((5,), (5,)),
        ((1 << 22,), (1 << 16,)),
        ((4096, 11008), (256, 256)),
        ((100_000, 40), (1024, 40)),
        ((3, 1 << 24), (3, 1 << 14)),  # the last axis makes up for the short one
        ((64, 4096, 4096), (1, 256, 256)),
        ((0, 7), (1, 7)),
    ):
        assert block_shape(shape) == blocks


@given(shape=shapes(9, 0, 0, 4), most=st.integers(1, 64))
def test_blocks_are_disjoint_and_together_everything(shape: Shape, most: int) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", most)
        found = list(blocks_of(array, Region.whole(shape), shape))
        assert [number for number, _, _ in found] == list(range(len(found)))
        assert all(elements.size <= most and elements.flags.c_contiguous for _, _, elements in found)
        for _, region, elements in found:
            assert np.array_equal(elements, array[(..., *region.slices)].ravel())
    assert sorted(np.concatenate([np.zeros(0, int), *(e for *_, e in found)])) == list(range(array.size))


@given(data=st.data(), shape=shapes(20, 1, 1, 3))
def test_numbers_of_blocks_are_the_same_in_every_piece(data: st.DataObject, shape: Shape) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", 16)
        whole = {number: region for number, region, _ in blocks_of(array, Region.whole(shape), shape)}
        piece = tuple(data.draw(st.integers(1, 3)) * n for n in block_shape(shape))
        parts = {}
        for region in chunk_regions(shape, piece):
            parts |= {n: part for n, part, _ in blocks_of(array[region.slices], region, shape)}
    assert parts == whole


def test_floats_are_added_in_float64_and_rounded_once() -> None:
    array = np.full((3, 1 << 20), 0.1, np.float32)
    assert evaluate(Sum(), [array]) == np.float32(np.float64(np.float32(0.1)) * array.size)
    assert evaluate(Mean(), [array]) == np.float32(0.1)
    large = np.full(4, 1e30, np.float32)  # whose squares are beyond float32
    assert evaluate(Norm(), [large]) == np.float32(2e30)


@pytest.mark.parametrize("order", [1, 2, "inf"])
@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "int16"])
def test_norms_over_many_blocks_are_numpys(order: int | str, name: str) -> None:
    array = (np.random.default_rng(5).normal(size=(1037, 2111)) * 100).astype(name)
    found = evaluate(Norm(ord=order), [array])
    wide = array.astype(np.complex128 if name == "complex64" else np.float64).ravel()
    expected = np.linalg.norm(wide, np.inf if order == "inf" else order)
    np.testing.assert_allclose(found, expected, rtol=2e-7 if found.dtype == np.float32 else 1e-13)


def test_extremes_over_many_blocks_and_nan() -> None:
    array = np.random.default_rng(6).normal(size=(1037, 2111)).astype(np.float32)
    assert evaluate(Extreme(), [array]) == array.max()
    assert evaluate(Extreme(None, True, "min"), [array]).tolist() == [[array.min()]]
    array[1030, 7] = np.nan
    assert np.isnan(evaluate(Extreme(), [array]))
    assert np.isnan(evaluate(Extreme(op="min"), [array]))


@given(seed=st.integers(0, 2**32), blocks=st.integers(1, 9))
def test_the_order_in_which_blocks_are_noted_makes_no_difference(seed: int, blocks: int) -> None:
    array = np.random.default_rng(seed).normal(size=blocks * 8).astype(np.float32) * 1e8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", 8)
        expected = evaluate(Sum(), [array])
        made = Sum().stream([spec_of(array)])
        assert made is not None
        found = list(blocks_of(array, Region.whole(array.shape), array.shape))
        for i in np.random.default_rng(seed + 1).permutation(blocks):
            number, region, elements = found[i]
            made.note(number, made.seen(elements, region))
    result = made.finish()
    assert isinstance(result, np.ndarray)
    assert same(result, expected)
