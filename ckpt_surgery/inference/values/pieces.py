"""Parts of arrays: windows along an axis, read when their sums are asked for, and chains.

Slices, halves, every second row and the rows of a head are all windows that repeat: an axis of length `n` is
cut into `repeats` equal periods, and of each the same rows are taken. `repeats = 1` is a plain slice; a
period of 2 with one row is every second row; one period for each group of heads takes the queries out of what
is fused by group.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.holders import Holder, cut, laid, rows, squeezed
from ckpt_surgery.inference.expressions.layouts import reshaping
from ckpt_surgery.inference.values.fingerprints import Fingerprint, Words
from ckpt_surgery.inference.values.marginals import Marginals, divisors
from ckpt_surgery.inference.values.stacks import StackedLeaves

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


@dataclass(frozen=True, eq=False)
class WindowPiece:
    """What a window of a leaf, or of a stack of leaves, holds; it is read when its sums are asked for."""

    group: StackedLeaves
    window: Window
    read: Callable[[Holder], Fingerprint]
    """Reads the sums of an expression over the leaves."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The leaves that it is a part of."""
        return self.group.keys

    @property
    def array(self) -> Holder:
        """The part as an expression."""
        return self.window.of(self.group.array)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Its sums."""
        return self.read(self.array)

    @cached_property
    def marginals(self) -> Marginals:
        """The sums of its digits."""
        return Marginals(self.fingerprint)


Piece = StackedLeaves | WindowPiece
"""What can become a part of an array."""
Pieces = Mapping[int, Mapping[int, Piece]]
"""By the number of elements, and by their sum."""
MOST_SLICES = 1024
"""Slices of an axis, up to which they are looked for by themselves."""


def whole_pieces(sources: Mapping[tuple[int, int], Sequence[StackedLeaves]]) -> Pieces:
    """Leaves and stacks of leaves; of several with equal sums the smallest."""
    found: dict[int, dict[int, Piece]] = {}
    for (size, total), groups in sources.items():
        found.setdefault(size, {})[total] = min(groups, key=lambda group: len(group.keys))
    return found


def sliced_pieces(sources: Iterable[StackedLeaves], read: Callable[[Holder], Fingerprint]) -> Pieces:
    """The slices of leaves along each of their axes that is not too long.

    A single element proves nothing, and neither does what a leaf holds twice, as constants do.
    """
    found: dict[int, dict[int, Piece]] = {}
    for group in sources:
        for axis, sums in enumerate(group.fingerprint.axes):
            size = group.size // max(1, len(sums))
            if size < 2 or not 2 <= len(sums) <= MOST_SLICES:
                continue
            totals, places, counts = np.unique(sums, return_index=True, return_counts=True)
            for total, place in zip(totals[counts == 1], places[counts == 1], strict=True):
                piece = WindowPiece(group, Window(axis, 1, int(place), 1), read)
                found.setdefault(size, {}).setdefault(int(total), piece)
    return found


def chains(
    wanted: Fingerprint, axis: int, pieces: Pieces
) -> Iterator[tuple[int, list[tuple[Window, Piece]]]]:
    """The pieces that lie one behind the other from the first row of each period on, as far as they go.

    With each, how many periods the axis has.
    """
    by_start: dict[int, dict[int, tuple[Window, Piece]]] = {}
    for window, piece in windows(wanted, [axis], pieces):
        by_start.setdefault(window.repeats, {}).setdefault(window.start, (window, piece))
    for repeats, links in sorted(by_start.items()):
        behind, stop = [], 0
        while stop in links:
            behind.append(links[stop])
            stop += links[stop][0].length
        if behind:
            yield repeats, behind
