"""Match leaves by values: which leaves of the source hold the numbers of a target leaf, in what order.

Sums of hashes decide. The search goes from the plainest match to the most involved: one leaf from one leaf;
one leaf from a stack, or several leaves from one array; stacks in odd orders; parts of an axis; and arrays
that are put together of parts.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    joined,
    laid,
    member,
    of_leaves,
    reshaped,
)
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.fingerprints import Fingerprint, Words, hashes, kind_of
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
        formations += search.all()
        reordered |= search.reordered()
    return ByValues(tuple(formations), reordered)


def match_after_operation(
    operation: str, source: Side, target: Side, keys: Collection[str], wanted: Collection[str]
) -> ByValues:
    """Match these leaves of the source, after an operation, to the wanted leaves of the target.

    `operation`: the text after an array in an expression, such as ` + 1.0`. Both sides have values; only
    floats are considered.
    """
    target_sums = {key: target.sums(key) for key in _floats(target, wanted)}
    sizes = {sums.size for sums in target_sums.values() if sums.size}
    dtypes = dict.fromkeys(target.dtype_of(key) for key in target_sums)
    known = {}
    for key, sums in ((key, source.sums(key)) for key in _floats(source, keys)):
        if sums.size and any(size % sums.size == 0 or sums.size % size == 0 for size in sizes):
            changed = after(operation, of_leaves([key], (), sums.shape))
            known[key] = {dtype: fingerprint_of(changed, source, dtype) for dtype in dtypes}
    given = replace(source, leaves={key: source.leaves[key] for key in known}, fingerprints=known)
    own = {key: target.fingerprints[key] for key in target_sums}
    left = replace(target, leaves={key: target.leaves[key] for key in target_sums}, fingerprints=own)
    return match_by_values(given, left, operation=operation)


def _floats(side: Side, keys: Iterable[str]) -> Iterator[str]:
    """Keys of the float arrays whose values are known."""
    known = (key for key in keys if key in side.fingerprints and side.is_array(key))
    return (key for key in known if kind_of(side.dtype_of(key)) == "f")


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
        self.every = by_sums(singles(self.given))
        """All leaves, those of one repeated value, too."""
        self.groups = [*singles(self.given), *grid_stacks(self.source.grids, self.given)]
        self.sources = self._telling(self.groups)
        self.templates = {key: grid.template for grid in self.source.grids for key in grid.keys}

    @staticmethod
    def _telling(groups: Iterable[Piece]) -> Pieces:
        return by_sums(group for group in groups if not group.constant)

    def all(self) -> list[Formation]:
        if not self.wanted:
            return []
        for group in singles(self.wanted):
            self._of_whole(group)
        for key in self._missing():
            self._of_slices(key)
        for group in self._missing_groups(grid_stacks):
            self._of_whole(group)
        for step in (self._of_siblings, self._of_parts, self._of_sliced_parts, self._put_together):
            if self._missing():
                step()
        return list(self.formations.values())

    def reordered(self) -> dict[str, tuple[str, ...]]:
        """Sources of the leaves that are left over, though the source has all of their elements."""
        sources: dict[str, tuple[str, ...]] = {}
        for make in (grid_stacks, sibling_stacks):
            for wanted in (*self._missing_singles(), *self._missing_groups(make)):
                for group in self._nearest(wanted)[:1]:
                    sources |= {key: group.keys for key in wanted.keys if key not in sources}
        return sources

    def _missing(self) -> list[str]:
        return [key for key in self.wanted if key not in self.formations]

    def _missing_singles(self) -> Iterator[Piece]:
        return (single(key, self.wanted[key]) for key in self._missing())

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

    def _of_whole(self, wanted: Piece) -> None:
        """Try leaves of the source that together hold the elements of these leaves."""
        any(self._take(wanted, group) for group in self._nearest(wanted))

    def _of_slices(self, key: str) -> None:
        """Try a stack of any leaves, in any order."""
        wanted = self.wanted[key]
        for axis, sums in enumerate(wanted.axes):
            keys = self._slices(sums, wanted.size // len(sums), key) if len(sums) > 1 else ()
            group = stack_of(keys, [self.given[name] for name in keys])
            why = f"each slice along axis {axis} is one leaf"
            if group is not None and self._take(single(key, wanted), group, why):
                return

    def _slices(self, sums: Words, size: int, key: str) -> Sequence[str]:
        """A different leaf for each of these sums; empty if one is missing.

        Leaves of one repeated value count only beside others of their family.
        """
        keys: list[str] = []
        for total in sums:
            alike = self.every.get(size, {}).get(int(total), ())[:MOST_OF_EQUAL_SUM]
            candidates = [piece.keys[0] for piece in alike if piece.keys[0] not in keys]
            if not candidates:
                return ()
            keys.append(max(candidates, key=lambda name: resemblance(name, key)))
        telling = {self.templates[name] for name in keys if not self.given[name].constant}
        return keys if telling >= {self.templates[name] for name in keys} else ()

    def _of_siblings(self) -> None:
        """Try families that were fused, or split, evenly."""
        self.sources = self._telling((*self.groups, *sibling_stacks(self.source.grids, self.given)))
        for make in (lambda *_: self._missing_singles(), grid_stacks, sibling_stacks):
            for group in self._missing_groups(make):
                self._of_whole(group)

    def _of_parts(self) -> None:
        """Try leaves that hold a part of an axis of the source's arrays."""
        for group in self.groups:
            sums = by_sums((*self._missing_singles(), *self._missing_groups(grid_stacks)))
            if not sums:
                return
            axes = range(len(group.lengths), len(group.shape))
            for window, (wanted, *_) in windows(group.fingerprint, axes, sums):
                if self.formations.keys().isdisjoint(wanted.keys):
                    why = "" if group.lengths or wanted.lengths else f"a part of axis {window.axis}"
                    self._take(wanted, self._part(group, window), why)

    def _part(self, group: Piece, window: Window) -> Piece:
        return replace(group, window=window, read=self._sums_of)

    def _of_sliced_parts(self) -> None:
        """Try stacks of parts of leaves, the same part of each."""
        for key in self._missing():
            self._of_sliced_part(key, self.wanted[key])

    def _of_sliced_part(self, key: str, wanted: Fingerprint) -> None:
        for sums in wanted.axes:
            if not 2 <= len(sums) <= MOST_SLICES:
                continue
            slices = {wanted.size // len(sums): {int(total): i for i, total in enumerate(sums)}}
            stacks: dict[Window, dict[int, str]] = {}
            for name, given in self.given.items():
                for window, place in windows(given, range(len(given.shape)), slices):
                    stacks.setdefault(window, {}).setdefault(place, name)
            for window, stack in stacks.items():
                keys = [stack[i] for i in range(len(sums)) if i in stack]
                group = stack_of(keys, [self.given[name] for name in keys])
                if group is None or len(set(keys)) < len(sums):
                    continue
                part = self._part(group, replace(window, axis=window.axis + 1))
                if self._take(single(key, wanted), part, "the same part of each leaf"):
                    return

    def _take(self, wanted: Piece, piece: Piece, why: str = "") -> bool:
        """Match the leaves of a group, or a part of each, in an order that gives all wanted elements.

        Where several orders have the sums, elements are compared. A single one is compared later, with all
        others. False if no order fits.
        """
        if len({self.source.dtype_of(key) for key in piece.keys}) > 1:
            return False  # arrays of several dtypes are not stacked
        array = after(self.operation, piece.array)
        if self.source.dtype_of(piece.keys[0]) != self.dtype:
            array = cast(array, self.dtype)
        layouts = layouts_between(piece.marginals, wanted.fingerprint)
        for layout in layouts:
            candidates = [
                formation(key, member(layout, array, place), self._evidence, why)
                for place, key in zip(np.ndindex(*wanted.lengths), wanted.keys, strict=True)
            ]
            if len(layouts) == 1 or all(equal_elements(one, self.source, self.target) for one in candidates):
                self.formations.update((one.target, one) for one in candidates)
                return True
        return False

    @property
    def _evidence(self) -> Evidence:
        return Evidence.ARITHMETIC if self.operation else Evidence.VALUES

    def _sums_of(self, array: SourceExpression) -> Fingerprint:
        """The sums of an expression over the source, as it is after the operation and the cast."""
        return fingerprint_of(after(self.operation, array), self.source, self.dtype)

    # --- arrays that consist of parts

    def _put_together(self) -> None:
        """Try arrays that consist of parts: leaves of the source, stacks of some, or slices of one.

        Zeros left over at the end of an axis are padding.
        """
        several = self.sources, sliced_pieces(singles(self.given), self._sums_of)
        for wanted in list(self._missing_singles()):
            candidates = (
                self._of_chain(wanted, axis, repeats, links)
                for pieces in several
                for axis in range(len(wanted.shape))
                for repeats, links in chains(wanted.fingerprint, axis, pieces)
            )
            first = next((one for one in candidates if one is not None), None)
            if first is not None:
                self.formations[first.target] = first

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
            rows = replace(window, keep=True).of(wanted.array)
            layouts = layouts_between(piece.marginals, fingerprint_of(rows, self.target, self.dtype))
            if not layouts:
                return None
            parts.append(after(self.operation, laid(layouts[0], piece.array)))
        dtypes = {self.source.dtype_of(key) for _, piece in links for key in piece.keys}
        along = axis if repeats == 1 else axis + 1
        if len(dtypes) > 1:  # arrays of several dtypes cannot be joined before they are cast
            array = joined([cast(part, self.dtype) for part in parts], along)
        else:
            array = concatenated(parts, along)
        if padded:
            array = called(f"pad({INNER}, axis={axis}, to={whole})", array, wanted.shape)
        if repeats > 1:
            array = reshaped(array, wanted.shape)
        if len(dtypes) == 1 and dtypes != {self.dtype}:
            array = cast(array, self.dtype)
        what = "parts" if len(parts) > 1 else "one leaf"
        why = f"{what} along axis {axis}" + (", and zeros" if padded else "")
        return formation(wanted.keys[0], array, self._evidence, why)
