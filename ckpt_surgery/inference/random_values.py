"""Random values of leaves, of which any region can be had alone: nothing is kept, whatever the size."""

import hashlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, converted, is_integer, kind, limits

_finfo: Callable[[DType], Any] = ml_dtypes.finfo
_LARGEST_INTEGER = 63
"""Small enough for sums and products of the usual recipes to stay in the range of 16 bits."""


def random_region(name: str, spec: ArraySpec, region: Region) -> np.ndarray:
    """A region of an array of random values, which follow from `name` and from where they are alone.

    Floats are between 1/16 and 16, of either sign, and integers between 1 and 63, as far as the dtype has
    them; none is 0.
    """
    bits = _mixed(_places(spec, region) + _seed(name))
    if kind(spec.dtype) == "b":
        return np.asarray(bits & np.uint64(1)).astype(np.bool_)
    if is_integer(spec.dtype):
        return _integers(bits, spec)
    values = _floats(bits)
    if kind(spec.dtype) == "c":
        return np.asarray(values + 1j * _floats(_mixed(bits))).astype(spec.dtype)
    sizes = np.clip(np.abs(values), float(_finfo(spec.dtype).smallest_subnormal), limits(spec.dtype)[1])
    if spec.dtype.name != "float8_e8m0fnu":  # which has no sign
        sizes = np.copysign(sizes, values)
    return converted(np.asarray(sizes), spec.dtype)


def _integers(bits: np.ndarray, spec: ArraySpec) -> np.ndarray:
    low, high = limits(spec.dtype)
    size = np.uint64(min(_LARGEST_INTEGER, int(high)))
    values = (bits % size).astype(np.int64) + 1
    if low < 0:
        values = np.where(bits >> np.uint64(63), -values, values)
    return values.astype(spec.dtype)


def _floats(bits: np.ndarray) -> np.ndarray:
    """Floats of random sign and mantissa, and of 8 exponents."""
    mantissa = 1 + (bits & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32
    exponent = ((bits >> np.uint64(32)) & np.uint64(7)).astype(np.int64) - 4
    sign = np.where(bits >> np.uint64(63), -1.0, 1.0)
    return np.ldexp(mantissa * sign, exponent)


def _places(spec: ArraySpec, region: Region) -> np.ndarray:
    """The index of each element of a region in the flattened array, as uint64."""
    found = np.zeros((), np.uint64)
    for start, stop, length in zip(region.starts, region.stops, spec.shape, strict=True):
        along = np.arange(start, stop, dtype=np.uint64)
        found = found[..., np.newaxis] * np.uint64(length) + along
    return found


def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers that look random, one for each number: the output function of SplitMix64.

    Source: Steele, Lea and Flood, OOPSLA 2014.
    """
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
