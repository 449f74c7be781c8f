"""The search for NaN and infinity, for every dtype and memory order."""

import numpy as np
import pytest

from ckpt_surgery.core.digests import values_crc
from ckpt_surgery.core.dtypes import DTYPES, kind
from ckpt_surgery.functions.nonfinite import TILE, all_finite, finite, may_be_nonfinite, search_and_digest

FLOATS = sorted(name for name, dtype in DTYPES.items() if kind(dtype) in "fc")


def every_number(name: str) -> np.ndarray:
    """All numbers of a dtype of one or two bytes; special ones of wider dtypes."""
    dtype = DTYPES[name]
    if dtype.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dtype)
    if dtype.itemsize == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    info = np.finfo(dtype)
    reals = np.array(
        [0, -0.0, 1, info.max, info.min, info.smallest_subnormal, np.inf, -np.inf, np.nan], dtype
    )
    return np.concatenate([reals, reals * dtype.type(1j)]) if kind(dtype) == "c" else reals


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_every_number_is_told_apart(name: str) -> None:
    numbers = every_number(name)
    expected = np.isfinite(numbers if kind(numbers.dtype) == "c" else numbers.astype(np.float64))
    assert np.array_equal(finite(numbers), expected)
    assert may_be_nonfinite(numbers.dtype) == (not expected.all())
    few = numbers[:: max(1, numbers.size // 300)]
    assert [all_finite(few[i : i + 1]) for i in range(few.size)] == list(finite(few))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64", "float8_e5m2"])
def test_one_element_is_found_wherever_it_is(name: str) -> None:
    array = np.zeros((3, TILE + 5), np.float32).astype(DTYPES[name])
    views = [array, array.T, array[:, ::2], array[1], array[1, 0]]
    assert all(map(all_finite, views))
    for column in (0, TILE - 2, TILE + 4):
        array[1, column] = np.inf
        assert not any(map(all_finite, views[:3])), column
        for view in views:
            assert search_and_digest(view, True, True) == (all_finite(view), values_crc(view))
            assert search_and_digest(view, False, True) == (True, values_crc(view))
            assert search_and_digest(view, True, False) == (all_finite(view), None)
        array[1, column] = 0


def test_integers_have_none() -> None:
    assert all_finite(np.full(3, 0x7F80, np.int16))
    assert all_finite(np.zeros(0, np.float32))
