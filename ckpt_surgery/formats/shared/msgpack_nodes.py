"""The nodes of a MessagePack document as Flax writes them: values, and arrays by their places in the file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec

CHUNKED = "__msgpack_chunked_array__"
"""A map that has this key is an array in pieces."""
ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Flax's extension types."""
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
        *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int2", "int4", "uint2", "uint4"),
    )
}
"""By the names that Flax writes, which are NumPy's. Narrow types take a byte per element."""


@dataclass(frozen=True, slots=True)
class BytesAt:
    """A stretch of the file."""

    offset: int
    """From the file's beginning."""
    length: int


@dataclass(frozen=True, slots=True)
class ArrayAt:
    """An array, and where its elements are."""

    spec: ArraySpec
    pieces: tuple[BytesAt, ...]
    """One after another they are the array in C order, each of whole elements; one, if it is not cut."""
    scalar: bool = False
    """Whether it was a NumPy scalar rather than an array without axes."""


Plain: TypeAlias = str | bool | int | float | complex | None


Node: TypeAlias = "dict[str | int, Node] | list[Node] | ArrayAt | BytesAt | Plain"
