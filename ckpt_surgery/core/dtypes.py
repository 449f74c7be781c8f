"""Element types: one table of their names, kinds and widths, and what follows from it.

NumPy's types and those of ml_dtypes have one namespace here. The tables of the formats, which have names of
their own for these types, refer to `DTYPES`.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.rounding import needs_care, rounded_once
from ckpt_surgery.core.text import did_you_mean

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


def _element_type(name: str) -> ElementType:
    stem, digits = re.findall("([a-z]+)([0-9]*)", name)[0]
    return ElementType(np.dtype(getattr(ml_dtypes, name, name)), _KINDS[stem], int(digits or 8))


ELEMENT_TYPES: Mapping[str, ElementType] = {name: _element_type(name) for name in _NAMES}
"""Every element type by its name."""
DTYPES: Mapping[str, DType] = {name: element_type.dtype for name, element_type in ELEMENT_TYPES.items()}
"""Every dtype by its name."""
NUMPY_NAMES: Sequence[str] = tuple(name for name in ELEMENT_TYPES if not hasattr(ml_dtypes, name))
"""Names of the types that NumPy itself has, without ml_dtypes."""

BOOL = np.dtype(np.bool_)
_FLOAT32 = np.dtype(np.float32)

# ml_dtypes has no type annotations for these.
_finfo: Callable[[DType], Any] = ml_dtypes.finfo
_iinfo: Callable[[DType], Any] = ml_dtypes.iinfo


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
    if kind(dtype) == "f":
        return dtype if dtype.name in ("float32", "float64") else _FLOAT32
    if is_integer(dtype) and bits(dtype) < 8:
        return np.dtype(np.int8 if kind(dtype) == "i" else np.uint8)
    return dtype


_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def rank(dtype: DType) -> int:
    """0 bool, 1 integers, 2 floats, 3 complex: a value of a lower rank can become one of a higher rank."""
    return _RANK[kind(dtype)]


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
            raise FunctionError(
                f"`{name}` of {first.name} and {dtype.name} would give {first.name} again",
                hint=f"Cast the {first.name} array to {dtype.name} first.",
            )
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
    if is_integer(dtype):
        integers = _iinfo(dtype)
        return int(integers.min), int(integers.max)
    floats = _finfo(dtype)
    return float(floats.min), float(floats.max)


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
