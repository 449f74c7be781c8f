"""Parts of arrays whose sums have to be read once more: what a window holds, and what is put together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.fingerprints import Fingerprint, hashes
from ckpt_surgery.inference.formations import Evidence, Formation, Value
from ckpt_surgery.inference.layouts import expression
from ckpt_surgery.inference.marginals import Marginals, layouts_between
from ckpt_surgery.inference.reading import fingerprint_of
from ckpt_surgery.inference.sides import Side
from ckpt_surgery.inference.stacks import Stack
from ckpt_surgery.inference.values import XS, X, around, cast
from ckpt_surgery.inference.windows import Found, Window, windows


@dataclass(frozen=True, eq=False)
class Part:
    """What a window holds."""

    value: Value
    """The part as an expression over `x`, or over `xs` stacked along one axis."""
    fingerprint: Fingerprint
    """Its sums; along several indices the first axes are those."""

    @cached_property
    def marginals(self) -> Marginals:
        """The sums of its digits."""
        return Marginals(self.fingerprint)


@dataclass(frozen=True, eq=False)
class Piece:
    """What can become a part of an array: leaves of the source, or a slice of one."""

    group: Stack
    window: Window | None = None


Pieces = Mapping[int, Mapping[int, Piece]]
"""By the number of elements, and by their sum."""
MOST_SLICES = 1024
"""Slices of an axis, up to which they are looked for by themselves."""


def whole_pieces(sources: Mapping[tuple[int, int], Sequence[Stack]]) -> Pieces:
    """Leaves and stacks of leaves; of several with equal sums the smallest."""
    found: dict[int, dict[int, Piece]] = {}
    for (size, total), groups in sources.items():
        found.setdefault(size, {})[total] = Piece(min(groups, key=lambda group: len(group.keys)))
    return found


def sliced_pieces(sources: Iterable[Stack]) -> Pieces:
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
                piece = Piece(group, Window(axis, 1, int(place), 1))
                found.setdefault(size, {}).setdefault(int(total), piece)
    return found


@dataclass
class Parts:
    """Parts of the leaves of both sides, each read once."""

    source: Side
    target: Side
    dtype: np.dtype[Any]
    operation: str = ""
    """What is done to every element of the source, such as ` + 1.0`."""
    known: dict[tuple[object, ...], Part] = field(default_factory=dict)

    @property
    def evidence(self) -> Evidence:
        """What decides that leaves are made of the source's values."""
        return Evidence.ARITHMETIC if self.operation else Evidence.VALUES

    def of_source(self, group: Stack, window: Window) -> Part:
        """What a window of a leaf, or of a stack of leaves, holds, as it is after the cast."""
        return self._part(self.source, group, window)

    def _part(self, side: Side, group: Stack, window: Window) -> Part:
        name = (side is self.source, group.keys, window)
        if name not in self.known:
            stacked = len(group.lengths)
            inner, shape, axis = X, group.shape, window.axis
            if stacked:
                inner, axis = around(XS, "stack(", ")"), axis - stacked + 1
                shape = (len(group.keys), *group.shape[stacked:])
            value = replace(window, axis=axis).value(inner, shape)
            leaves = [side.leaves[key] for key in group.keys]
            changed = around(value, "", self.operation) if side is self.source else value
            found = fingerprint_of(changed, leaves, side, self.dtype)
            self.known[name] = Part(value, _unmerged(found, group.lengths))
        return self.known[name]

    def put_together(self, wanted: Stack, pieces: Pieces) -> Formation | None:
        """The pieces of the source that a leaf of the target consists of, along one of its axes.

        What is left over at the end, if it is zeros, is padding.
        """
        for axis in range(len(wanted.shape)):
            found = list(windows(wanted.fingerprint, [axis], pieces))
            for repeats in sorted({one.window.repeats for one in found}):
                chain = _chain([one for one in found if one.window.repeats == repeats])
                made = self._of_chain(wanted, axis, repeats, chain) if chain else None
                if made is not None:
                    return made
        return None

    def _of_chain(
        self, wanted: Stack, axis: int, repeats: int, chain: Sequence[Found[Piece]]
    ) -> Formation | None:
        """The parts, one behind the other, as an expression; None if they leave out more than padding."""
        period = wanted.shape[axis] // repeats
        stop = chain[-1].window.start + chain[-1].window.length
        padded = period - stop
        if padded and (repeats > 1 or not self._zeros(wanted.fingerprint, axis, stop)):
            return None
        if len(chain) == 1 and not padded:
            return None
        pieces: list[Value] = []
        keys: list[str] = []
        alone = len({one.holds.group.keys for one in chain}) == 1
        for one in chain:
            part = self._part(self.target, wanted, replace(one.window, keep=True))
            group, own = one.holds.group, one.holds.window
            given = group.marginals if own is None else self._part(self.source, group, own).marginals
            layouts = layouts_between(given, part.fingerprint)
            if not layouts:
                return None
            first = _place(group.keys, keys)
            inner = _listed(first, len(group.keys), bool(group.lengths), alone)
            if own is not None:
                inner = own.value(inner, group.shape)
            piece = expression(layouts[0], inner, len(group.lengths))
            pieces.append(around(piece, "", self.operation))
        dtypes = {self.source.dtype_of(key) for key in keys}
        if len(dtypes) > 1:  # arrays of several dtypes cannot be joined before they are cast
            pieces = [cast(piece, self.dtype) for piece in pieces]
        value = pieces[0]
        if len(pieces) > 1:
            value = _concat(pieces, axis if repeats == 1 else axis + 1)
        if padded:
            value = around(value, "pad(", f", axis={axis}, to={wanted.shape[axis]})")
        if repeats > 1:
            value = around(value, "reshape(", f", {wanted.shape})")
        if len(dtypes) == 1 and dtypes != {self.dtype}:
            value = cast(value, self.dtype)
        what = "parts" if len(pieces) > 1 else "one leaf"
        why = f"{what} along axis {axis}" + (", and zeros" if padded else "")
        return Formation(wanted.keys[0], tuple(keys), value, self.evidence, why)

    def _zeros(self, fingerprint: Fingerprint, axis: int, start: int) -> bool:
        """Whether everything from an index on is zero."""
        zero = int(hashes(np.zeros((1,), self.dtype))[0])
        row = fingerprint.size // fingerprint.shape[axis] * zero % (1 << 64)
        return bool((fingerprint.axes[axis][start:] == np.uint64(row)).all())


def _chain(found: Sequence[Found[Piece]]) -> list[Found[Piece]]:
    """Windows one behind the other from the first row on, as far as they go."""
    by_start: dict[int, Found[Piece]] = {}
    for one in found:
        by_start.setdefault(one.window.start, one)
    chain, stop = [], 0
    while stop in by_start:
        chain.append(by_start[stop])
        stop += by_start[stop].window.length
    return chain


def _place(some: Sequence[str], keys: list[str]) -> int:
    """The place in `keys` from which on these are there; they are appended where they are not."""
    for first in range(len(keys) - len(some) + 1):
        if keys[first : first + len(some)] == list(some):
            return first
    keys += some
    return len(keys) - len(some)


def _listed(first: int, count: int, stacked: bool, alone: bool) -> Value:
    """Some of the leaves of `xs`."""
    if alone:
        return XS if stacked else X
    return Value(f"xs[{first}:{first + count}]" if stacked else f"xs[{first}]")


def _concat(pieces: Sequence[Value], axis: int) -> Value:
    """The values one behind the other."""
    texts = []
    numbers: list[int] = []
    for piece in pieces:
        holes = (f"{{{len(numbers) + n}}}" for n in range(len(piece.numbers)))
        texts.append(piece.text.format(*holes))
        numbers += piece.numbers
    last = f", axis={axis}" if axis else ""
    return Value(f"concat([{', '.join(texts)}]{last})", tuple(numbers))


def _unmerged(found: Fingerprint, lengths: Shape) -> Fingerprint:
    """The sums of a stack whose first axis is taken apart into several."""
    if len(lengths) < 2:
        return found
    totals = found.axes[0].reshape(lengths)
    outer = [
        totals.sum(axis=tuple(o for o in range(len(lengths)) if o != axis), dtype=np.uint64)
        for axis in range(len(lengths))
    ]
    shape = (*lengths, *found.shape[1:])
    return Fingerprint(shape, found.total, (*outer, *found.axes[1:]), found.low, found.high)
