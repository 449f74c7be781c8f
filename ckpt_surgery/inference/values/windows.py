"""Parts of an axis that hold what another array holds: slices, halves, every second row, rows of a head.

Every such part is a window that repeats: an axis of length `n` is cut into `repeats` equal periods, and of
each period the same rows are taken. `repeats = 1` is a plain slice; a period of 2 with one row is every
second row; one period for each group of heads takes the queries out of what is fused by group.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.holders import Holder, cut, laid, rows, squeezed
from ckpt_surgery.inference.expressions.layout_steps import reshaping
from ckpt_surgery.inference.values.fingerprints import Fingerprint, Words
from ckpt_surgery.inference.values.marginals import divisors

Wanted = TypeVar("Wanted")


@dataclass(frozen=True)
class Window:
    """Rows along one axis of an array."""

    axis: int
    repeats: int
    start: int
    """First row, within each period."""
    length: int
    """Rows of each period."""

    keep: bool = False
    """Whether the part has an axis for rows even if there is one row."""

    def shape(self, of: Shape) -> Shape:
        """Shape of the part: the axis becomes two, periods and rows, each only if it is longer than 1."""
        own = (self.repeats,) * (self.repeats > 1) + (self.length,) * (self.length > 1 or self.keep)
        return (*of[: self.axis], *own, *of[self.axis + 1 :])

    def of(self, array: Holder) -> Holder:
        """The part of an array."""
        axis, shape = self.axis, array.shape
        if self.repeats > 1:
            apart = (self.repeats, shape[axis] // self.repeats)
            layout = reshaping(shape, (*shape[:axis], *apart, *shape[axis + 1 :]))
            assert layout is not None, "an axis that is cut into periods is cut across no other"
            array, axis = laid(layout, array), axis + 1
        part = cut(rows(array.shape, axis, self.start, self.start + self.length), array)
        return part if self.keep or self.length > 1 else squeezed(part, axis)


def windows(
    of: Fingerprint, axes: Sequence[int], wanted: Mapping[int, Mapping[int, Wanted]]
) -> Iterator[tuple[Window, Wanted]]:
    """The windows along these axes whose elements add up to one of these sums, with what they hold.

    `wanted`: what is looked for, by its number of elements, and by its total. Plain slices come first.
    """
    for size, totals in wanted.items():
        if not (totals and 0 < size < of.size):
            continue
        known = np.array(sorted(totals), np.uint64)
        for axis in axes:
            length = of.shape[axis]
            if length * size % of.size:
                continue
            rows = length * size // of.size
            for repeats in divisors(math.gcd(length, rows)):
                sums = of.axes[axis].reshape(repeats, -1).sum(axis=0, dtype=np.uint64)
                for start, total in _matching(sums, rows // repeats, known):
                    yield Window(axis, repeats, start, rows // repeats), totals[total]


def _matching(sums: Words, rows: int, known: Words) -> Iterator[tuple[int, int]]:
    """The first rows of the windows whose sum is known, with the sum."""
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sums, dtype=np.uint64)])
    with np.errstate(over="ignore"):
        windowed = running[rows:] - running[:-rows]
    places = np.searchsorted(known, windowed)
    places[places == len(known)] = 0
    for start in np.flatnonzero(known[places] == windowed):
        yield int(start), int(windowed[start])
