"""Limits of arrays in all formats, checked before anything is allocated."""

from collections.abc import Sequence
from math import prod

from ckpt_surgery.storage.failures import damaged

MOST_AXES = 32
"""TensorStore's limit; NumPy's and torch's is 64."""
MOST_BYTES = 2**63 - 1
"""Largest number of bytes of one array in memory, axes of length 0 not counted: NumPy's limit."""


def beyond_memory(shape: Sequence[int], itemsize: int) -> bool:
    """Whether an array is larger than NumPy allows; `itemsize` in bytes. No length is negative."""
    return prod(n for n in shape if n) * max(1, itemsize) > MOST_BYTES


def check_shape(shape: Sequence[int], itemsize: int) -> None:
    """Raise SourceError where an array has too many axes, or more bytes than NumPy allows."""
    if len(shape) > MOST_AXES:
        raise damaged(f"it has {len(shape)} axes; {MOST_AXES} is the limit", "Save it with fewer axes.")
    if beyond_memory(shape, itemsize):
        raise damaged(f"it has a shape beyond all memory: {list(shape)}")
