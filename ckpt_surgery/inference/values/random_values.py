"""Random values of leaves, of which any region can be had alone: nothing is kept, whatever the size."""

import hashlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, converted, is_integer, kind, limits
from ckpt_surgery.functions.masks import fractions

_finfo: Callable[[DType], Any] = ml_dtypes.finfo
_LARGEST_INTEGER = 63
"""Small enough for sums and products of the usual recipes to stay in the range of 16 bits."""


def random_region(name: str, spec: ArraySpec, region: Region) -> np.ndarray:
    """A region of an array of random values, which follow from `name` and from where they are alone.

    Floats are between 1/16 and 16, of either sign, and integers between 1 and 63, as far as the dtype has
    them; none is 0.
    """
    drawn = _fractions(name, spec, region)
    if kind(spec.dtype) == "b":
        return np.asarray(drawn < 0.5)
    if is_integer(spec.dtype):
        low, high = limits(spec.dtype)
        sizes = 1 + np.floor(2 * drawn % 1 * min(_LARGEST_INTEGER, int(high)))
        return np.asarray(np.where((drawn < 0.5) & (low < 0), -sizes, sizes)).astype(spec.dtype)
    values = _floats(drawn)
    if kind(spec.dtype) == "c":
        return np.asarray(values + 1j * _floats(_fractions(f"{name}/j", spec, region))).astype(spec.dtype)
    sizes = np.clip(np.abs(values), float(_finfo(spec.dtype).smallest_subnormal), limits(spec.dtype)[1])
    if spec.dtype.name != "float8_e8m0fnu":  # which has no sign
        sizes = np.copysign(sizes, values)
    return converted(np.asarray(sizes), spec.dtype)


def _fractions(name: str, spec: ArraySpec, region: Region) -> np.ndarray:
    key = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], "<u8").astype(np.uint64)
    return fractions(region, spec.shape, key)


def _floats(drawn: np.ndarray) -> np.ndarray:
    """Floats of random sign, of 8 exponents, and of the rest of the bits as mantissa."""
    exponents = 16 * drawn % 8
    signs = np.where(drawn < 0.5, -1.0, 1.0)
    values = np.ldexp((1 + exponents % 1) * signs, np.floor(exponents).astype(np.int64) - 4)
    return np.asarray(values)
