"""Match leaves by values: which leaves of the source hold the numbers of a target leaf, in what order.

Sums of hashes decide. The search goes from the plainest match to the most involved: one leaf from one leaf;
one leaf from a stack, or several leaves from one array; stacks in odd orders; parts of an axis; and arrays
that are put together of parts.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.inference.expressions.expression_text import formation
from ckpt_surgery.inference.expressions.formations import Evidence, Formation
from ckpt_surgery.inference.expressions.source_expressions import (
    INNER,
    SourceExpression,
    after,
    called,
    cast,
    concatenated,
    laid,
    member,
    of_leaves,
    reshaped,
)
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.fingerprints import Fingerprint, hashes, kind_of
from ckpt_surgery.inference.values.marginals import layouts_between
from ckpt_surgery.inference.values.pieces import (
    MOST_SLICES,
    Piece,
    Pieces,
    Window,
    by_sums,
    chains,
    grid_stacks,
    sibling_stacks,
    single,
    singles,
    sliced_pieces,
    stack_of,
    windows,
)
from ckpt_surgery.inference.values.reading import Side, fingerprint_of

MOST_OF_EQUAL_SUM = 256
"""Maximum number of leaves with equal values considered for a leaf: any of them gives the same."""
MOST_SOURCES = 8
"""Maximum number of sources with equal values tried for a leaf."""


def resemblance(one: str, other: str) -> float:
    """Share of components that two keys have in common. It only decides between leaves with equal values."""
    if one == other:
        return 1.0
    a, b = (set(key.replace(".", "/").split("/")) for key in (one, other))
    return 0.99 * len(a & b) / len(a | b)


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

    Arrays of one repeated value are left to names. `decided`: leaves of the target to leave out.
    `operation`: arithmetic on every element, such as ` + 1.0`; the fingerprints of the source are those after
    it.
    """
    dtypes = {leaf.spec.dtype for leaf in target.leaves.values() if leaf.spec is not None}
    formations: list[Formation] = []
    reordered: dict[str, tuple[str, ...]] = {}
    for dtype in sorted(dtypes, key=lambda dtype: dtype.name):
        search = _ValueSearch(source, target, dtype, decided, operation)
        search.run()
        formations += search.formations.values()
        reordered |= search.reordered()
    return ByValues(tuple(formations), reordered)


def match_after_operation(
    operation: str, source: Side, target: Side, keys: Collection[str], wanted: Collection[str]
) -> ByValues:
    """Match these leaves of the source, after an operation, to the wanted leaves of the target.

    `operation`: the text after an array in an expression, such as ` + 1.0`. Both sides have values; only
    floats are considered.
    """
    target_sums = _floats(target, wanted)
    sizes = {sums.size for sums in target_sums.values() if sums.size}
    dtypes = dict.fromkeys(map(target.dtype_of, target_sums))
    known = {}
    for key, sums in _floats(source, keys).items():
        if sums.size and any(size % sums.size == 0 or sums.size % size == 0 for size in sizes):
            changed = after(operation, of_leaves([key], (), sums.shape))
            known[key] = {dtype: fingerprint_of(changed, source, dtype) for dtype in dtypes}
    own = {key: target.fingerprints[key] for key in target_sums}
    given, left = (
        replace(side, leaves={key: side.leaves[key] for key in sums}, fingerprints=sums)
        for side, sums in ((source, known), (target, own))
    )
    return match_by_values(given, left, operation=operation)


def _floats(side: Side, keys: Iterable[str]) -> dict[str, Fingerprint]:
    """Fingerprints of the float arrays whose values are known."""
    known = (key for key in keys if key in side.fingerprints and side.is_array(key))
    return {key: side.sums(key) for key in known if kind_of(side.dtype_of(key)) == "f"}


@dataclass
class _ValueSearch:
    """The search for the sources of the target's leaves of one dtype."""

    source: Side
    target: Side
    dtype: np.dtype[Any]
    decided: Collection[str]
    operation: str
    formations: dict[str, Formation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given = {k: f for k, f in self.source.as_dtype(self.dtype).items() if f.size}
        own = self.target.own(self.dtype)
        self.targets = {k: f for k, f in own.items() if f.size and k not in self.decided}
        self.wanted = {k: f for k, f in self.targets.items() if not f.constant}
        self.groups = [*singles(self.given), *grid_stacks(self.source.grids, self.given)]
        self.sources = self._telling(self.groups)

    @staticmethod
    def _telling(groups: Iterable[Piece]) -> Pieces:
        return by_sums(group for group in groups if not group.constant)

    def run(self) -> None:
        """Match as many leaves as possible, by the plainest way first."""
        self._of_wholes(self._missing())
        for wanted in self._missing():
            self._of_slices(wanted)
        self._of_wholes(self._missing_groups(grid_stacks))
        self._of_parts()
        for wanted in self._missing():
            self._of_sliced_parts(wanted)
        if any(self._missing()):
            slices = sliced_pieces(singles(self.given), self._sums_of)
            for wanted in self._missing():
                self._put_together(wanted, (self.sources, slices))

    def reordered(self) -> dict[str, tuple[str, ...]]:
        """Sources of the leaves that are left over, though the source has all of their elements."""
        sources: dict[str, tuple[str, ...]] = {}
        if any(self._missing()):
            self.sources = self._telling((*self.groups, *sibling_stacks(self.source.grids, self.given)))
        groups = map(self._missing_groups, (grid_stacks, sibling_stacks))
        for wanted in (group for some in (self._missing(), *groups) for group in some):
            for group in self._nearest(wanted)[:1]:
                sources |= {key: group.keys for key in wanted.keys if key not in sources}
        return sources

    def _missing(self) -> Iterator[Piece]:
        """Leaves of the target that are not decided when their turn comes."""
        return (single(key, sums) for key, sums in self.wanted.items() if key not in self.formations)

    def _missing_groups(self, make: Callable[..., Iterator[Piece]]) -> Iterator[Piece]:
        """Groups of the target without a decided member."""
        left = {key: sums for key, sums in self.targets.items() if key not in self.formations}
        for group in make(self.target.grids, left):
            if not group.constant and self.formations.keys().isdisjoint(group.keys):
                yield group

    def _nearest(self, wanted: Piece) -> list[Piece]:
        """Groups with an equal sum in the order to try: single leaves first, then by resemblance of names."""
        near = self.sources.get(wanted.size, {}).get(wanted.total, ())[:MOST_OF_EQUAL_SUM]
        key = wanted.keys[0]
        return sorted(near, key=lambda g: (len(g.keys), -resemblance(g.keys[0], key)))[:MOST_SOURCES]

    def _of_wholes(self, groups: Iterable[Piece]) -> None:
        """Try leaves of the source that together hold the elements of these leaves."""
        for wanted in groups:
            any(self._take(wanted, group) for group in self._nearest(wanted))

    def _of_slices(self, wanted: Piece) -> None:
        """Try a stack of any leaves, in any order."""
        for axis, sums in enumerate(wanted.fingerprint.axes):
            keys = self._slices(wanted, list(map(int, sums))) if len(sums) > 1 else ()
            group = stack_of(keys, [self.given[name] for name in keys])
            if group is not None and self._take(wanted, group, f"each slice along axis {axis} is one leaf"):
                return

    @cached_property
    def _every(self) -> Pieces:
        """All leaves, those of one repeated value, too."""
        return by_sums(singles(self.given))

    def _slices(self, wanted: Piece, sums: Sequence[int]) -> Sequence[str]:
        """A different leaf for each of these sums; empty if one is missing.

        Leaves of one repeated value count only beside others of their family.
        """
        alike = self._every.get(wanted.size // len(sums), {})
        keys: list[str] = []
        for total in sums:
            names = [piece.keys[0] for piece in alike.get(total, ())[:MOST_OF_EQUAL_SUM]]
            free = [name for name in names if name not in keys]
            if not free:
                return ()
            keys.append(max(free, key=lambda name: resemblance(name, wanted.keys[0])))
        places = self.source.places
        telling = {places[name][0].template for name in keys if not self.given[name].constant}
        return keys if all(places[name][0].template in telling for name in keys) else ()

    def _of_parts(self) -> None:
        """Try leaves that hold a part of an axis of the source's arrays."""
        for group in self.groups:
            sums = by_sums((*self._missing(), *self._missing_groups(grid_stacks)))
            if not sums:
                return
            axes = range(len(group.lengths), len(group.shape))
            for window, (wanted, *_) in windows(group.fingerprint, axes, sums):
                if self.formations.keys().isdisjoint(wanted.keys):
                    why = "" if group.lengths or wanted.lengths else f"a part of axis {window.axis}"
                    self._take(wanted, replace(group, window=window, read=self._sums_of), why)

    def _of_sliced_parts(self, wanted: Piece) -> None:
        """Try a stack of parts of leaves, the same part of each, in any order."""
        for sums in wanted.fingerprint.axes:
            if not 2 <= len(sums) <= MOST_SLICES:
                continue
            slices = {wanted.size // len(sums): {int(total): i for i, total in enumerate(sums)}}
            stacks: dict[Window, dict[int, str]] = {}
            for name, given in self.given.items():
                for window, place in windows(given, range(len(given.shape)), slices):
                    stacks.setdefault(window, {}).setdefault(place, name)
            for window, stack in stacks.items():
                keys = [stack[place] for place in sorted(stack)]
                group = stack_of(keys, [self.given[name] for name in keys])
                if group is None or len(set(keys)) < len(sums):
                    continue
                window = replace(window, axis=window.axis + 1)
                part = replace(group, window=window, read=self._sums_of)
                if self._take(wanted, part, "the same part of each leaf"):
                    return

    def _take(self, wanted: Piece, piece: Piece, why: str = "") -> bool:
        """Match the leaves of a group, or a part of each, in an order that gives all wanted elements.

        Where several orders have the sums, elements are compared. A single one is compared later, with all
        others. False if no order fits.
        """
        if len({self.source.dtype_of(key) for key in piece.keys}) > 1:
            return False  # arrays of several dtypes are not stacked
        layouts = layouts_between(piece.fingerprint, wanted.fingerprint)
        array = self._changed(piece) if layouts else piece.array
        for layout in layouts:
            candidates = [
                formation(key, member(layout, array, place), self._evidence, why)
                for place, key in zip(np.ndindex(*wanted.lengths), wanted.keys, strict=True)
            ]
            if len(layouts) == 1 or all(equal_elements(one, self.source, self.target) for one in candidates):
                self.formations.update((one.target, one) for one in candidates)
                return True
        return False

    def _changed(self, piece: Piece) -> SourceExpression:
        """A piece of the source after the operation, as the dtype of the target."""
        array = after(self.operation, piece.array)
        return array if self.source.dtype_of(piece.keys[0]) == self.dtype else cast(array, self.dtype)

    @property
    def _evidence(self) -> Evidence:
        return Evidence.ARITHMETIC if self.operation else Evidence.VALUES

    def _sums_of(self, array: SourceExpression) -> Fingerprint:
        """The sums of an expression over the source, as it is after the operation and the cast."""
        return fingerprint_of(after(self.operation, array), self.source, self.dtype)

    # --- arrays that consist of parts

    def _put_together(self, wanted: Piece, several: Iterable[Pieces]) -> None:
        """Try an array that consists of leaves, of stacks of some, or of slices of one, along an axis.

        Zeros left over at the end of an axis are padding.
        """
        for pieces, axis in itertools.product(several, range(len(wanted.shape))):
            for repeats, links in chains(wanted.fingerprint, axis, pieces):
                found = self._of_chain(wanted, axis, repeats, links)
                if found is not None:
                    self.formations[found.target] = found
                    return

    def _of_chain(
        self, wanted: Piece, axis: int, repeats: int, links: Sequence[tuple[Window, Piece]]
    ) -> Formation | None:
        """Join the parts, in order, as an expression; None if they leave out more than padding."""
        last, whole = links[-1][0], wanted.shape[axis]
        stop = last.start + last.length
        padded = whole // repeats - stop
        zero = int(hashes(np.zeros((1,), self.dtype))[0]) * (wanted.size // whole)
        zeros = bool((wanted.fingerprint.axes[axis][stop:] == np.uint64(zero % (1 << 64))).all())
        if (padded and (repeats > 1 or not zeros)) or (len(links) == 1 and not padded):
            return None
        parts: list[SourceExpression] = []
        for window, piece in links:
            sums = fingerprint_of(window.of(wanted.array), self.target, self.dtype)
            layouts = layouts_between(piece.fingerprint, sums)
            if not layouts:
                return None
            parts.append(laid(layouts[0], self._changed(piece)))
        array = concatenated(parts, axis if repeats == 1 else axis + 1)
        if padded:
            array = called(f"pad({INNER}, axis={axis}, to={whole})", array, wanted.shape)
        if repeats > 1:
            array = reshaped(array, wanted.shape)
        why = f"{'parts' if len(parts) > 1 else 'one leaf'} along axis {axis}{', and zeros' * bool(padded)}"
        return formation(wanted.keys[0], array, self._evidence, why)
