"""Draft a recipe from findings: few rules that do exactly that, each with its evidence."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, cast

from ckpt_surgery.core.documents import Document, Pattern
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.inference.drafts.joining import draft_rules, join_rules, plain_rules
from ckpt_surgery.inference.drafts.key_patterns import Universe
from ckpt_surgery.inference.drafts.parts import RuleDraft, Tables, looking_up
from ckpt_surgery.inference.drafts.subtree_rules import made_parts
from ckpt_surgery.inference.drafts.writing import Summary, document_of, stop_of, summary, text_of
from ckpt_surgery.inference.expressions.formations import EvidenceName, Findings

_MANY_KEPT = 2
"""Rules for unchanged leaves, above which `unmatched: keep` replaces them."""


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
    Given rules come first, and claim their leaves: all others are about the remaining leaves, and look up
    those of the given ones that they need.
    """
    given = findings.given
    tables = Tables(given.names)
    others = [one for one in findings.formations if one.target not in given.makes]
    free = [one for one in others if given.claims.keys().isdisjoint(one.sources)]
    looked_up = [one for one in others if not given.claims.keys().isdisjoint(one.sources)]
    keys, dropped = (
        tuple(key for key in every if key not in given.claims)
        for every in (findings.source_keys, findings.dropped)
    )
    source = Universe(keys)
    moves = draft_rules(made_parts(free, keys), source, tables)
    moves += [looking_up(f.sources, f.target, f.value, [(f.evidence, f.why)]) for f in looked_up]
    rules = join_rules(moves, source, tables)
    rules += plain_rules("drop", dropped, source, tables)
    claimed = {key for rule in rules for key in rule.claims}
    rules += plain_rules("fallback", findings.from_target, Universe(findings.target_keys), tables)
    complete = claimed >= set(keys)
    changing = [rule for rule in rules if not rule.keeps]
    keeps = len(rules) - len(changing) > _MANY_KEPT and complete and not findings.undecided
    if keeps:
        rules = changing
    document = document_of(rules, tables, keeps, policies, given)
    stops = complete and bool(findings.undecided)
    if stops:
        document["rules"].append(stop_of(findings.undecided))
    evidence = [summary(rule.reasons) for rule in rules]
    text, lines = text_of(document, evidence, header, findings)
    return Draft(document, tuple(_written(rules, evidence, findings, lines)), text, stops)


def _written(
    rules: Sequence[RuleDraft], evidence: Sequence[Summary], findings: Findings, lines: Sequence[int]
) -> Iterator[InferredRule]:
    """What is known of each rule, the given ones first."""
    given = findings.given
    claims, makes = Counter(given.claims.values()), Counter(given.makes.values())
    facts: list[tuple[int, int, EvidenceName | None, str]] = [
        (claims[at], makes[at], "hint", "") for at in range(len(given.rules))
    ]
    for rule, (weakest, whys) in zip(rules, evidence, strict=True):
        facts.append((len(rule.claims), rule.makes, cast(EvidenceName | None, weakest), "; ".join(whys)))
    for at, (line, fact) in enumerate(zip(lines, facts, strict=False)):
        yield InferredRule(f"rules[{at}]", line, *fact)
