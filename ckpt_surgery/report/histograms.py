"""Histograms of streams of numbers: exact counts, which depend neither on the order nor on the pieces.

The bins are as wide as a power of two, and begin at multiples of their width. They are the narrowest such
bins of which `MOST_BINS` cover all values seen so far; wider ones are unions of these, so nothing is counted
twice or moved when the range grows.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

MOST_BINS = 16
"""Number of bins at most; at least half as many where the values are not all the same."""
_NARROWEST = -1022
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Histogram:
    """Number of values in each bin; bin i has `start + i * width <= value < start + (i + 1) * width`.

    Without values it has no bins.
    """

    exponent: int = _NARROWEST
    """The binary logarithm of the width of a bin."""
    first: int = 0
    """The first bin begins at this number of widths."""
    counts: tuple[int, ...] = ()
    """The number of values in each bin; the first and the last are not 0."""

    @property
    def start(self) -> float:
        """The lower edge of the first bin; the least float64 where it is below that."""
        if self.first.bit_length() + self.exponent > sys.float_info.max_exp:
            return -sys.float_info.max
        return math.ldexp(self.first, self.exponent)

    @property
    def width(self) -> float:
        """The width of each bin."""
        return math.ldexp(1.0, self.exponent)

    def __add__(self, other: "Histogram") -> "Histogram":
        """The histogram of the values of both."""
        if not (self.counts and other.counts):
            return self if self.counts else other
        exponent = max(self.exponent, other.exponent)
        both = [one._counts_by_bin(exponent) for one in (self, other)]
        by = _widening(min(map(min, both)), max(map(max, both)))
        counts: Counter[int] = Counter()
        for bins in both:
            for i, count in bins.items():
                counts[i >> by] += count
        first, last = min(counts), max(counts)
        return Histogram(exponent + by, first, tuple(counts[i] for i in range(first, last + 1)))

    def _counts_by_bin(self, exponent: int) -> Mapping[int, int]:
        """Number of values by the index of the bin, if bins were as wide as this exponent says, or wider."""
        counts: Counter[int] = Counter()
        for i, count in enumerate(self.counts, self.first):
            counts[i >> (exponent - self.exponent)] += count
        return counts


NO_VALUES = Histogram()


def _widening(first: int, last: int) -> int:
    """Number of doublings of the bins' width after which there are at most `MOST_BINS`."""
    by = 0
    while (last >> by) - (first >> by) >= MOST_BINS:
        by += 1
    return by


def histogram(values: np.ndarray) -> Histogram:
    """The histogram of finite float64 values of any number; it takes memory for twice as many."""
    if not values.size:
        return NO_VALUES
    low, high = float(values.min()), float(values.max())
    most = max(abs(low), abs(high))
    # A bin narrower than the 52 bits of the fraction would have an index that float64 cannot represent.
    exponent = max(_NARROWEST, math.frexp(most)[1] - 52) if most else _NARROWEST
    exponent += _widening(*map(int, _indices(np.array([low, high]), exponent)))
    indices = _indices(values, exponent).astype(np.int64)
    first = int(indices.min())
    return Histogram(exponent, first, tuple(np.bincount(indices - first).tolist()))


def _indices(values: np.ndarray, exponent: int) -> np.ndarray:
    """The index of the bin of each value, as float64."""
    scaled = np.ldexp(values, -exponent)
    if exponent > 0:
        scaled[(scaled == 0) & (values < 0)] = -1.0  # too small for float64, but below 0
    indices: np.ndarray = np.floor(scaled, out=scaled)
    return indices


def blocks(histogram: Histogram) -> str:
    """One block character for each bin, the highest for the most values; a space for a bin without any."""
    most = max(histogram.counts, default=0)
    return "".join(_BLOCKS[-(-n * len(_BLOCKS) // most) - 1] if n else " " for n in histogram.counts)
