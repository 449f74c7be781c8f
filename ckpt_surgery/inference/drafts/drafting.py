"""Findings as a recipe: few rules that do exactly what was found, each with its evidence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.bundle_rules import added, drafts_of
from ckpt_surgery.inference.drafts.joining import by_endings, join_rules
from ckpt_surgery.inference.drafts.key_patterns import Universe
from ckpt_surgery.inference.drafts.parts import Kind, RuleDraft
from ckpt_surgery.inference.drafts.subtree_rules import made_parts, plain_parts
from ckpt_surgery.inference.drafts.tables import Tables
from ckpt_surgery.inference.drafts.writing import document_of, stop_of, summary, text_of, with_stop
from ckpt_surgery.inference.expressions.formations import Evidence, Findings

_MANY_KEPT = 2
"""Rules for leaves that stay as they are, above which `unmatched: keep` stands for them."""

_MANY_PLAIN = 2
"""Rules that drop or fill leaves, above which one by the endings of keys is better."""


@frozen()
class DraftedRule:
    """What is known of one rule of a draft."""

    rule: str
    """`rules[0]`"""
    line: int
    """The line of the text that it begins at, counted from 1."""
    claims: int
    """The number of keys that it claims: of the source, or of the target for `fill`."""
    outputs: int
    """The number of keys of the target that it makes."""
    evidence: Evidence | None
    """None for rules that drop leaves, or take the target's values."""
    why: str
    """More than the evidence says: clauses without a full stop, or nothing."""


@frozen()
class Draft:
    """A recipe that does what was found, and nothing else."""

    document: dict[str, Any]
    """The recipe in the types of JSON."""
    rules: tuple[DraftedRule, ...]
    """What is known of each rule, in order."""
    text: str
    """The recipe as YAML, with comments."""
    stops: bool = False
    """Whether the last rule of the document keeps the draft from running, because nothing else would."""


def drafted(
    findings: Findings, header: Sequence[str] = (), policies: Mapping[str, Any] = MappingProxyType({})
) -> Draft:
    """The recipe that does what was found. `header`: lines of the comment at its beginning, without `#`;
    `policies`: entries of the recipe before its rules, such as `input`.

    What is not decided is said in comments, with its candidates; no rule claims their leaves, and
    `unmatched: error` keeps the draft from running by accident. Where no leaf is left, a last rule does.
    Rules that are given come first, and claim their leaves: all others are about what these leave.
    """
    given, everything, findings = findings.given, findings, _left(findings)
    tables = Tables(given.names)
    source, target = Universe(findings.source_keys), Universe(findings.target_keys)
    made = drafts_of(made_parts(findings), source, tables)
    made += _looking_up(everything)
    dropped = drafts_of(plain_parts(Kind.DROPPED, findings.dropped, findings.source_keys), source, tables)
    filled = drafts_of(plain_parts(Kind.FILLED, findings.from_target, findings.target_keys), target, tables)
    rules = [
        *join_rules(made, source, tables),
        *_fewest(Kind.DROPPED, findings.dropped, join_rules(dropped, source, tables), source),
        *_fewest(Kind.FILLED, findings.from_target, join_rules(filled, target, tables), target),
    ]
    kept = [rule for rule in rules if rule.kind is Kind.KEPT]
    claimed = {key for rule in rules if rule.kind is not Kind.FILLED for key in rule.claims}
    complete = claimed >= set(findings.source_keys)
    keeps = len(kept) > _MANY_KEPT and complete and not findings.undecided
    if keeps:
        rules = [rule for rule in rules if rule.kind is not Kind.KEPT]
    document = document_of(rules, tables, keeps, policies, given)
    evidence = [summary(rule.reasons) for rule in rules]
    text, lines = text_of(document, evidence, header, findings)
    stops = complete and bool(findings.undecided)
    if stops:
        document["rules"].append(stop_of(findings.undecided))
        text = with_stop(text, document["rules"][-1])
    claims, makes = Counter(given.claims.values()), Counter(given.makes.values())
    first = len(given.rules)
    told = [
        DraftedRule(f"rules[{at}]", line, claims[at], makes[at], Evidence.HINT, "")
        for at, line in enumerate(lines[:first])
    ]
    told += [
        DraftedRule(f"rules[{at}]", line, len(rule.claims), rule.makes, weakest, "; ".join(whys))
        for at, (rule, line, (weakest, whys)) in enumerate(
            zip(rules, lines[first:], evidence, strict=True), first
        )
    ]
    return Draft(document, tuple(told), text, stops)


def _left(findings: Findings) -> Findings:
    """What is found about leaves that no given rule claims or makes."""
    claims, makes = findings.given.claims, findings.given.makes
    return replace(
        findings,
        source_keys=tuple(key for key in findings.source_keys if key not in claims),
        dropped=tuple(key for key in findings.dropped if key not in claims),
        formations=tuple(
            one
            for one in findings.formations
            if one.target not in makes and claims.keys().isdisjoint(one.sources)
        ),
    )


def _looking_up(findings: Findings) -> list[RuleDraft]:
    """Rules for leaves of the target that are made of leaves which given rules claim."""
    claims, makes = findings.given.claims, findings.given.makes
    return [
        added(one)
        for one in findings.formations
        if one.target not in makes and not claims.keys().isdisjoint(one.sources)
    ]


def _fewest(
    kind: Kind, keys: Sequence[str], rules: Sequence[RuleDraft], universe: Universe
) -> Sequence[RuleDraft]:
    """The rules, or one rule about the same keys by what they end with, where there would be many."""
    one = by_endings(kind, keys, universe) if len(rules) > _MANY_PLAIN else None
    return rules if one is None else [one]
