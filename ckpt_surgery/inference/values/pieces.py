"""Parts of arrays whose sums have to be read once more, and what can be put together of such parts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ckpt_surgery.inference.expressions.holders import Holder
from ckpt_surgery.inference.values.fingerprints import Fingerprint
from ckpt_surgery.inference.values.marginals import Marginals
from ckpt_surgery.inference.values.stacks import StackedLeaves
from ckpt_surgery.inference.values.windows import Window, windows


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
