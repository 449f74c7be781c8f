"""Correct rounding to the floating dtypes of ml_dtypes, which casts to all of them by way of float32.

Values that float32 cannot represent would be rounded twice, and some of them to the wrong neighbour. So they
are converted to float32 with rounding to odd: truncated, and the last bit set to one if anything was lost.
If the result is then rounded to nearest, with at least two bits fewer, it is the same as after a single
rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
to odd", 2008).
"""

import functools
import math
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.core.tiles import tile_shape

_POWERS = "float8_e8m0fnu"
_WIDE = ("float64", "int32", "uint32", "int64", "uint64")
"""Names of dtypes with values that float32 cannot represent."""


@functools.cache
def needs_care(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether a plain cast between these dtypes would round some values to the wrong neighbour."""
    narrow = target.name.startswith(("bfloat16", "float8_", "float6_", "float4_"))
    return narrow and source != target and (source.name in _WIDE or target.name == _POWERS)


def rounded_once(block: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    """Real numbers rounded once to a floating dtype of ml_dtypes, with the memory layout of `block`."""
    result: np.ndarray = np.empty_like(block, target)
    for tile in chunk_regions(block.shape, tile_shape(block.shape, (block,))):
        piece, rounded = tile.taken_from(block), tile.taken_from(result)
        floats = _odd_float32(piece) if block.dtype.name in _WIDE else piece.astype(np.float32)
        rounded[...] = _powers_of_two(floats, target) if target.name == _POWERS else floats.astype(target)
    return result


def as_float(value: int | float, target: np.dtype[Any]) -> float:
    """A number as a float that rounds to the same value of the floating or complex dtype as the number
    itself.

    Integers that a float cannot represent are rounded to odd. Raises OverflowError for integers beyond the
    range of a float.
    """
    if not isinstance(value, int) or target.name in ("float64", "complex128"):
        return float(value)
    size = abs(value)
    lost = max(0, size.bit_length() - 53)
    kept = size >> lost
    odd = kept | (kept << lost != size)
    return math.copysign(math.ldexp(odd, lost), value)


def _odd_float32(block: np.ndarray) -> np.ndarray:
    """The values as float32, rounded to odd."""
    if block.dtype.kind in "iu" and block.min() >= -(2**24) and block.max() <= 2**24:
        return block.astype(np.float32)  # exact
    wide = _odd_float64(block) if block.dtype.name in ("int64", "uint64") else block.astype(np.float64)
    nearest = wide.astype(np.float32)
    return _to_odd(nearest, wide - nearest)


def _odd_float64(block: np.ndarray) -> np.ndarray:
    """64-bit integers as float64, rounded to odd. Both halves are exact, and so is the error of their sum."""
    high = (block >> 32).astype(np.float64) * 2.0**32
    low = (block & 0xFFFFFFFF).astype(np.float64)
    nearest = high + low
    return _to_odd(nearest, low - (nearest - high))


def _to_odd(nearest: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Floats rounded to nearest, changed to rounded to odd; `error` has the sign of exact minus rounded
    value."""
    digits = nearest.view(f"u{nearest.dtype.itemsize}")
    above, below = error > 0, error < 0
    digits -= (below & (nearest > 0)) | (above & (nearest < 0))
    digits |= above | below
    return nearest


def _powers_of_two(floats: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    """The nearest powers of two, and in a tie the larger one; NaN for zero, negative numbers, infinity and
    NaN.

    This is rounding to nearest for numbers of one digit (IEEE 754-2019, 4.3.1). The cast of ml_dtypes is
    wrong for subnormal numbers of float32.
    """
    digits = np.minimum(floats.view(np.uint32), 0x7F800000)  # NaN and negative numbers become infinity
    half = np.where(digits < 0x800000, 0x200000, 0x400000)  # 2**-127 is subnormal: its digit is one bit lower
    exponents = np.where(digits == 0, 0xFF, (digits + half) >> 23)
    return exponents.astype(np.uint8).view(target)
