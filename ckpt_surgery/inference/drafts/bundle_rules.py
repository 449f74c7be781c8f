"""The rules for a bundle of parts: one if possible, else by structure, by number, at last key by key."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from ckpt_surgery.inference.drafts.key_patterns import LONGEST, REST, KeyPattern, NamedGroup, Universe
from ckpt_surgery.inference.drafts.parts import Bundle, KeyPlace, Kind, RulePart, bundles, components, united
from ckpt_surgery.inference.drafts.rule_drafts import DraftedOutput, RuleDraft
from ckpt_surgery.inference.drafts.single_rules import literal, literal_sources, rule_for
from ckpt_surgery.inference.drafts.tables import Tables
from ckpt_surgery.inference.drafts.value_texts import gathers, read_alone, takes_apart, with_sources
from ckpt_surgery.inference.expressions.formations import Formation
from ckpt_surgery.inference.keys.grids import KeyTemplate
from ckpt_surgery.inference.keys.words import span_of


def drafts_of(parts: Iterable[RulePart], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules that do exactly what the parts say, in the order of the parts."""
    found: list[RuleDraft] = []
    for bundle in bundles([_taken_apart(part) for part in parts]):
        found += _rules(bundle, universe, tables)
    return found


def _taken_apart(part: RulePart) -> RulePart:
    """The part as one that looks up all its sources but the first, if its value speaks of them one by one."""
    templates = {place.template for place in part.sources}
    if takes_apart(part.value.text) and 1 < len(part.sources) == len(templates):
        return _looking_up(part)
    return part


def _looking_up(part: RulePart) -> RulePart:
    """The part as one whose rule claims the first of its sources, and looks up the others."""
    looked_up = tuple(place if at else None for at, place in enumerate(part.sources))
    return replace(part, sources=part.sources[:1], looked_up=looked_up)


def _rules(bundle: Bundle, universe: Universe, tables: Tables) -> list[RuleDraft]:
    parts = [part for group in bundle for part in group]
    sources = {place for part in parts for place in part.sources}
    if len(sources) > 1:
        found = rule_for(bundle, universe, tables)
        if found is not None:
            return [found]
        smaller = list(_smaller(bundle))
        if len(smaller) > 1:
            return [rule for one in smaller for rule in _rules(one, universe, tables)]
    elif len(parts) > 1:
        found = rule_for(literal_sources(bundle), universe, tables)
        if found is not None:
            return [found]
    return _by_key(literal(bundle), universe, tables)


# --- smaller bundles --------------------------------------------------------------------------------------


def _smaller(bundle: Bundle) -> Iterator[Bundle]:
    """Bundles that are more alike: by their structure, else by one of their numbers, else each alone."""
    alone = components(bundle)
    if len(alone) < 2:
        return
    split = _split(alone, map(_structure, alone))
    if len(split) == 1:
        several = [_split(alone, column) for column in zip(*map(_numbers, alone), strict=True)]
        useful = [one for one in several if 1 < len(one) < len(alone)]
        split = min(useful, key=len) if useful else [[one] for one in alone]
    yield from (united(one) for one in split)


def _split(several: Sequence[Bundle], marks: Iterable[Hashable]) -> list[list[Bundle]]:
    found: dict[Hashable, list[Bundle]] = defaultdict(list)
    for one, mark in zip(several, marks, strict=True):
        found[mark].append(one)
    return list(found.values())


def _structure(bundle: Bundle) -> Hashable:
    """How many parts of which kind there are, and of how many leaves each."""
    return tuple(
        (
            None if group[0].target is None else group[0].target.template,
            group[0].value.text,
            tuple(sorted(len(part.sources) for part in group)),
        )
        for group in bundle
    )


def _numbers(bundle: Bundle) -> Sequence[str]:
    """The numbers of the first source and of the first target."""
    first = bundle[0][0]
    return (*first.sources[0].numbers, *(() if first.target is None else first.target.numbers))


# --- key by key -------------------------------------------------------------------------------------------


def _by_key(bundle: Bundle, universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules for leaves that hang together, with their keys as they are."""
    found = rule_for(bundle, universe, tables)
    if found is not None:
        return [found]
    parts = [part for group in bundle for part in group]
    if all(part.sources == parts[0].sources and gathers(part.value.text) for part in parts):
        found = _listed(parts, universe, tables)
        if found is not None:
            return [found]
    return [_added(part) for part in parts]


def added(one: Formation) -> RuleDraft:
    """A rule that makes one leaf, and claims nothing."""
    *places, target = (KeyPlace(KeyTemplate((key,)), ()) for key in (*one.sources, one.target))
    return _added(RulePart(Kind.MADE, tuple(places), target, one.value, ((one.evidence, one.why),)))


def _listed(parts: Sequence[RulePart], universe: Universe, tables: Tables) -> RuleDraft | None:
    """A rule that claims the entries of a table, which also gives their order."""
    keys = tuple(place.text for place in parts[0].sources)
    if len(set(keys)) < len(keys):
        return None
    span = span_of(keys)
    pattern = KeyPattern.of(span.before, NamedGroup("rest", REST), span.after)
    if len(span.before) + len(span.after) > LONGEST or not universe.matched(pattern).keys() >= set(keys):
        return None
    order = tables.named("members", {key: at for at, key in enumerate(keys)})
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
    return RuleDraft(
        Kind.MADE,
        None,
        (DraftedOutput((part.target.text,), value),),
        (),
        1,
        reasons=part.reasons,
        looks_up=True,
    )
