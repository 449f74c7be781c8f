"""Masks against stable sorts and a Philox written from its paper; the same for any part of an array."""

import hashlib
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions import streams
from ckpt_surgery.functions.base import Function, LeafKey
from ckpt_surgery.functions.masks import (
    KthMagnitude,
    LargestMask,
    RandomMask,
    fractions,
    magnitudes,
    random_mask,
    top_share_mask,
    words,
)
from tests.support.calling import result_of
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import lazy
from tests.support.strategies import regions, shapes


def topk(array: np.ndarray, k: int, region: Region | None = None) -> np.ndarray:
    return evaluate(LargestMask(), [array, evaluate(KthMagnitude(k), [array])], region)


def by_sorting(array: np.ndarray, k: int) -> np.ndarray:
    """The mask from a stable sort of all magnitudes."""
    wide = array.astype(object if array.dtype.kind in "iu" else np.float64).ravel()
    order = np.argsort(-np.array([abs(value) for value in wide]), kind="stable")
    mask = np.zeros(array.size, bool)
    mask[order[:k]] = True
    return mask.reshape(array.shape)


NAMES = ["float32", "float64", "bfloat16", "float16", "float8_e4m3fn", "int8", "int64", "uint8", "int4"]


@pytest.mark.parametrize("name", NAMES)
@examples(15)
@given(
    shape=shapes(7, 1, 0, 3), k=st.integers(0, 99), seed=st.integers(0, 99), few=st.booleans(), data=st.data()
)
def test_the_largest_are_those_of_a_stable_sort(
    name: str, shape: Shape, k: int, seed: int, few: bool, data: st.DataObject
) -> None:
    dtype = dtype_named(name)
    numbers = np.random.default_rng(seed).normal(size=shape) * (2 if few else 5)
    array = np.asarray(np.abs(numbers) if name == "uint8" else numbers).astype(np.float32).astype(dtype)
    if few:  # full of ties
        array = np.asarray(array.astype(np.int8).astype(dtype))
    k = min(k, array.size)
    expected = by_sorting(array, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", 16)
        patch.setattr(streams, "ROW", 4)
        assert np.array_equal(topk(array, k), expected)
        region = data.draw(regions(shape))
        assert np.array_equal(topk(array, k, region), expected[region.slices])


def test_a_share_is_of_the_elements_that_are_not_0() -> None:
    for values, share, wanted in (
        ([0, 3, -0.0, -2, 1, 0, 5], 0.5, [6, 1]),  # 2 of 4
        ([0, 3, 0, -2, 1, 0, 5], 0.24, []),
        ([0, 3, 0, -2, 1, 0, 5], 1, [6, 1, 3, 4]),
        ([0, 2, 0, 2, 2], 0.7, [1, 3]),  # of equal ones, the first
        ([0, 1e-45, 0], 1, [1]),
        ([0, 0], 1, []),
        ([1, np.nan], 0.5, [1]),
    ):
        array = np.array(values, np.float32)
        for shaped in (array, array[:, None], array.astype(np.float64)):
            mask = evaluate(LargestMask(), [shaped, evaluate(KthMagnitude(None, share), [shaped])])
            assert np.nonzero(mask.ravel())[0].tolist() == sorted(wanted)


def test_ties_far_apart_are_taken_in_the_order_of_c() -> None:
    """More elements than one digit of an index can tell, in blocks that are no rows."""
    array = np.ones((700, 900), np.float32)
    array[::7] = 0.5
    ones = int((array == 1).sum())
    order = np.argsort(-array.ravel(), kind="stable")
    for k in (1, 70_000, ones - 1, ones, ones + 65_537, array.size):
        mask = np.zeros(array.size, bool)
        mask[order[:k]] = True
        assert np.array_equal(topk(array, k), mask.reshape(array.shape))


def test_extreme_magnitudes() -> None:
    for values, dtype, order in (
        ([1.0, -np.inf, np.nan, -2.0, 0.0, -0.0], np.float32, [2, 1, 3, 0, 4, 5]),  # both zeros are equal
        ([-128, 127, 0, -1], np.int8, [0, 1, 3, 2]),
        ([-(2**63), 2**63 - 1, -5], np.int64, [0, 1, 2]),
        ([1, 1 + 2**-20], np.float32, [1, 0]),
        ([1, 1 + 2**-20], ml_dtypes.bfloat16, [0, 1]),  # as computed in float32, from what is stored
        ([2**64 - 1, 2**63, 1], np.uint64, [0, 1, 2]),
    ):
        array = np.array(values, dtype)
        found = magnitudes(array)
        assert np.argsort(np.array([-int(n) for n in found]), kind="stable").tolist() == order
        for k in range(len(values) + 1):
            assert np.nonzero(topk(array, k))[0].tolist() == sorted(order[:k])


def rounds(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10, from figure 2 and table 2 of the paper."""
    mask = 2**64 - 1
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [(b >> 64) ^ counter[1] ^ key[0], b & mask, (a >> 64) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    return counter


def test_the_generator_is_that_of_the_paper() -> None:
    zero = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert rounds([0, 0, 0, 0], [0, 0]) == zero  # the first of the test vectors of Random123
    key = np.array([2**64 - 2, 12345], np.uint64)
    for start, count in [(0, 1), (0, 9), (3, 6), (4, 4), (4 * (2**40 + 1) + 2, 3)]:
        expected = [rounds([i // 4, 0, 0, 0], [2**64 - 2, 12345])[i % 4] for i in range(start, start + count)]
        assert words(start, count, key).tolist() == expected


@examples(60)
@given(data=st.data(), shape=shapes(12, 1, 0, 4), run=st.sampled_from([1, 8, 4096]))
def test_any_part_has_the_numbers_of_the_whole(data: st.DataObject, shape: Shape, run: int) -> None:
    key = np.array([1, 2], np.uint64)
    whole = (words(0, math.prod(shape), key).reshape(shape) >> np.uint64(11)) * 2.0**-53
    region = data.draw(regions(shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ckpt_surgery.functions.masks.SHORT_RUN", run)
        assert same(fractions(region, shape, key), whole[region.slices])


def test_a_mask_is_what_its_description_says() -> None:
    x = np.zeros((7, 11), np.float32)
    key = np.frombuffer(hashlib.sha256(b"5/2/layers/w").digest()[:16], "<u8").tolist()
    numbers = [rounds([i // 4, 0, 0, 0], key)[i % 4] >> 11 for i in range(x.size)]
    expected = np.array([n / 2**53 < 0.3 for n in numbers]).reshape(x.shape)
    assert np.array_equal(evaluate(RandomMask("layers/w", 5, 0.3, 2), [x]), expected)


def test_each_element_can_have_a_probability_of_its_own() -> None:
    x = np.zeros((4, 500), np.float32)
    p = np.array([[0], [1], [0.25], [0.75]], ml_dtypes.bfloat16)
    found = evaluate(RandomMask("a", 1), [x, p])
    parts = [evaluate(RandomMask("a", 1, float(row[0])), [x])[i] for i, row in enumerate(p)]
    assert np.array_equal(found, np.stack(parts))


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (KthMagnitude(7), ("float32[2,3]",), "`k` should be from 0 to 6, not 7, for float32[2,3]"),
    (KthMagnitude(-1), ("float32[2,3]",), "`k` should be from 0 to 6, not -1"),
    (KthMagnitude(1), ("bool[2,3]",), "`topk_mask` needs integers or floats, not bool[2,3]"),
    (KthMagnitude(None, 1), ("bool[2,3]",), "`top_share_mask` needs integers or floats, not bool[2,3]"),
    (KthMagnitude(1), ("complex64[2]",), "`topk_mask` needs integers or floats, not complex64[2]"),
    (RandomMask("a", 1), ("float32[2,3]", "float32[2]"), "of float32[2,3] cannot be float32[2]"),
    (RandomMask("a", 1), ("float32[3]", "float32[1,3]"), "of float32[3] cannot be float32[1,3]"),
    (RandomMask("a", 1), ("float32[3]", "int8[3]"), "probabilities of float32[3] cannot be int8[3]"),
]


def test_shares_and_probabilities_are_from_0_to_1() -> None:
    with pytest.raises(FunctionError, match=r"`share` should be from 0 to 1, not 1\.5"):
        top_share_mask(lazy(), 1.5)
    with pytest.raises(FunctionError, match=r"`p` should be from 0 to 1, not 1\.5"):
        RandomMask("a", 1, 1.5)


def test_a_random_mask_takes_the_key_of_the_leaf() -> None:
    x, p = np.zeros((4, 50), np.float32), np.full((4, 1), 0.5, np.float32)
    wanted = evaluate(RandomMask("a", 1, 0.5, 2), [x])
    key = LeafKey("a")
    assert np.array_equal(result_of(random_mask, x, p=0.5, seed=1, model=2, leaf_key=key), wanted)
    assert np.array_equal(result_of(random_mask, x, p, seed=1, model=2, leaf_key=key), wanted)
