"""Which grids can follow from each other by sizes and indices: as they are, stacked, or unstacked."""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.grids import Grid, Numbers

_MOST_INDICES = 5
"""Indices of a key at most for their order to be tried; keys with more pair only index by index."""


@frozen()
class Fit:
    """One way in which the members of a target follow from those of a source, by number and size."""

    how: str
    """`same`: each from one of its own; `stack`: each from several; `unstack`: several from each."""
    pairs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """Keys of the source and keys of the target that belong together; one of the two has one key, the other
    as many as `lengths` multiplied, in the order of their indices."""
    lengths: Shape
    """How many values each index takes along which leaves are stacked; empty for `same`."""
    exact: bool
    """Whether indices that belong together are the same numbers; False where only their order agrees."""


Label = Callable[[str], str]
"""What an index counts, from the text before it: the word for layers, experts and so on."""


def fits(source: Grid, target: Grid, label: Label | None = None) -> tuple[Fit, ...]:
    """The ways in which the target can follow from the source, as far as kinds, sizes and indices tell.

    None where the numbers of elements or the kinds of values differ. Several where it is open which index of
    one side is which of the other.
    """
    if source.kind != target.kind or source.elements != target.elements:
        return ()
    if not source.numeric and (source.shape, source.dtype) != (target.shape, target.dtype):
        return ()
    if source.template.slots == target.template.slots == 0:
        return (Fit("same", ((source.keys, target.keys),), (), True),)
    how = "stack" if len(source.members) > len(target.members) else "unstack"
    many, few = (source, target) if how == "stack" else (target, source)
    if not source.numeric and len(many.members) != len(few.members):
        return ()
    ways = {slots: _fit(many, few, slots, how) for slots in _orders(many.template.slots, few.template.slots)}
    found = {slots: way for slots, way in ways.items() if way is not None}
    labels = [[(label or _last_word)(text) for text in one.template.texts[:-1]] for one in (many, few)]
    agreement = {
        slots: sum(labels[0][a] == b for a, b in zip(slots, labels[1], strict=True)) for slots in found
    }
    best = [slots for slots in found if agreement[slots] == max(agreement.values())]
    plain = tuple(range(many.template.slots))
    return tuple(found[slots] for slots in ([plain] if plain in best else best))


def _orders(n: int, k: int) -> Iterable[tuple[int, ...]]:
    """For each of `k` indices, which of `n` it may be."""
    if n > _MOST_INDICES:
        return [tuple(range(k))] if n == k else []
    return itertools.permutations(range(n), k)


def _fit(many: Grid, few: Grid, slots: Sequence[int], how: str) -> Fit | None:
    """The members of `many` below those of `few`, with these indices in common; None if they do not fit."""
    rest = [slot for slot in range(many.template.slots) if slot not in slots]
    below: dict[Numbers, dict[Numbers, str]] = {}
    for numbers, key in many.members.items():
        shared = tuple(numbers[slot] for slot in slots)
        below.setdefault(shared, {})[tuple(numbers[slot] for slot in rest)] = key
    if len(below) != len(few.members):
        return None
    inner = {tuple(sorted(map(_value, row))) for row in below.values()}
    lengths = tuple(len(set(column)) for column in zip(*next(iter(inner)), strict=True))
    if len(inner) != 1 or math.prod(lengths) != len(next(iter(inner))):
        return None
    matched = _matched(list(below), list(few.members))
    if matched is None:
        return None
    rows = [(_sorted(below[a]), (few.members[b],)) for a, b in matched[0]]
    pairs = rows if how == "stack" else [(one, several) for several, one in rows]
    return Fit(how if lengths else "same", tuple(pairs), lengths, matched[1])


def _matched(
    left: Sequence[Numbers], right: Sequence[Numbers]
) -> tuple[list[tuple[Numbers, Numbers]], bool] | None:
    """Which indices belong together, and whether they are the same numbers; None if they do not pair up."""
    for exact, ranked in ((True, _plain), (False, _ranks)):
        places, wanted = ranked(left), ranked(right)
        if len(places) == len(left) and places.keys() == wanted.keys():
            return [(places[value], wanted[value]) for value in wanted], exact
    return None


def _plain(indices: Sequence[Numbers]) -> dict[tuple[int, ...], Numbers]:
    return {_value(numbers): numbers for numbers in indices}


def _ranks(indices: Sequence[Numbers]) -> dict[tuple[int, ...], Numbers]:
    """Indices by their ranks: of each number, how many smaller ones there are in its place."""
    columns = [sorted(set(column)) for column in zip(*map(_value, indices), strict=True)]
    ranks = [{number: rank for rank, number in enumerate(column)} for column in columns]
    return {
        tuple(rank[number] for rank, number in zip(ranks, _value(numbers), strict=True)): numbers
        for numbers in indices
    }


def _sorted(row: Mapping[Numbers, str]) -> tuple[str, ...]:
    return tuple(key for _, key in sorted(row.items(), key=lambda item: _value(item[0])))


def _value(numbers: Numbers) -> tuple[int, ...]:
    return tuple(map(int, numbers))


def _last_word(text: str) -> str:
    """The last word before an index, in the singular: `layers_` and `layer.` count the same."""
    words: list[str] = re.findall(r"[a-z]+", text.lower())
    return words[-1].rstrip("s") if words else ""
