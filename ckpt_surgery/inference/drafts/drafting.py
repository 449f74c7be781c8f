"""Findings as a recipe: few rules that do exactly what was found, each with its evidence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, cast

from ckpt_surgery.core.documents import Document, Pattern
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.inference.drafts.bundle_rules import adding_rule, draft_rules
from ckpt_surgery.inference.drafts.joining import by_endings, join_rules
from ckpt_surgery.inference.drafts.key_patterns import Universe
from ckpt_surgery.inference.drafts.parts import Kind, RuleDraft, Tables
from ckpt_surgery.inference.drafts.subtree_rules import made_parts, plain_parts
from ckpt_surgery.inference.drafts.writing import document_of, stop_of, summary, text_of, with_stop
from ckpt_surgery.inference.expressions.formations import EvidenceName, Findings

_MANY_KEPT = 2
"""Rules for leaves that stay as they are, above which `unmatched: keep` stands for them."""

_MANY_PLAIN = 2
"""Rules that drop or fill leaves, above which one by the endings of keys is better."""


@frozen()
class InferredRule(Document):
    """A rule of the draft."""

    rule: Annotated[str, Pattern(r"^rules\[\d+\]$")]
    """Which one."""
    line: int
    """Line of the recipe, from 1."""
    claims: int
    """Number of leaves that it claims."""
    outputs: int
    """Number of leaves that it makes."""
    evidence: EvidenceName | None
    """What decided, the weakest of its leaves; null where it drops leaves, or takes the target's values."""
    why: str
    """More about it; empty where there is no more."""


@frozen()
class Draft:
    """A recipe that does what was found, and nothing else."""

    document: dict[str, Any]
    """The recipe in the types of JSON."""
    rules: tuple[InferredRule, ...]
    """What is known of each rule, in order."""
    text: str
    """The recipe as YAML, with comments."""
    stops: bool = False
    """Whether the last rule of the document keeps the draft from running, because nothing else would."""


@without_collection()
def draft_recipe(
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
    made = [*draft_rules(made_parts(findings), source, tables), *_looking_up(everything)]
    rules = [
        *join_rules(made, source, tables),
        *_plain(Kind.DROPPED, findings.dropped, source, tables),
        *_plain(Kind.FILLED, findings.from_target, target, tables),
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
    facts: list[tuple[int, int, EvidenceName | None, str]] = [
        *((claims[at], makes[at], "hint", "") for at in range(len(given.rules))),
        *(
            (len(rule.claims), rule.makes, cast(EvidenceName | None, weakest), "; ".join(whys))
            for rule, (weakest, whys) in zip(rules, evidence, strict=True)
        ),
    ]
    numbered = enumerate(zip(lines, facts, strict=True))
    written = tuple(InferredRule(f"rules[{at}]", line, *fact) for at, (line, fact) in numbered)
    return Draft(document, written, text, stops)


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
        adding_rule(one)
        for one in findings.formations
        if one.target not in makes and not claims.keys().isdisjoint(one.sources)
    ]


def _plain(kind: Kind, keys: Sequence[str], universe: Universe, tables: Tables) -> Sequence[RuleDraft]:
    """Rules that drop or fill these keys; one by what they end with, where there would be many."""
    rules = draft_rules(plain_parts(kind, keys, universe.below("")), universe, tables)
    rules = join_rules(rules, universe, tables)
    one = by_endings(kind, keys, universe) if len(rules) > _MANY_PLAIN else None
    return rules if one is None else [one]
