"""Match grids by sizes and indices: their members as they are, stacked, or unstacked."""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.expression_text import keys_and_value
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, Value
from ckpt_surgery.inference.expressions.layouts import Layout, layouts, plausible
from ckpt_surgery.inference.expressions.source_expressions import cast, indexed, laid, of_leaves
from ckpt_surgery.inference.keys.concepts import counted
from ckpt_surgery.inference.keys.grids import Grid, Numbers
from ckpt_surgery.inference.values.pieces import Window

_MOST_INDICES = 5
"""Most indices of a key whose orders are tried; keys with more pair only index by index."""


@dataclass(frozen=True)
class FusedPart(Grid):
    """Some rows of each member of a grid, as a grid of their own: the queries of a fused `qkv`."""

    window: Window = field(kw_only=True)
    """The rows."""
    whole: Shape = field(kw_only=True)
    """Shape of the members of which these are the rows."""


@dataclass(frozen=True)
class Match:
    """One way in which the members of a grid of the target follow from those of one of the source."""

    source: Grid
    target: Grid
    how: str = "same"
    """`same`: each from one of its own; `stack`: each from several; `unstack`: several from each."""
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Keys of the source and keys of the target that belong together; one of the two has one key, the other
    as many as `lengths` multiplied, in the order of their indices."""
    lengths: Shape = ()
    """Number of values of each index along which leaves are stacked; empty for `same`."""
    exact: bool = True
    """True if indices that belong together are the same numbers; False if only their order agrees."""

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts from the stack of members to the whole; for `unstack`, the other way round."""
        if not self.source.numeric:
            return tuple(layouts(self.source.shape, self.target.shape)[:1])
        part, whole = (self.target, self.source) if self.how == "unstack" else (self.source, self.target)
        stacked = len(self.lengths)
        return tuple(plausible(layouts((*self.lengths, *part.shape), whole.shape, stacked), stacked))

    def formations(self, layout: Layout, evidence: Evidence, why: str) -> Iterator[Formation]:
        """Formations of all leaves of the target with this layout."""
        values = [self.value(layout, at) for at in range(len(self.rows[0][1]) if self.rows else 0)]
        for sources, targets in self.rows:
            for target, value in zip(targets, values, strict=True):
                yield Formation(target, sources, value, evidence, why)

    def value(self, layout: Layout, at: int = 0) -> Value:
        """Expression of the target leaf with this number among those that follow from one source."""
        lengths = self.lengths if self.how == "stack" else ()
        part = self.source if isinstance(self.source, FusedPart) else None
        array = of_leaves(self.rows[0][0], lengths, part.whole if part else self.source.shape)
        if part:
            array = replace(part.window, axis=part.window.axis + len(lengths)).of(array)
        if self.how == "unstack":
            place = tuple(map(int, np.unravel_index(at, self.lengths)))
            array = indexed(laid(layout.inverse(), array), place)
        else:
            array = laid(layout, array)
        if self.target.dtype is not None and self.source.dtype != self.target.dtype:
            array = cast(array, self.target.dtype)
        return keys_and_value(array)[1]


def matches(source: Grid, target: Grid) -> tuple[Match, ...]:
    """The ways in which the target can follow from the source by kinds, sizes and indices.

    Empty where the numbers of elements or the kinds of values differ. Several where even the words before
    indices do not show which index of one side is which of the other.
    """
    if source.kind != target.kind or source.elements != target.elements:
        return ()
    if not source.numeric and (source.shape, source.dtype) != (target.shape, target.dtype):
        return ()
    stack = len(source.members) > len(target.members)
    many, few = (source, target) if stack else (target, source)
    n, plain = many.template.slots, tuple(range(many.template.slots))
    orders = itertools.permutations(plain, few.template.slots) if n <= _MOST_INDICES else [plain]
    ways = {slots: way for slots in orders if (way := _match(many, few, slots, stack)) is not None}
    counts, others = ([counted(text) for text in one.template.texts[:-1]] for one in (many, few))
    agreement = {slots: sum(counts[a] == b for a, b in zip(slots, others, strict=True)) for slots in ways}
    best = [slots for slots in ways if agreement[slots] == max(agreement.values())]
    return tuple(ways[slots] for slots in ([plain] if plain in best else best))


def _match(many: Grid, few: Grid, slots: Sequence[int], stack: bool) -> Match | None:
    """The members of `many` below those of `few`, with these indices in common; None if they do not fit."""
    rest = [slot for slot in range(many.template.slots) if slot not in slots]
    below: dict[Numbers, dict[tuple[int, ...], str]] = {}
    for numbers, key in many.members.items():
        shared = tuple(numbers[slot] for slot in slots)
        below.setdefault(shared, {})[tuple(int(numbers[slot]) for slot in rest)] = key
    inner, *others = (sorted(row) for row in below.values())
    lengths = tuple(len(set(column)) for column in zip(*inner, strict=True))
    left, right = _by_ranks(below), _by_ranks(few.members)
    fits = left.keys() == right.keys() and len(many.members) == len(left) * len(inner)
    if not fits or math.prod(lengths) != len(inner) or any(row != inner for row in others):
        return None
    rows = [(tuple(below[left[rank]][at] for at in inner), (few.members[b],)) for rank, b in right.items()]
    exact = all(_value(left[rank]) == _value(b) for rank, b in right.items())
    if stack:
        return Match(many, few, "stack", tuple(rows), lengths, exact)
    turned = tuple((one, several) for several, one in rows)
    return Match(few, many, "unstack" if lengths else "same", turned, lengths, exact)


def _by_ranks(indices: Iterable[Numbers]) -> dict[tuple[int, ...], Numbers]:
    """Indices by the rank of each of their numbers among those in the same place."""
    values = {numbers: _value(numbers) for numbers in indices}
    columns = [sorted(set(column)) for column in zip(*values.values(), strict=True)]
    return {tuple(map(bisect.bisect, columns, value)): numbers for numbers, value in values.items()}


def _value(numbers: Numbers) -> tuple[int, ...]:
    return tuple(map(int, numbers))
