"""Sums of hashes: what they do not tell apart, what they do, and how they add up."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named, kind
from ckpt_surgery.inference.values import fingerprints as module
from ckpt_surgery.inference.values.fingerprints import fingerprints, hashes, joined
from tests.inference.two_sides import assert_equal, fingerprint, normal
from tests.support.arrays import ALL_DTYPES, array
from tests.support.strategies import shapes

BF16, F8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
F16, F32, F64 = (np.dtype(name) for name in ("float16", "float32", "float64"))
SHAPES = shapes(4, max_ndim=3)
DTYPES = st.sampled_from(ALL_DTYPES)
WORD = (1 << 64) - 1
NARROW = [dtype for dtype in ALL_DTYPES if dtype not in ("uint64", "float64", "complex128")]
WIDEST = {"f": "float64", "i": "int64", "u": "int64", "b": "int64", "c": "complex128"}
"""By the kind of a dtype, one that holds all values of `NARROW`."""


def finalizer(word: int) -> int:
    """fmix64 of MurmurHash3, in whole numbers."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ word >> 33) * factor & WORD
    return word ^ word >> 33


def test_the_hash_of_a_value() -> None:
    assert finalizer(1) == 0xB456BCFC34C2CB2C
    assert hashes(np.array([1.0], np.float32)).tolist() == [finalizer(0x3F800000 + (0x5 << 40))]
    assert hashes(np.array([1.0, -2.5], BF16)).tolist() == hashes(np.array([1.0, -2.5], np.float32)).tolist()
    assert hashes(np.array([-1], np.int8)).tolist() == [finalizer((WORD + (0x9 << 40)) & WORD)]
    assert hashes(np.array([7], np.uint8)).tolist() == hashes(np.array([7], np.int64)).tolist()
    assert hashes(np.array([True])).tolist() == hashes(np.array([1], np.int32)).tolist()
    assert hashes(np.array([1.0], np.float32))[0] != hashes(np.array([1], np.int32))[0]
    assert hashes(np.array([1 + 2j], np.complex64))[0] != hashes(np.array([2 + 1j], np.complex64))[0]
    assert hashes(np.array([0.0], np.float32))[0] != hashes(np.array([-0.0], np.float32))[0]


@given(shape=SHAPES, dtype=DTYPES)
def test_sums_of_slices_are_the_totals_of_the_slices(shape: tuple[int, ...], dtype: str) -> None:
    values = array(shape, dtype)
    whole = fingerprint(values)
    assert whole.shape == shape
    assert whole.size == values.size
    for axis, length in enumerate(shape):
        slices = [fingerprint(values.take(i, axis)).total for i in range(length)]
        assert list(whole.axes[axis]) == slices
        assert sum(slices) & WORD == whole.total


@given(shape=SHAPES, dtype=DTYPES, data=st.data())
def test_the_shape_of_the_blocks_changes_nothing(shape: tuple[int, ...], dtype: str, data: Any) -> None:
    values = array(shape, dtype)
    block = [data.draw(st.integers(1, max(1, n))) for n in shape]
    assert_equal(fingerprint(values, block), fingerprint(values))


@pytest.mark.parametrize("piece", [1, 5, 24, 1000])
def test_the_size_of_the_pieces_changes_nothing(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = normal(5, 4, 6)
    wanted = fingerprint(values)
    monkeypatch.setattr(module, "PIECE", piece)
    assert_equal(fingerprint(values), wanted)
    assert_equal(fingerprint(values, (2, 3, 4)), wanted)
    assert_equal(fingerprint(values.T), fingerprint(np.ascontiguousarray(values.T)))


@given(shape=SHAPES, dtype=DTYPES, count=st.integers(1, 4))
def test_a_stack_has_the_joined_sums(shape: tuple[int, ...], dtype: str, count: int) -> None:
    arrays = [array(shape, dtype, seed) for seed in range(count)]
    assert_equal(joined((count,), [fingerprint(one) for one in arrays]), fingerprint(np.stack(arrays)))


@given(shape=SHAPES, narrow=st.sampled_from(NARROW))
def test_widening_is_invisible(shape: tuple[int, ...], narrow: str) -> None:
    wide = WIDEST[kind(dtype_named(narrow))]
    values = array(shape, narrow)
    assert_equal(fingerprint(values.astype(wide)), fingerprint(values))


@given(
    shape=SHAPES,
    dtypes=st.sampled_from([(F32, BF16), (F32, F16), (F16, BF16), (F64, F32), (F64, BF16), (F32, F8)]),
    data=st.data(),
)
def test_rounding_is_the_cast(shape: tuple[int, ...], dtypes: Any, data: Any) -> None:
    wide, narrow = dtypes
    values = normal(*shape, dtype=wide)
    block = [data.draw(st.integers(1, max(1, n))) for n in shape]
    assert_equal(fingerprint(values, block, narrow), fingerprint(values.astype(narrow)))


LIMITS = [
    ([1, 2, -3], "int8", -3.0, 2.0),
    ([3, 3], "uint4", 3.0, 3.0),
    ([-1.5, 0.25], "bfloat16", -1.5, 0.25),
    ([-0.5, -2.0, -1.0], "float16", -2.0, -0.5),
    ([-0.5, 65504], "float16", -0.5, 65504.0),
    ([1.5], "float64", 1.5, 1.5),
    ([True, True], "bool", 1.0, 1.0),
    ([1.0, np.nan], "float32", None, None),
    ([1.0, np.inf], "bfloat16", None, None),
    ([1 + 1j], "complex64", None, None),  # not ordered
    ([], "float32", None, None),
]


@pytest.mark.parametrize(("values", "dtype", "low", "high"), LIMITS)
def test_limits(values: list[Any], dtype: str, low: float | None, high: float | None) -> None:
    known = fingerprint(np.array(values).astype(dtype_named(dtype)))
    assert known.limits == (None if low is None else (low, high))
    assert known.constant == (low is not None and low == high)


COMMON = [
    (F32, [BF16, F16, F32, F64, np.dtype(np.int32)], [BF16, F16]),
    (BF16, [F32, F16, F8], [F16, F8]),  # no wider one; float16 is as wide
    (F64, [F32], [F32]),
    (np.dtype(np.int32), [F32, np.dtype(np.int8)], []),  # integers are not rounded
]


@pytest.mark.parametrize(("own", "dtypes", "wanted"), COMMON, ids=str)
def test_dtypes_that_values_are_rounded_to(own: Any, dtypes: list[Any], wanted: list[Any]) -> None:
    known = fingerprints(lambda region: np.zeros(2, own)[region.slices], ArraySpec((2,), own), (2,), dtypes)
    assert list(known) == [own, *wanted]
