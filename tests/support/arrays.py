"""Arrays with values to test on."""

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from ckpt_surgery.core.dtypes import dtype_named, kind

ALL_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int2", "int4", "uint2", "uint4"),
)
"""Every type that this package computes with."""


def array(shape: Sequence[int], dtype: str, seed: int = 0) -> np.ndarray:
    """Values that are neither zero nor equal to each other, where the type has enough of them."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng([seed, math.prod(shape), *shape])
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.kind in "iufc":
        raw = rng.integers(1, 255, (*shape, kind.itemsize), np.uint8)
        return _finite(raw.view(kind).reshape(shape))
    return np.asarray(rng.integers(0, 4, shape) if "int" in dtype else rng.uniform(0.5, 2, shape)).astype(
        kind
    )


def _finite(values: np.ndarray) -> np.ndarray:
    return (
        values if values.dtype.kind in "iu" else np.where(np.isfinite(values), values, values.dtype.type(1))
    )


def numbers(spec: str, seed: int = 0) -> np.ndarray:
    """Random small values for a spec such as `float32[3,4]`: zeros, and both signs if the type has them."""
    name, _, lengths = spec.rstrip("]").partition("[")
    shape = tuple(map(int, filter(None, lengths.split(","))))
    dtype = dtype_named(name)
    random = np.random.default_rng(seed)
    if kind(dtype) == "c":
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    if kind(dtype) == "f":
        return np.asarray(random.normal(size=shape)).astype(dtype)
    low, high = {"b": (0, 2), "i": (-2, 2), "u": (0, 4)}[kind(dtype)]
    return np.asarray(random.integers(low, high, size=shape)).astype(dtype)
