"""Element types: one table of their names, kinds and widths, and what follows from it.

NumPy's types and those of ml_dtypes have one namespace here. The tables of the formats, which have names of
their own for these types, refer to `DTYPES`.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.core.tiles import tile_shape

DType = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type that the elements of arrays can have."""

    dtype: DType
    kind: str
    """`b` bool, `i` signed, `u` unsigned, `f` float or `c` complex; in NumPy, types of ml_dtypes have `V`."""
    bits: int
    """Bits that carry information: 4 for int4, though ml_dtypes keeps each in a byte."""


_NAMES = (
    *("bool", "int2", "int4", "int8", "int16", "int32", "int64"),
    *("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_KINDS = {"bool": "b", "int": "i", "uint": "u", "float": "f", "bfloat": "f", "complex": "c"}


ELEMENT_TYPES: Mapping[str, ElementType] = {
    name: ElementType(np.dtype(getattr(ml_dtypes, name, name)), _KINDS[stem], int(digits or 8))
    for name in _NAMES
    for stem, digits in re.findall("^([a-z]+)([0-9]*)", name)
}
"""Element types by their names."""
DTYPES: Mapping[str, DType] = {name: element_type.dtype for name, element_type in ELEMENT_TYPES.items()}
"""Dtypes by their names."""
NUMPY_NAMES: Sequence[str] = tuple(name for name in ELEMENT_TYPES if not hasattr(ml_dtypes, name))
"""Names of the types that NumPy itself has, without ml_dtypes."""

BOOL = np.dtype(np.bool_)


def dtype_named(name: str) -> DType:
    """The dtype of this name: NumPy's bool, integer, float and complex types and those of ml_dtypes.

    Raises FunctionError for any other name.
    """
    if name not in DTYPES:
        guess = did_you_mean(name, DTYPES)
        hint = None if guess else "Types are written in full, such as float32, bfloat16 and float8_e4m3fn."
        raise FunctionError(f"unknown dtype `{name}`{guess}", hint=hint)
    return DTYPES[name]


@functools.cache  # NumPy composes the name anew each time
def kind(dtype: DType) -> str:
    """`b` bool, `i` signed, `u` unsigned, `f` float or `c` complex. FunctionError for anything else."""
    element_type = ELEMENT_TYPES.get(dtype.name)
    if element_type is None:
        raise FunctionError(f"arrays of dtype {dtype.name} cannot be computed with; keep or rename them")
    return element_type.kind


def is_integer(dtype: DType) -> bool:
    """Whether a type is a signed or unsigned integer; bool is neither."""
    return kind(dtype) in "iu"


@functools.cache
def computation(dtype: DType) -> DType:
    """The type that `dtype` is computed in: float32 for narrow floats, 8 bits for integers of 2 and 4."""
    if kind(dtype) == "f" and dtype.name not in ("float32", "float64"):
        return np.dtype(np.float32)
    if is_integer(dtype) and bits(dtype) < 8:
        return np.dtype(np.int8 if kind(dtype) == "i" else np.uint8)
    return dtype


def rank(dtype: DType) -> int:
    """0 bool, 1 integers, 2 floats, 3 complex: a value of a lower rank can become one of a higher rank."""
    return {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}[kind(dtype)]


def declared_dtype_of(result: DType, dtypes: Sequence[DType]) -> DType:
    """The declared dtype of a result that is computed as `result` from inputs of these declared dtypes.

    It is the declared dtype of the first input that is not bool, if the result has the same rank; otherwise
    it is `result`, as for a quotient of integers (float) or a comparison (bool).
    """
    first = next((dtype for dtype in dtypes if dtype != BOOL), result)
    return first if rank(first) == rank(result) else result


def promoted(dtypes: Sequence[DType], name: str) -> DType:
    """The type that several arrays are computed in.

    Bools adapt to the others. Raises FunctionError where the result, which has the dtype of the first one,
    would silently lose fractions or imaginary parts, and where no integer type holds the values of all.
    """
    first = next((dtype for dtype in dtypes if dtype != BOOL), BOOL)
    for dtype in dtypes:
        if rank(dtype) > rank(first):
            why = f"`{name}` of {first.name} and {dtype.name} would give {first.name} again"
            raise FunctionError(why, hint=f"Cast the {first.name} array to {dtype.name} first.")
    work = np.result_type(*map(computation, dtypes))
    if rank(work) > rank(first):
        names = " and ".join(dtype.name for dtype in dtypes)
        raise FunctionError(f"`{name}`: no integer type holds both {names}", hint="Cast one of them first.")
    return work


def bits(dtype: DType) -> int:
    """Bits that carry information: 4 for int4. Raises FunctionError for what is not an element type."""
    kind(dtype)
    return ELEMENT_TYPES[dtype.name].bits


@functools.cache
def limits(dtype: DType) -> tuple[int | float, int | float]:
    """The smallest and largest finite value of an integer or float type."""
    number, info = (int, ml_dtypes.iinfo) if is_integer(dtype) else (float, ml_dtypes.finfo)
    return number(info(dtype).min), number(info(dtype).max)


@functools.cache
def has_nan(dtype: DType) -> bool:
    """Whether the type has a NaN."""
    return kind(dtype) == "c" or (kind(dtype) == "f" and _survives(dtype, math.nan))


@functools.cache
def has_infinity(dtype: DType) -> bool:
    """Whether the type has an infinity."""
    return kind(dtype) == "c" or (kind(dtype) == "f" and _survives(dtype, math.inf))


def _survives(dtype: DType, value: float) -> bool:
    with np.errstate(all="ignore"):
        back = np.array([value], np.float32).astype(dtype).astype(np.float32)
    return bool(np.array_equal(back, np.array([value], np.float32), equal_nan=True))


def converted(block: np.ndarray, dtype: DType) -> np.ndarray:
    """`block` as `dtype`, rounded once and without NumPy's warnings; `block` itself where nothing changes."""
    with np.errstate(all="ignore"):
        if needs_care(block.dtype, dtype):
            return rounded_once(block, dtype)
        return block.astype(dtype, copy=False)


def lost_by_cast(given: DType, wanted: DType) -> str | None:
    """Name the loss of a cast besides precision; None for none. Raises FunctionError for other types."""
    kinds = kind(given), kind(wanted)
    if kinds[1] == "b" and kinds[0] != "b":
        return "everything but whether values are zero"
    if kinds[0] == "c" and kinds[1] != "c":
        return "the imaginary part"
    return "fractions" if is_integer(wanted) and kinds[0] == "f" else None


# --- correct rounding ---------------------------------------------------------------------------------------
#
# ml_dtypes casts to all of its floating dtypes by way of float32. Values that float32 cannot represent would
# be rounded twice, and some of them to the wrong neighbour. So they are converted to float32 with rounding to
# odd: truncated, and the last bit set to one if anything was lost. If the result is then rounded to nearest,
# with at least two bits fewer, it is the same as after a single rounding (Boldo and Melquiond, "Emulation of
# FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).

_POWERS = "float8_e8m0fnu"
_WIDE = ("float64", "int32", "uint32", "int64", "uint64")
"""Names of dtypes with values that float32 cannot represent."""


@functools.cache
def needs_care(source: DType, target: DType) -> bool:
    """Whether a plain cast between these dtypes would round some values to the wrong neighbour."""
    narrow = target.name.startswith(("bfloat16", "float8_", "float6_", "float4_"))
    return narrow and source != target and (source.name in _WIDE or target.name == _POWERS)


def rounded_once(block: np.ndarray, target: DType) -> np.ndarray:
    """Real numbers rounded once to a floating dtype of ml_dtypes, with the memory layout of `block`."""
    result: np.ndarray = np.empty_like(block, target)
    for tile in chunk_regions(block.shape, tile_shape(block.shape, (block,))):
        piece, rounded = tile.taken_from(block), tile.taken_from(result)
        floats = _odd_float32(piece) if block.dtype.name in _WIDE else piece.astype(np.float32)
        rounded[...] = _powers_of_two(floats, target) if target.name == _POWERS else floats.astype(target)
    return result


def as_float(value: int | float, target: DType) -> float:
    """A number as a float that rounds to the same value of the floating or complex dtype as the number does.

    Integers that a float cannot represent are rounded to odd. Raises OverflowError for integers beyond the
    range of a float.
    """
    if not isinstance(value, int) or target.name in ("float64", "complex128"):
        return float(value)
    size = abs(value)
    lost = max(0, size.bit_length() - 53)
    odd = size >> lost | (size >> lost << lost != size)
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
    """Floats rounded to nearest, then to odd; `error` has the sign of exact minus rounded value."""
    digits = nearest.view(f"u{nearest.dtype.itemsize}")
    above, below = error > 0, error < 0
    digits -= (below & (nearest > 0)) | (above & (nearest < 0))
    digits |= above | below
    return nearest


def _powers_of_two(floats: np.ndarray, target: DType) -> np.ndarray:
    """The nearest powers of two, in a tie the larger one; NaN for zero, negative numbers, infinity and NaN.

    This is rounding to nearest for numbers of one digit (IEEE 754-2019, 4.3.1). The cast of ml_dtypes is
    wrong for subnormal numbers of float32.
    """
    digits = np.minimum(floats.view(np.uint32), 0x7F800000)  # NaN and negative numbers become infinity
    half = np.where(digits < 0x800000, 0x200000, 0x400000)  # 2**-127 is subnormal: its digit is one bit lower
    exponents = np.where(digits == 0, 0xFF, (digits + half) >> 23)
    return exponents.astype(np.uint8).view(target)
