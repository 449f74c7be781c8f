"""Draft the rules of a bundle of parts: a single one, else by structure, by number, or key by key."""

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
    bundles = connected(grouped(map(_claim_first_source, parts)))
    return [rule for bundle in bundles for rule in _rules(bundle, universe, tables)]


def _claim_first_source(part: RulePart) -> RulePart:
    """Claim the first source of a part and look up the others, if its value names them one by one."""
    patterns = {place.pattern for place in part.sources}
    if takes_apart(part.value.text) and 1 < len(part.sources) == len(patterns):
        return replace(part, sources=part.sources[:1], looked_up=(None, *part.sources[1:]))
    return part


def _rules(bundle: Bundle, universe: Universe, tables: Tables) -> list[RuleDraft]:
    single = rule_for(bundle, universe, tables)
    if single is not None:
        return [single]
    smaller = list(_smaller(bundle))
    if len(smaller) > 1:
        return [rule for part in smaller for rule in _rules(part, universe, tables)]
    return _by_key([part for group in bundle for part in group], universe, tables)


# --- smaller bundles --------------------------------------------------------------------------------------


def _smaller(bundle: Bundle) -> Iterator[Bundle]:
    """Split a bundle by structure, else by one of the numbers in its keys, else into its smallest bundles."""
    alone = [
        grouped(part for group in smallest for part in group)
        for smallest in connected([part] for group in bundle for part in group)
    ]
    if len(alone) < 2:
        return
    split = _split(alone, map(_structure, alone))
    if len(split) == 1:
        by_number = [_split(alone, column) for column in zip(*map(_numbers, alone), strict=True)]
        useful = [bundles for bundles in by_number if 1 < len(bundles) < len(alone)]
        split = min(useful, key=len) if useful else [[smallest] for smallest in alone]
    for bundles in split:
        yield grouped(part for smallest in bundles for group in smallest for part in group)


def _split(bundles: Sequence[Bundle], marks: Iterable[Hashable]) -> list[list[Bundle]]:
    by_mark: dict[Hashable, list[Bundle]] = defaultdict(list)
    for bundle, mark in zip(bundles, marks, strict=True):
        by_mark[mark].append(bundle)
    return list(by_mark.values())


def _structure(bundle: Bundle) -> Hashable:
    """Target pattern, value and sorted source counts of each group."""
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
    """Rules for connected leaves, with their keys written out."""
    rule = rule_for([[part] for part in parts], universe, tables)
    if rule is None and all(part.sources == parts[0].sources and gathers(part.value.text) for part in parts):
        rule = _table_rule(parts, universe, tables)
    return [_lookup_rule(part) for part in parts] if rule is None else [rule]


def adding_rule(formation: Formation) -> RuleDraft:
    """A rule that adds one leaf and claims none."""
    *places, target = (KeyPlace(KeyPattern((key,))) for key in (*formation.sources, formation.target))
    reasons = ((formation.evidence, formation.why),)
    return _lookup_rule(RulePart(Kind.MADE, tuple(places), target, formation.value, reasons))


def _table_rule(parts: Sequence[RulePart], universe: Universe, tables: Tables) -> RuleDraft | None:
    """A rule that claims the keys listed in a table, in the order of the table."""
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


def _lookup_rule(part: RulePart) -> RuleDraft:
    """A rule that claims nothing and looks up every leaf of its value."""
    places = [place or part.sources[0] for place in part.looked_up] or list(part.sources)
    sources = [f"source[{place.text!r}]" for place in places]
    text = str(part.value)
    value = with_sources(text, sources) if gathers(text) else read_alone(text, sources[0])
    assert part.target is not None
    outputs = (DraftedOutput((part.target.text,), value),)
    return RuleDraft(Kind.MADE, None, outputs, (), 1, reasons=part.reasons)
