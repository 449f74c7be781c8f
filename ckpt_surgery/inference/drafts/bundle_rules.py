"""Draft the rules of a bundle of parts: a single one, else by structure, by number, or leaf by leaf."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from ckpt_surgery.inference.drafts.key_patterns import Universe
from ckpt_surgery.inference.drafts.parts import (
    Bundle,
    RuleDraft,
    RulePart,
    Tables,
    connected,
    grouped,
    looking_up,
)
from ckpt_surgery.inference.drafts.single_rules import rule_for


def draft_rules(parts: Iterable[RulePart], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules that do exactly what the parts say, in the order of the parts."""
    return [rule for bundle in connected(grouped(parts)) for rule in _rules(bundle, universe, tables)]


def _rules(bundle: Bundle, universe: Universe, tables: Tables) -> list[RuleDraft]:
    single = rule_for(bundle, universe, tables)
    if single is not None:
        return [single]
    smaller = _smaller(bundle)
    if len(smaller) > 1:
        return [rule for part in smaller for rule in _rules(part, universe, tables)]
    parts = [part for group in bundle for part in group]
    single = rule_for([[part] for part in parts], universe, tables)  # with all keys written out
    if single is not None:
        return [single]
    return [
        looking_up([place.text for place in part.sources], part.target.text, part.value, part.reasons)
        for part in parts
        if part.target is not None
    ]


def _smaller(bundle: Bundle) -> list[Bundle]:
    """Split a bundle by structure, else by one of the numbers in its keys, else into its smallest bundles."""
    parts = [part for group in bundle for part in group]
    units = [grouped(part for [part] in unit) for unit in connected([part] for part in parts)]
    split = _split(units, map(_structure, units))
    if len(split) == 1:
        by_number = [_split(units, column) for column in zip(*map(_numbers, units), strict=True)]
        useful = [some for some in by_number if 1 < len(some) < len(units)]
        split = min(useful, key=len) if useful else [[unit] for unit in units]
    return [grouped(part for unit in some for group in unit for part in group) for some in split]


def _split(units: Sequence[Bundle], marks: Iterable[Hashable]) -> list[list[Bundle]]:
    by_mark: dict[Hashable, list[Bundle]] = defaultdict(list)
    for unit, mark in zip(units, marks, strict=True):
        by_mark[mark].append(unit)
    return list(by_mark.values())


def _structure(unit: Bundle) -> Hashable:
    """Target pattern, value and sorted source counts of each group."""
    return tuple(
        (
            group[0].target and group[0].target.pattern,
            group[0].value.text,
            *sorted(len(part.sources) for part in group),
        )
        for group in unit
    )


def _numbers(unit: Bundle) -> Sequence[str]:
    """The numbers of the first source and of the first target."""
    first = unit[0][0]
    return (*first.sources[0].values, *(() if first.target is None else first.target.values))
