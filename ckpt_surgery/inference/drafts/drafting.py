"""Draft a recipe from findings: few rules that do exactly that, each with its evidence."""

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
"""Rules for unchanged leaves, above which `unmatched: keep` replaces them."""

_MANY_PLAIN = 2
"""Rules that drop or fill leaves, above which one rule by the endings of keys is better."""


@frozen()
class InferredRule(Document):
    """A rule of the draft."""

    rule: Annotated[str, Pattern(r"^rules\[\d+\]$")]
    """Its place in the recipe, such as `rules[0]`."""
    line: int
    """Line of the recipe, from 1."""
    claims: int
    """Number of leaves that it claims."""
    outputs: int
    """Number of leaves that it makes."""
    evidence: EvidenceName | None
    """Weakest evidence among its leaves; null where it drops leaves, or takes the target's values."""
    why: str
    """Details of the evidence; may be empty."""


@frozen()
class Draft:
    """A recipe that does what the findings say, and nothing else."""

    document: dict[str, Any]
    """The recipe in the types of JSON."""
    rules: tuple[InferredRule, ...]
    """Line, leaves and evidence of each rule, in order."""
    text: str
    """The recipe as YAML, with comments."""
    stops: bool = False
    """True if the last rule only keeps the draft from running, because nothing else would."""


@without_collection()
def draft_recipe(
    findings: Findings, header: Sequence[str] = (), policies: Mapping[str, Any] = MappingProxyType({})
) -> Draft:
    """Draft the recipe of these findings. `header`: lines of the comment at its beginning, without `#`;
    `policies`: entries of the recipe before its rules, such as `input`.

    Comments name the undecided leaves, with their candidates; no rule claims them, so `unmatched: error`
    keeps the draft from running by accident. If no source leaf is left unmatched, a last rule does.
    Given rules come first, and claim their leaves: all others are about the remaining leaves.
    """
    given, everything, findings = findings.given, findings, _without_given(findings)
    tables = Tables(given.names)
    source, target = Universe(findings.source_keys), Universe(findings.target_keys)
    moves = [*draft_rules(made_parts(findings), source, tables), *_lookup_rules(everything)]
    rules = [
        *join_rules(moves, source, tables),
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


def _without_given(findings: Findings) -> Findings:
    """Findings about leaves that no given rule claims or makes."""
    claims, makes = findings.given.claims, findings.given.makes
    return replace(
        findings,
        source_keys=tuple(key for key in findings.source_keys if key not in claims),
        dropped=tuple(key for key in findings.dropped if key not in claims),
        formations=tuple(
            formation
            for formation in findings.formations
            if formation.target not in makes and claims.keys().isdisjoint(formation.sources)
        ),
    )


def _lookup_rules(findings: Findings) -> list[RuleDraft]:
    """Rules for target leaves that are computed from leaves claimed by given rules."""
    claims, makes = findings.given.claims, findings.given.makes
    return [
        adding_rule(formation)
        for formation in findings.formations
        if formation.target not in makes and not claims.keys().isdisjoint(formation.sources)
    ]


def _plain(kind: Kind, keys: Sequence[str], universe: Universe, tables: Tables) -> Sequence[RuleDraft]:
    """Rules that drop or fill these keys; a single one by their endings, if that replaces many."""
    rules = draft_rules(plain_parts(kind, keys, universe.below("")), universe, tables)
    rules = join_rules(rules, universe, tables)
    single = by_endings(kind, keys, universe) if len(rules) > _MANY_PLAIN else None
    return rules if single is None else [single]
