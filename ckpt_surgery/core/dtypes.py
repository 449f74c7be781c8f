"""Element types: their names, kinds and ranges."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.rounding import needs_care, rounded_once
from ckpt_surgery.core.text import did_you_mean

DType = np.dtype[Any]

_KINDS = {
    "b": ("bool",),
    "i": ("int2", "int4", "int8", "int16", "int32", "int64"),
    "u": ("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
    "f": (
        *("float16", "bfloat16", "float32", "float64"),
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
        *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
    ),
    "c": ("complex64", "complex128"),
}


# ml_dtypes' types say kind "V" to NumPy, so kinds are kept by name.
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}

_BOOL = np.dtype(np.bool_)


_FLOAT32 = np.dtype(np.float32)

# Untyped in ml_dtypes.
_finfo: Callable[[DType], Any] = ml_dtypes.finfo


_iinfo: Callable[[DType], Any] = ml_dtypes.iinfo


def dtype_named(name: str) -> DType:
    """The dtype of this name: NumPy's bool, integer, float and complex types and those of ml_dtypes.

    Raises FunctionError for any other name.
    """
    if name not in _KIND_OF:
        raise FunctionError(f"unknown dtype `{name}`{did_you_mean(name, _KIND_OF)}")
    return np.dtype(getattr(ml_dtypes, name, name))


@functools.cache  # NumPy puts a name together anew each time
def kind(dtype: DType) -> str:
    """`b` bool, `i` signed, `u` unsigned, `f` float or `c` complex. FunctionError for anything else."""
    if dtype.name not in _KIND_OF:
        raise FunctionError(f"arrays of dtype {dtype.name} cannot be computed with; keep or rename them")
    return _KIND_OF[dtype.name]


def is_integer(dtype: DType) -> bool:
    """Signed or unsigned; bool is not."""
    return kind(dtype) in "iu"


@functools.cache
def computation(dtype: DType) -> DType:
    """The type that arithmetic on `dtype` is done in: float32 for narrow floats, 8 bits for 2 and 4."""
    if kind(dtype) == "f":
        return dtype if dtype.name in ("float32", "float64") else _FLOAT32
    if is_integer(dtype) and bits(dtype) < 8:
        return np.dtype(np.int8 if kind(dtype) == "i" else np.uint8)
    return dtype


_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def rank(dtype: DType) -> int:
    """0 bool, 1 integers, 2 floats, 3 complex: a value moves up without loss of its nature."""
    return _RANK[kind(dtype)]


def declared_dtype_of(result: DType, dtypes: Sequence[DType]) -> DType:
    """The declared dtype of a result that is computed as `result` from inputs of these declared dtypes.

    That of the first input which is not bool, where the result is of its rank: integers divided are
    floats, a comparison is bool.
    """
    first = next((dtype for dtype in dtypes if dtype != _BOOL), result)
    return first if rank(first) == rank(result) else result


def promoted(dtypes: Sequence[DType], name: str) -> DType:
    """The type that several arrays are computed in.

    FunctionError where the result, which has the first one's dtype, would silently lose fractions or
    imaginary parts, and where no integer type holds the values of all. Bools adapt to the others.
    """
    first = next((dtype for dtype in dtypes if dtype != _BOOL), _BOOL)
    for dtype in dtypes:
        if rank(dtype) > rank(first):
            raise FunctionError(
                f"`{name}` of {first.name} and {dtype.name} would give {first.name} again",
                hint=f"Cast the {first.name} array to {dtype.name} first.",
            )
    work = np.result_type(*map(computation, dtypes))
    if rank(work) > rank(first):
        told = " and ".join(dtype.name for dtype in dtypes)
        raise FunctionError(f"`{name}`: no integer type holds both {told}", hint="Cast one of them first.")
    return work


def bits(dtype: DType) -> int:
    """Bits that carry information: 4 for int4, though ml_dtypes keeps it in a byte."""
    if kind(dtype) == "f":
        return int(_finfo(dtype).bits)
    return int(_iinfo(dtype).bits) if is_integer(dtype) else 8 * dtype.itemsize


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
    """`block` as `dtype`, by one rounding and without NumPy's warnings; itself where nothing changes."""
    with np.errstate(all="ignore"):
        if needs_care(block.dtype, dtype):
            return rounded_once(block, dtype)
        return block.astype(dtype, copy=False)
