"""The rules for a bundle of parts: one if possible, else by structure, by number, at last key by key."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from ckpt_surgery.inference.drafts.key_patterns import BELOW, LONGEST, KeyPattern, KeyPlace, Universe, span_of
from ckpt_surgery.inference.drafts.parts import (
    Bundle,
    DraftedOutput,
    Kind,
    RuleDraft,
    RulePart,
    Tables,
    connected,
    gathers,
    grouped,
    read_alone,
    takes_apart,
    with_sources,
)
from ckpt_surgery.inference.drafts.single_rules import rule_for
from ckpt_surgery.inference.expressions.formations import Formation


def draft_rules(parts: Iterable[RulePart], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules that do exactly what the parts say, in the order of the parts."""
    found: list[RuleDraft] = []
    for bundle in connected(grouped(map(_taken_apart, parts))):
        found += _rules(bundle, universe, tables)
    return found


def _taken_apart(part: RulePart) -> RulePart:
    """The part as one that looks up all its sources but the first, if its value speaks of them one by one."""
    patterns = {place.pattern for place in part.sources}
    if takes_apart(part.value.text) and 1 < len(part.sources) == len(patterns):
        return replace(part, sources=part.sources[:1], looked_up=(None, *part.sources[1:]))
    return part


def _rules(bundle: Bundle, universe: Universe, tables: Tables) -> list[RuleDraft]:
    found = rule_for(bundle, universe, tables)
    if found is not None:
        return [found]
    smaller = list(_smaller(bundle))
    if len(smaller) > 1:
        return [rule for one in smaller for rule in _rules(one, universe, tables)]
    return _by_key([part for group in bundle for part in group], universe, tables)


# --- smaller bundles --------------------------------------------------------------------------------------


def _smaller(bundle: Bundle) -> Iterator[Bundle]:
    """Bundles that are more alike: by their structure, else by one of their numbers, else each alone."""
    alone = [
        grouped(part for group in one for part in group)
        for one in connected([part] for group in bundle for part in group)
    ]
    if len(alone) < 2:
        return
    split = _split(alone, map(_structure, alone))
    if len(split) == 1:
        several = [_split(alone, column) for column in zip(*map(_numbers, alone), strict=True)]
        useful = [one for one in several if 1 < len(one) < len(alone)]
        split = min(useful, key=len) if useful else [[one] for one in alone]
    yield from (grouped(part for one in bundles for group in one for part in group) for bundles in split)


def _split(several: Sequence[Bundle], marks: Iterable[Hashable]) -> list[list[Bundle]]:
    found: dict[Hashable, list[Bundle]] = defaultdict(list)
    for one, mark in zip(several, marks, strict=True):
        found[mark].append(one)
    return list(found.values())


def _structure(bundle: Bundle) -> Hashable:
    """How many parts of which kind there are, and of how many leaves each."""
    return tuple(
        (
            None if group[0].target is None else group[0].target.pattern,
            group[0].value.text,
            tuple(sorted(len(part.sources) for part in group)),
        )
        for group in bundle
    )


def _numbers(bundle: Bundle) -> Sequence[str]:
    """The numbers of the first source and of the first target."""
    first = bundle[0][0]
    return (*first.sources[0].values, *(() if first.target is None else first.target.values))


# --- key by key -------------------------------------------------------------------------------------------


def _by_key(parts: Sequence[RulePart], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules for leaves that hang together, with their keys as they are."""
    found = rule_for([[part] for part in parts], universe, tables)
    if found is None and all(part.sources == parts[0].sources and gathers(part.value.text) for part in parts):
        found = _listed(parts, universe, tables)
    return [_added(part) for part in parts] if found is None else [found]


def adding_rule(one: Formation) -> RuleDraft:
    """A rule that makes one leaf, and claims nothing."""
    *places, target = (KeyPlace(KeyPattern((key,))) for key in (*one.sources, one.target))
    return _added(RulePart(Kind.MADE, tuple(places), target, one.value, ((one.evidence, one.why),)))


def _listed(parts: Sequence[RulePart], universe: Universe, tables: Tables) -> RuleDraft | None:
    """A rule that claims the entries of a table, which also gives their order."""
    keys = tuple(place.text for place in parts[0].sources)
    if len(set(keys)) < len(keys):
        return None
    span = span_of(keys)
    pattern = KeyPattern((span.before, span.after), (BELOW,))
    if len(span.before) + len(span.after) > LONGEST or not universe.matched(pattern).keys() >= set(keys):
        return None
    order = tables.named("members", {key: at for at, key in enumerate(keys)}, alone=True)
    outputs = tuple(
        DraftedOutput((part.target.text,), str(part.value)) for part in parts if part.target is not None
    )
    return RuleDraft(
        Kind.MADE,
        pattern,
        outputs,
        keys,
        len(parts),
        by=f"{order}[key]",
        when=f"key in {order}",
        reasons=tuple(reason for part in parts for reason in part.reasons),
    )


def _added(part: RulePart) -> RuleDraft:
    """A rule that claims nothing, and looks up all that the value reads."""
    places = [one or part.sources[0] for one in part.looked_up] or list(part.sources)
    sources = [f"source[{place.text!r}]" for place in places]
    text = str(part.value)
    value = with_sources(text, sources) if gathers(text) else read_alone(text, sources[0])
    assert part.target is not None
    outputs = (DraftedOutput((part.target.text,), value),)
    return RuleDraft(Kind.MADE, None, outputs, (), 1, reasons=part.reasons)
