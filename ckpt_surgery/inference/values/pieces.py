"""Pieces: leaves, the stacks of leaves that may have become one array or come from one, and parts of these.

A stack is of the leaves of a family along some of its indices: the experts of one layer, all layers of one
expert, all of both.

Slices, halves, every second row and the rows of a head are all windows that repeat: an axis of length `n` is
cut into `repeats` equal periods, and of each the same rows are taken. `repeats = 1` is a plain slice; a
period of 2 with one row is every second row; one period for each group of heads takes the queries out of an
array that is fused by group.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.expressions.layouts import Digit, Layout, of_digits, reshaping
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
from ckpt_surgery.inference.values.fingerprints import Fingerprint, Words, joined

MOST_TRIES = 4000
"""Maximum number of digits tried for one pair of arrays."""
MOST_LAYOUTS = 8
"""Maximum number of layouts returned where several fit, as for arrays with equal slices."""
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
    fingerprint: Fingerprint
    """The fingerprint of the stack."""
    window: Window | None = None

    @property
    def array(self) -> SourceExpression:
        """The piece as an expression."""
        stack = of_leaves(self.keys, self.lengths, self.fingerprint.shape[len(self.lengths) :])
        return stack if self.window is None else self.window.of(stack)


Pieces = Mapping[int, Mapping[int, Sequence[Piece]]]
"""Pieces indexed by (number of elements, sum of hashes)."""


def by_sums(pieces: Iterable[Piece]) -> Pieces:
    """Index whole pieces by their sums."""
    indexed: dict[int, dict[int, list[Piece]]] = {}
    for piece in pieces:
        sums = piece.fingerprint
        indexed.setdefault(sums.size, {}).setdefault(sums.total, []).append(piece)
    return indexed


# --- stacks -----------------------------------------------------------------------------------------------


def singles(known: Mapping[str, Fingerprint]) -> Iterator[Piece]:
    """Every leaf by itself, if it does not repeat one value: constants are no evidence."""
    return (Piece((key,), (), fingerprint) for key, fingerprint in known.items() if not fingerprint.constant)


def grid_stacks(grids: Iterable[Grid], known: Mapping[str, Fingerprint]) -> Iterator[Piece]:
    """Yield groups of leaves that differ in indices alone; those along few indices come first.

    They have to make up a whole grid, and to have one shape. Constants are no evidence, not even together.
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
                    parts = [known[key] for key in keys]
                    if len({one.shape for one in parts}) == 1 and not all(one.constant for one in parts):
                        lengths = tuple(map(len, axes))
                        yield Piece(keys, lengths, joined(lengths, parts))


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


# --- layouts ----------------------------------------------------------------------------------------------
#
# If an axis of the result runs along a digit of an axis of the input (`h` in `(h d) e -> e h d`), then the
# sums of its slices are those of the input's axis, added over the other digits. So each axis of the result is
# taken apart into digits whose sums occur in the input, and these have to make up every axis of the input
# exactly. No element is read; elements are compared afterwards.

_Groups = tuple[tuple[Digit, ...], ...]


def layouts_between(given: Fingerprint, wanted: Fingerprint) -> list[Layout]:
    """The layouts that take the input to an array with these sums, the plainest first; at most MOST_LAYOUTS.

    Both have the same total and the same number of elements.
    """
    axes = tuple(sums for sums in wanted.axes if len(sums) > 1)
    layouts: dict[Layout, None] = {}
    known = functools.cache(functools.partial(_digits, given))
    for digits in _tilings(known, axes, ((),), iter(range(MOST_TRIES))):
        layout = of_digits(given.shape, wanted.shape, digits)
        if layout is not None:
            layouts[layout] = None
        if len(layouts) >= MOST_LAYOUTS:
            break
    return sorted(layouts, key=lambda layout: layout.complexity)


def _tilings(
    known: Callable[[int], Mapping[bytes, Sequence[Digit]]],
    axes: Sequence[Words],
    groups: _Groups,
    tries: Iterator[int],
) -> Iterator[_Groups]:
    """The digits of every axis of the result that is longer than 1, none used twice; long digits first.

    `known`: digits of the input by length. `axes`: the sums of the axes that are left. The first of `groups`
    are the fast digits of the last of them.
    """
    if not axes:
        yield groups[1:]
        return
    *others, sums = axes
    begun, *done = groups
    for length in reversed(divisors(len(sums))[1:]):
        rows = sums.reshape(-1, length)
        rest = rows.sum(axis=1, dtype=np.uint64)
        for digit in known(length).get(rows.sum(axis=0, dtype=np.uint64).tobytes(), ()):
            if next(tries, None) is None:
                return
            joins = begun and (digit.axis, digit.stride) == (begun[0].axis, begun[0].stride * begun[0].length)
            if joins or any(_overlap(digit, other) for group in groups for other in group):
                continue  # neighbours that are one digit are tried as such
            group = (digit, *begun)
            if len(rest) > 1:
                yield from _tilings(known, (*others, rest), (group, *done), tries)
            else:
                yield from _tilings(known, others, ((), group, *done), tries)


def _digits(given: Fingerprint, length: int) -> Mapping[bytes, Sequence[Digit]]:
    """The digits of an array that have this length, by the sums of their slices.

    Whole axes come first, then fast digits.
    """
    digits: dict[bytes, list[Digit]] = {}
    for axis, sums in sorted(enumerate(given.axes), key=lambda one: len(one[1])):
        for stride in divisors(len(sums) // length) if len(sums) % length == 0 else ():
            parts = sums.reshape(-1, length, stride).sum(axis=(0, 2), dtype=np.uint64)
            digits.setdefault(parts.tobytes(), []).append(Digit(axis, stride, length))
    return digits


def _overlap(one: Digit, other: Digit) -> bool:
    """True if two digits have a part of an axis in common."""
    ends = one.stride * one.length, other.stride * other.length
    return one.axis == other.axis and one.stride < ends[1] and other.stride < ends[0]


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]
