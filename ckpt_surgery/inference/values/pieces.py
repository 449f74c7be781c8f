"""Parts of arrays whose sums have to be read once more: what a window holds, and what is put together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.inference.expressions.formations import Evidence, Formation
from ckpt_surgery.inference.expressions.holder_text import formation
from ckpt_surgery.inference.expressions.holders import (
    INNER,
    Holder,
    after,
    called,
    cast,
    concatenated,
    joined,
    laid,
    reshaped,
)
from ckpt_surgery.inference.values.fingerprints import Fingerprint, hashes
from ckpt_surgery.inference.values.marginals import Marginals, layouts_between
from ckpt_surgery.inference.values.reading import fingerprint_of
from ckpt_surgery.inference.values.sides import Side
from ckpt_surgery.inference.values.stacks import StackedLeaves
from ckpt_surgery.inference.values.windows import FoundWindow, Window, windows


@dataclass(frozen=True, eq=False)
class FoundPart:
    """What a window holds."""

    array: Holder
    """The part as an expression, before the operation."""
    fingerprint: Fingerprint
    """Its sums after the operation."""

    @cached_property
    def marginals(self) -> Marginals:
        """The sums of its digits."""
        return Marginals(self.fingerprint)


@dataclass(frozen=True, eq=False)
class FoundPiece:
    """What can become a part of an array: leaves of the source, or a slice of one."""

    group: StackedLeaves
    window: Window | None = None


Pieces = Mapping[int, Mapping[int, FoundPiece]]
"""By the number of elements, and by their sum."""
MOST_SLICES = 1024
"""Slices of an axis, up to which they are looked for by themselves."""


def whole_pieces(sources: Mapping[tuple[int, int], Sequence[StackedLeaves]]) -> Pieces:
    """Leaves and stacks of leaves; of several with equal sums the smallest."""
    found: dict[int, dict[int, FoundPiece]] = {}
    for (size, total), groups in sources.items():
        found.setdefault(size, {})[total] = FoundPiece(min(groups, key=lambda group: len(group.keys)))
    return found


def sliced_pieces(sources: Iterable[StackedLeaves]) -> Pieces:
    """The slices of leaves along each of their axes that is not too long.

    A single element proves nothing, and neither does what a leaf holds twice, as constants do.
    """
    found: dict[int, dict[int, FoundPiece]] = {}
    for group in sources:
        for axis, sums in enumerate(group.fingerprint.axes):
            size = group.size // max(1, len(sums))
            if size < 2 or not 2 <= len(sums) <= MOST_SLICES:
                continue
            totals, places, counts = np.unique(sums, return_index=True, return_counts=True)
            for total, place in zip(totals[counts == 1], places[counts == 1], strict=True):
                piece = FoundPiece(group, Window(axis, 1, int(place), 1))
                found.setdefault(size, {}).setdefault(int(total), piece)
    return found


@dataclass
class FoundParts:
    """Parts of the leaves of both sides, each read once."""

    source: Side
    target: Side
    dtype: np.dtype[Any]
    operation: str = ""
    """What is done to every element of the source, such as ` + 1.0`."""
    known: dict[tuple[object, ...], FoundPart] = field(default_factory=dict)

    @property
    def evidence(self) -> Evidence:
        """What decides that leaves are made of the source's values."""
        return Evidence.ARITHMETIC if self.operation else Evidence.VALUES

    def of_source(self, group: StackedLeaves, window: Window) -> FoundPart:
        """What a window of a leaf, or of a stack of leaves, holds, as it is after the cast."""
        return self._part(self.source, group, window)

    def _part(self, side: Side, group: StackedLeaves, window: Window) -> FoundPart:
        name = (side is self.source, group.keys, window)
        if name not in self.known:
            array = window.of(group.array)
            changed = after(self.operation, array) if side is self.source else array
            self.known[name] = FoundPart(array, fingerprint_of(changed, side, self.dtype))
        return self.known[name]

    def put_together(self, wanted: StackedLeaves, pieces: Pieces) -> Formation | None:
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
        self, wanted: StackedLeaves, axis: int, repeats: int, chain: Sequence[FoundWindow[FoundPiece]]
    ) -> Formation | None:
        """The parts, one behind the other, as an expression; None if they leave out more than padding."""
        period = wanted.shape[axis] // repeats
        stop = chain[-1].window.start + chain[-1].window.length
        padded = period - stop
        if padded and (repeats > 1 or not self._zeros(wanted.fingerprint, axis, stop)):
            return None
        if len(chain) == 1 and not padded:
            return None
        parts: list[Holder] = []
        for one in chain:
            part = self._part(self.target, wanted, replace(one.window, keep=True))
            group, own = one.holds.group, one.holds.window
            given = group.marginals if own is None else self._part(self.source, group, own).marginals
            layouts = layouts_between(given, part.fingerprint)
            if not layouts:
                return None
            array = group.array if own is None else own.of(group.array)
            parts.append(after(self.operation, laid(layouts[0], array)))
        dtypes = {self.source.dtype_of(key) for one in chain for key in one.holds.group.keys}
        along = axis if repeats == 1 else axis + 1
        if len(dtypes) > 1:  # arrays of several dtypes cannot be joined before they are cast
            array = joined([cast(part, self.dtype) for part in parts], along)
        else:
            array = concatenated(parts, along)
        if padded:
            array = called(f"pad({INNER}, axis={axis}, to={wanted.shape[axis]})", array, wanted.shape)
        if repeats > 1:
            array = reshaped(array, wanted.shape)
        if len(dtypes) == 1 and dtypes != {self.dtype}:
            array = cast(array, self.dtype)
        what = "parts" if len(parts) > 1 else "one leaf"
        why = f"{what} along axis {axis}" + (", and zeros" if padded else "")
        return formation(wanted.keys[0], array, self.evidence, why)

    def _zeros(self, fingerprint: Fingerprint, axis: int, start: int) -> bool:
        """Whether everything from an index on is zero."""
        zero = int(hashes(np.zeros((1,), self.dtype))[0])
        row = fingerprint.size // fingerprint.shape[axis] * zero % (1 << 64)
        return bool((fingerprint.axes[axis][start:] == np.uint64(row)).all())


def _chain(found: Sequence[FoundWindow[FoundPiece]]) -> list[FoundWindow[FoundPiece]]:
    """Windows one behind the other from the first row on, as far as they go."""
    by_start: dict[int, FoundWindow[FoundPiece]] = {}
    for one in found:
        by_start.setdefault(one.window.start, one)
    chain, stop = [], 0
    while stop in by_start:
        chain.append(by_start[stop])
        stop += by_start[stop].window.length
    return chain
