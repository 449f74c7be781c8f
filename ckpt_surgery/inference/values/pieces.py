"""Pieces: leaves, the stacks of leaves that may have become one array or come from one, and parts of these.

A stack is of the leaves of a family along some of its indices: the experts of one layer, all layers of one
expert, all of both.

Slices, halves, every second row and the rows of a head are all windows that repeat: an axis of length `n` is
cut into `repeats` equal periods, and of each the same rows are taken. `repeats = 1` is a plain slice; a
period of 2 with one row is every second row; one period for each group of heads takes the queries out of an
array that is fused by group.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.expressions.layouts import reshaping
from ckpt_surgery.inference.expressions.source_expressions import (
    INNER,
    SourceExpression,
    called,
    cut,
    laid,
    of_leaves,
    reshaped,
    rows,
)
from ckpt_surgery.inference.keys.grids import Grid, Numbers
from ckpt_surgery.inference.values.fingerprints import Fingerprint, joined
from ckpt_surgery.inference.values.marginals import divisors

MOST_SLICES = 256
"""Maximum length of an axis whose slices are searched for one by one."""

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

    def shape(self, of: Shape) -> Shape:
        """Shape of the part: the axis becomes two, periods and rows, or one if there is one period."""
        return (*of[: self.axis], *[self.repeats] * (self.repeats > 1), self.length, *of[self.axis + 1 :])

    def of(self, array: SourceExpression) -> SourceExpression:
        """The part of an array."""
        axis, shape = self.axis, array.shape
        if self.repeats > 1 and self.length == 1:
            text = f"{INNER}[{':, ' * axis}{self.start or ''}::{shape[axis] // self.repeats}]"
            part = called(text, array, (*shape[:axis], self.repeats, *shape[axis + 1 :]))
            return reshaped(part, self.shape(shape))
        if self.repeats > 1:
            apart = (self.repeats, shape[axis] // self.repeats)
            layout = reshaping(shape, (*shape[:axis], *apart, *shape[axis + 1 :]))
            assert layout is not None, "an axis that is cut into periods is cut across no other"
            array, axis = laid(layout, array), axis + 1
        return cut(rows(array.shape, axis, self.start, self.start + self.length), array)


@dataclass(frozen=True, eq=False)
class Piece:
    """Leaves of one checkpoint with equal shapes: the stack that they would make, or a window of it."""

    keys: tuple[str, ...]
    """The leaves in the order in which they would be stacked."""
    lengths: Shape
    """The lengths of the stack's first axes, one for each index; empty for a leaf by itself."""
    parts: tuple[Fingerprint, ...]
    """The fingerprints of the leaves."""
    window: Window | None = None

    @property
    def total(self) -> int:
        """Sum over all leaves, modulo 2^64."""
        return sum(part.total for part in self.parts) % (1 << 64)

    @property
    def size(self) -> int:
        """Number of elements of all leaves."""
        return len(self.parts) * self.parts[0].size

    @property
    def shape(self) -> Shape:
        """Shape of the stack."""
        return (*self.lengths, *self.parts[0].shape)

    @property
    def array(self) -> SourceExpression:
        """The piece as an expression."""
        stack = of_leaves(self.keys, self.lengths, self.parts[0].shape)
        return stack if self.window is None else self.window.of(stack)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the stack."""
        return joined(self.lengths, self.parts) if self.lengths else self.parts[0]

    @property
    def constant(self) -> bool:
        """True if every leaf repeats one value, so that their sums are no evidence, not even together."""
        return all(part.constant for part in self.parts)


def singles(known: Mapping[str, Fingerprint]) -> Iterator[Piece]:
    """Every leaf by itself."""
    return (Piece((key,), (), (fingerprint,)) for key, fingerprint in known.items())


Pieces = Mapping[int, Mapping[int, Sequence[Piece]]]
"""Pieces indexed by (number of elements, sum of hashes)."""


def by_sums(pieces: Iterable[Piece]) -> Pieces:
    """Index whole pieces by their sums."""
    indexed: dict[int, dict[int, list[Piece]]] = {}
    for piece in pieces:
        indexed.setdefault(piece.size, {}).setdefault(piece.total, []).append(piece)
    return indexed


# --- stacks -----------------------------------------------------------------------------------------------


def grid_stacks(grids: Iterable[Grid], known: Mapping[str, Fingerprint]) -> Iterator[Piece]:
    """Yield groups of leaves that differ in indices alone; those along few indices come first.

    They have to make up a whole grid, and to have one shape.
    """
    for grid in grids:
        every = range(grid.template.slots)
        for slots in (some for count in every for some in itertools.combinations(every, count + 1)):
            rest: dict[Numbers, dict[Numbers, str]] = {}
            for numbers, key in grid.members.items():
                if key in known:
                    fixed = tuple(number for slot, number in enumerate(numbers) if slot not in slots)
                    rest.setdefault(fixed, {})[tuple(numbers[slot] for slot in slots)] = key
            for part in rest.values():
                axes = [sorted(set(column), key=natural_order) for column in zip(*part, strict=True)]
                if len(part) > 1 and len(part) == math.prod(map(len, axes)):
                    keys = tuple(part[numbers] for numbers in itertools.product(*axes))
                    parts = tuple(known[key] for key in keys)
                    if len({one.shape for one in parts}) == 1:
                        yield Piece(keys, tuple(map(len, axes)), parts)


# --- windows ----------------------------------------------------------------------------------------------


def windows(
    of: Fingerprint, axes: Iterable[int], wanted: Mapping[int, Mapping[int, Wanted]]
) -> Iterator[tuple[Window, Wanted]]:
    """Yield windows along these axes whose elements add up to one of these sums, with the match.

    `wanted`: candidates by number of elements, and by total. Plain slices come first.
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
                running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sums, dtype=np.uint64)])
                each = rows // repeats
                with np.errstate(over="ignore"):
                    windowed = running[each:] - running[:-each]
                places = np.searchsorted(known, windowed) % len(known)
                for start in np.flatnonzero(known[places] == windowed):
                    yield Window(axis, repeats, int(start), each), totals[int(windowed[start])]
