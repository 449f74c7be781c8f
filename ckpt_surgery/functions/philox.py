"""Random numbers for any part of an array: Philox4x64-10, whose counter says which numbers are wanted."""

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ckpt_surgery.core.arrays import Region, Shape

WORDS = 4
"""Numbers that one value of the counter gives."""
SHORT_RUN = 4096
"""Consecutive numbers that take no longer than a call of the generator: a part that lies within so many is
cut out of them."""


def words(start: int, count: int, key: np.ndarray) -> np.ndarray:
    """The numbers `start` to `start + count`, of 64 bits: number `i` is word `i % 4` of counter `i // 4`.

    `key`: two words of uint64.
    """
    first = start // WORDS
    # NumPy's generator raises its counter before it makes numbers.
    generator = np.random.Philox(key=key, counter=(first - 1) % 2**256)
    return np.asarray(generator.random_raw(start % WORDS + count)[start % WORDS :])


def fractions(region: Region, shape: Shape, key: np.ndarray) -> np.ndarray:
    """For each element of a region the upper 53 bits of its number, divided by 2**53: from 0 up to below 1.

    An element's number is that of its index in C order in an array of this shape.
    """
    found: np.ndarray = np.empty(region.shape, np.uint64)
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    start = sum(a * b for a, b in zip(region.starts, strides, strict=True))
    waiting = [(found, start)] if found.size else []
    while waiting:
        part, start = waiting.pop()
        span = 1 + sum((n - 1) * stride for n, stride in zip(part.shape, strides, strict=True))
        if span <= max(SHORT_RUN, part.size):
            numbers = words(start, span, key)
            part[...] = as_strided(numbers, part.shape, [8 * stride for stride in strides], writeable=False)
            continue
        axis = next(axis for axis, n in enumerate(part.shape) if n > 1)
        half = part.shape[axis] // 2
        cut = (slice(None),) * axis
        waiting.append((part[(*cut, slice(half, None))], start + half * strides[axis]))
        waiting.append((part[(*cut, slice(half))], start))
    return (found >> np.uint64(11)) * 2.0**-53
