"""Match leaves by values: which leaves of the source hold the numbers of a target leaf, in what order.

Sums of hashes decide. The search goes from the plainest match to the most involved: leaves or stacks from
leaves or stacks; arrays that are put together of several, as stacks in odd orders are; parts of an axis; and
arrays that are put together of parts.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.inference.expressions.expression_text import formation
from ckpt_surgery.inference.expressions.formations import Evidence, Formation
from ckpt_surgery.inference.expressions.source_expressions import (
    INNER,
    SourceExpression,
    after,
    called,
    cast,
    concatenated,
    indexed,
    laid,
    of_leaves,
    reshaped,
)
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.fingerprints import Fingerprint, hashes, kind_of
from ckpt_surgery.inference.values.pieces import (
    MOST_SLICES,
    Piece,
    Pieces,
    Window,
    by_sums,
    grid_stacks,
    layouts_between,
    singles,
    windows,
)
from ckpt_surgery.inference.values.reading import Side, fingerprint_of

MOST_OF_EQUAL_SUM = 64
"""Maximum number of sources with equal values tried for a leaf: any of them gives the same."""


@dataclass(frozen=True)
class ByValues:
    """Formations proposed by sums, in no order."""

    formations: tuple[Formation, ...]
    reordered: Mapping[str, tuple[str, ...]]
    """Sources of the leaves of the target that hold their elements in an unknown order."""


def match_by_values(
    source: Side, target: Side, decided: Collection[str] = (), operation: str = ""
) -> ByValues:
    """Find the leaves of the source whose elements the leaves of the target hold.

    Arrays of one repeated value are left to names. `decided`: leaves of the target to leave out. `operation`:
    sum or product on every float, as the text after an array in an expression: ` + 1.0`.
    """
    dtypes = {leaf.spec.dtype for leaf in target.leaves.values() if leaf.spec is not None}
    formations: list[Formation] = []
    reordered: dict[str, tuple[str, ...]] = {}
    for dtype in sorted(dtypes, key=lambda dtype: dtype.name):
        if not operation or kind_of(dtype) == "f":
            search = _ValueSearch(source, target, dtype, decided, operation)
            search.run()
            formations += search.formations.values()
            reordered |= search.reordered()
    return ByValues(tuple(formations), reordered)


class _ValueSearch:
    """The search for the sources of the target's leaves of one dtype."""

    def __init__(
        self, source: Side, target: Side, dtype: DType, decided: Collection[str], operation: str
    ) -> None:
        self.source, self.target, self.dtype, self.operation = source, target, dtype, operation
        self.formations: dict[str, Formation] = {}
        wanted = {key: sums for key, sums in target.as_dtype(dtype).items() if target.dtype_of(key) == dtype}
        self.targets = {key: sums for key, sums in wanted.items() if sums.size and key not in decided}
        given = {key: sums for key, sums in source.as_dtype(dtype).items() if sums.size}
        if operation:
            sizes = {sums.size for sums in self.targets.values()}
            given = {
                key: fingerprint_of(after(operation, of_leaves([key], (), sums.shape)), source, dtype)
                for key, sums in given.items()
                if any(size % sums.size == 0 or sums.size % size == 0 for size in sizes)
            }
        self.given = given
        """Fingerprints of the source, after the operation and the cast."""
        groups = (*singles(given), *grid_stacks(source.grids, given))
        # Arrays of several dtypes are not stacked.
        self.groups = [group for group in groups if len(set(map(source.dtype_of, group.keys))) == 1]
        self.sources = by_sums(self.groups)

    def run(self) -> None:
        """Match as many leaves as possible, by the plainest way first."""
        for wanted in self._missing():
            if not self._of_whole(wanted):
                self._of_chain(wanted, lambda wanted, axis: self.sources)
        self._of_parts()
        for wanted in self._missing():
            if not self._of_chain(wanted, self._alike_slices):
                self._of_chain(wanted, lambda wanted, axis: self._slices)

    def reordered(self) -> dict[str, tuple[str, ...]]:
        """Sources of the leaves that are left over, though the source has all of their elements."""
        sources: dict[str, tuple[str, ...]] = {}
        for wanted in self._missing():
            for group in self._alike(wanted)[:1]:
                sources |= {key: group.keys for key in wanted.keys if key not in sources}
        return sources

    def _missing(self) -> Iterator[Piece]:
        """Leaves of the target, then stacks of them, of which none is decided when their turn comes."""
        for make in (singles, partial(grid_stacks, self.target.grids)):
            for piece in make({key: f for key, f in self.targets.items() if key not in self.formations}):
                if self.formations.keys().isdisjoint(piece.keys):
                    yield piece

    def _alike(self, wanted: Piece) -> Sequence[Piece]:
        """Groups of the source with an equal sum, single leaves and the same key first."""
        sums = wanted.fingerprint
        alike = self.sources.get(sums.size, {}).get(sums.total, ())[:MOST_OF_EQUAL_SUM]
        return sorted(alike, key=lambda group: (len(group.keys), group.keys != wanted.keys))

    def _of_whole(self, wanted: Piece) -> bool:
        """Try leaves of the source that together hold the elements of these leaves."""
        alike = self._alike(wanted)
        return any(self._decide(wanted, self._laid(group, wanted.fingerprint)) for group in alike)

    def _of_parts(self) -> None:
        """Try leaves that hold a part of an axis of the source's arrays."""
        sums = by_sums(self._missing())
        for group in self.groups if sums else ():
            axes = range(len(group.lengths), len(group.fingerprint.shape))
            for window, several in windows(group.fingerprint, axes, sums):
                part = replace(group, window=window)
                for wanted in several:
                    if self.formations.keys().isdisjoint(wanted.keys):
                        self._decide(wanted, self._laid(part, wanted.fingerprint))

    def _laid(self, piece: Piece, sums: Fingerprint) -> list[SourceExpression]:
        """A piece, after the operation and the cast, in each order of its elements that has these sums."""
        array = after(self.operation, piece.array)
        given = piece.fingerprint if piece.window is None else fingerprint_of(array, self.source, self.dtype)
        if self.source.dtype_of(piece.keys[0]) != self.dtype:
            array = cast(array, self.dtype)
        return [laid(layout, array) for layout in layouts_between(given, sums)]

    def _decide(self, wanted: Piece, arrays: Sequence[SourceExpression]) -> bool:
        """Match leaves with the first of these arrays that has all of their elements; False if none has.

        A single one is compared later, with all others.
        """
        evidence = Evidence.ARITHMETIC if self.operation else Evidence.VALUES
        places = list(zip(np.ndindex(*wanted.lengths), wanted.keys, strict=True))
        for array in arrays:
            made = [formation(key, indexed(array, place), evidence) for place, key in places]
            if len(arrays) == 1 or all(equal_elements(one, self.source, self.target) for one in made):
                self.formations.update((one.target, one) for one in made)
                return True
        return False

    # --- arrays that consist of parts

    def _of_chain(self, wanted: Piece, pieces: Callable[[Piece, int], Pieces]) -> bool:
        """Try pieces one after another along an axis, perhaps in each of its periods."""
        for axis in range(len(wanted.fingerprint.shape)) if not wanted.lengths else ():
            links: dict[tuple[int, int], tuple[Window, Sequence[Piece]]] = {}
            for window, alike in windows(wanted.fingerprint, [axis], pieces(wanted, axis)):
                links.setdefault((window.repeats, window.start), (window, alike[:MOST_OF_EQUAL_SUM]))
            # Where slices are equal, the same part of each leaf is meant.
            common = Counter(piece.window for _, alike in links.values() for piece in alike)
            for repeats in sorted(repeats for repeats, start in links if start == 0):
                chain: dict[Window, Piece] = {}
                stop = 0
                while (repeats, stop) in links:
                    window, alike = links[repeats, stop]
                    used = list(chain.values())
                    chain[window] = min(
                        alike, key=lambda piece: (piece in used, len(piece.keys), -common[piece.window])
                    )
                    stop += window.length
                array = self._joined(wanted, axis, repeats, chain)
                if array is not None and self._decide(wanted, [array]):
                    return True
        return False

    def _joined(
        self, wanted: Piece, axis: int, repeats: int, chain: Mapping[Window, Piece]
    ) -> SourceExpression | None:
        """Join the parts, in order, as an expression; None if they leave out more than padding.

        Zeros left over at the end of an axis are padding.
        """
        own, shape = wanted.fingerprint, wanted.fingerprint.shape
        stop = sum(window.length for window in chain)
        zero = int(hashes(np.zeros((1,), self.dtype))[0]) * (own.size // shape[axis]) % (1 << 64)
        zeros = repeats == 1 and bool((own.axes[axis][stop:] == np.uint64(zero)).all())
        if stop * repeats != shape[axis] and not zeros:
            return None
        parts: list[SourceExpression] = []
        for window, piece in chain.items():
            sums = fingerprint_of(window.of(wanted.array), self.target, self.dtype)
            parts += self._laid(piece, sums)[:1]
        if len(parts) < len(chain):
            return None
        array = concatenated(parts, axis if repeats == 1 else axis + 1)
        if stop * repeats < shape[axis]:
            return called(f"pad({INNER}, axis={axis}, to={shape[axis]})", array, shape)
        return reshaped(array, shape)

    def _alike_slices(self, wanted: Piece, axis: int) -> Pieces:
        """Parts of leaves of the source that are slices of an array along an axis."""
        size, places = _slices_of(wanted.fingerprint, axis)
        found: dict[int, list[Piece]] = {total: [] for total in places}
        for key, given in self.given.items() if found else ():
            for window, alike in windows(given, range(len(given.shape)), {size: found}):
                alike.append(Piece((key,), (), given, window))
        return {size: {total: pieces for total, pieces in found.items() if pieces}}

    @cached_property
    def _slices(self) -> Pieces:
        """The slices of leaves of the source along each of their axes."""
        indexed: dict[int, dict[int, list[Piece]]] = {}
        for key, given in self.given.items():
            for axis in range(len(given.shape)):
                size, places = _slices_of(given, axis)
                for total, place in places.items():
                    piece = Piece((key,), (), given, Window(axis, 1, place, 1))
                    indexed.setdefault(size, {}).setdefault(total, []).append(piece)
        return indexed


def _slices_of(array: Fingerprint, axis: int) -> tuple[int, dict[int, int]]:
    """Number of elements of a slice along an axis, and the places of the slices by their sums.

    None of an axis that is too long, of single elements, which prove nothing, and of slices that the array
    has twice, as constants do.
    """
    size = array.size // array.shape[axis]
    if size == 1 or not 2 <= array.shape[axis] <= MOST_SLICES:
        return size, {}
    totals, places, counts = np.unique(array.axes[axis], return_index=True, return_counts=True)
    once = counts == 1
    return size, dict(zip(totals[once].tolist(), places[once].tolist(), strict=True))
