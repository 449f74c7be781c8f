"""Rounding once to the floating types of ml_dtypes, which casts to all of them by way of float32.

What float32 does not hold would be rounded twice, and half-way cases to the wrong side. On the way it is
rounded to odd instead: cut off, and the last digit made a one wherever anything was lost. Whatever is then
rounded to nearest, to two digits fewer at least, comes out as though there had been one rounding (Boldo and
Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

import functools
import math
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.core.tiles import tile_shape

DType = np.dtype[Any]

_POWERS = "float8_e8m0fnu"
_WIDE = ("float64", "int32", "uint32", "int64", "uint64")
"""Types with values that float32 does not have."""


@functools.cache
def needs_care(source: DType, target: DType) -> bool:
    """Whether a cast between these types does not round right by itself."""
    narrow = target.name.startswith(("bfloat16", "float8_", "float6_", "float4_"))
    return narrow and source != target and (source.name in _WIDE or target.name == _POWERS)


def rounded_once(block: np.ndarray, target: DType) -> np.ndarray:
    """Real numbers as one of the floating types of ml_dtypes, laid out as they are."""
    result: np.ndarray = np.empty_like(block, target)
    for tile in chunk_regions(block.shape, tile_shape(block.shape, (block,))):
        cut: tuple[Any, ...] = (*tile.slices, ...)  # the ellipsis makes arrays even where there are no axes
        floats = _odd_float32(block[cut]) if block.dtype.name in _WIDE else block[cut].astype(np.float32)
        result[cut] = _powers_of_two(floats, target) if target.name == _POWERS else floats.astype(target)
    return result


def as_float(value: int | float, target: DType) -> float:
    """A number that is to become one of a floating or complex type: it is rounded there, and not here before.

    OverflowError where an integer is beyond what a float holds.
    """
    if not isinstance(value, int) or target.name in ("float64", "complex128"):
        return float(value)
    size = abs(value)
    lost = max(0, size.bit_length() - 53)
    kept = size >> lost
    odd = kept | (kept << lost != size)
    return math.copysign(math.ldexp(odd, lost), value)


def _odd_float32(block: np.ndarray) -> np.ndarray:
    if block.dtype.kind in "iu" and block.min() >= -(2**24) and block.max() <= 2**24:
        return block.astype(np.float32)  # which has all of these
    wide = _odd_float64(block) if block.dtype.name in ("int64", "uint64") else block.astype(np.float64)
    nearest = wide.astype(np.float32)
    return _to_odd(nearest, wide - nearest)


def _odd_float64(block: np.ndarray) -> np.ndarray:
    """64-bit integers: both halves are exact, and so is what their sum loses."""
    high = (block >> 32).astype(np.float64) * 2.0**32
    low = (block & 0xFFFFFFFF).astype(np.float64)
    nearest = high + low
    return _to_odd(nearest, low - (nearest - high))


def _to_odd(nearest: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Floats that were rounded to nearest, rounded to odd; `error` has the sign of what they lack."""
    digits = nearest.view(f"u{nearest.dtype.itemsize}")
    above, below = error > 0, error < 0
    digits -= (below & (nearest > 0)) | (above & (nearest < 0))
    digits |= above | below
    return nearest


def _powers_of_two(floats: np.ndarray, target: DType) -> np.ndarray:
    """The nearest powers of two, of two the larger (IEEE 754-2019, 4.3.1, for one digit); else NaN.

    ml_dtypes' own cast takes subnormal numbers of float32 for too large.
    """
    digits = np.minimum(floats.view(np.uint32), 0x7F800000)  # infinity, for NaN and what has a sign
    half = np.where(digits < 0x800000, 0x200000, 0x400000)  # the digits of 2**-127 begin one further down
    exponents = np.where(digits == 0, 0xFF, (digits + half) >> 23)
    return exponents.astype(np.uint8).view(target)
