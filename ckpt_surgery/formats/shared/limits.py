"""What no array may exceed in any format, checked before anything is allocated; types that one lacks."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

MOST_AXES = 32
"""TensorStore's limit; NumPy's and torch's is 64."""
MOST_BYTES = 2**63 - 1
"""Most bytes of one array in memory, axes of length 0 not counted: NumPy's limit."""


def beyond_memory(shape: Sequence[int], itemsize: int) -> bool:
    """Whether an array is larger than NumPy allows; `itemsize` in bytes. No length is negative."""
    return prod(n for n in shape if n) * max(1, itemsize) > MOST_BYTES


def not_held(dtype: np.dtype[Any], library: str) -> str:
    """Why a library cannot hold arrays of a type, as a predicate: `is uint4, which zarr cannot store; …`.

    No cast helps where elements are no numbers: objects (TensorFlow's strings are such), text, times.
    """
    castable = dtype.kind not in "OSUMm" and dtype.type is not np.void
    return f"is {dtype.name}, which {library}; {'cast it to another type' if castable else 'drop it'}."
