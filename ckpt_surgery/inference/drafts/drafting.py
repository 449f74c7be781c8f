"""Draft a recipe from findings: few rules that do exactly that, as YAML with evidence in comments."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, cast

from ckpt_surgery.core.documents import Document, Pattern
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.inference.drafts.joining import few_rules, plain_rules
from ckpt_surgery.inference.drafts.key_patterns import Universe
from ckpt_surgery.inference.drafts.parts import Reason, RuleDraft, Tables, looking_up
from ckpt_surgery.inference.expressions.formations import Evidence, EvidenceName, Findings, Undecided
from ckpt_surgery.language.yaml.writing import yaml_text

_MANY_KEPT = 2
"""Rules for unchanged leaves, above which `unmatched: keep` replaces them."""
_FEW = 3
"""Number of keys, or reasons, that are listed."""
_ADVICE = "write the rules that are missing, then delete this one, which keeps the draft from running"


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
    rules = few_rules(free, source, tables)
    rules += [looking_up(f.sources, f.target, f.value, [(f.evidence, f.why)]) for f in looked_up]
    rules += plain_rules("drop", dropped, source, tables)
    claimed = {key for rule in rules for key in rule.claims}
    rules += plain_rules("fallback", findings.from_target, Universe(findings.target_keys), tables)
    complete = claimed >= set(keys)
    changing = [rule for rule in rules if not rule.keeps]
    keeps = len(rules) - len(changing) > _MANY_KEPT and complete and not findings.undecided
    if keeps:
        rules = changing
    used = set().union(*(rule.words for rule in rules))
    every = {**given.tables, **{name: dict(of) for name, of in tables.tables.items() if name in used}}
    stops = complete and bool(findings.undecided)
    document = {
        "version": 1,
        **policies,
        "unmatched": "keep" if keeps else "error",
        **({"params": dict(given.params)} if given.params else {}),
        **({"tables": every} if every else {}),
    }
    written = [rule.written() for rule in rules]
    if stops:
        written.append(_stop(findings.undecided))
    lines, known = _written(rules, written, yaml_text(document).splitlines(), header, findings)
    document["rules"] = [*given.rules, *written]
    return Draft(document, tuple(known), "\n".join(lines) + "\n", stops)


def _stop(undecided: Sequence[Undecided]) -> dict[str, Any]:
    """A rule that makes every plan fail, until somebody deletes it."""
    first = undecided[0].targets[0]
    others = sum(len(leaves.targets) for leaves in undecided) - 1
    more = f" and {others:,} more leaves are" if others else " is"
    return {
        "add": "not_decided",
        "when": f"require(False, {f'{first}{more} not decided'!a})",
        "value": "zeros((1,), 'int8')",
    }


# --- text -------------------------------------------------------------------------------------------------


def _written(
    rules: Sequence[RuleDraft],
    written: Sequence[Mapping[str, Any]],
    settings: Sequence[str],
    header: Sequence[str],
    findings: Findings,
) -> tuple[list[str], list[InferredRule]]:
    """The lines of a draft, and what is known of each rule, the given ones first.

    `written`: the rules in the types of JSON, perhaps with one that keeps the draft from running; `settings`:
    the lines above the rules. The header names the evidence of most rules once; a comment names it above each
    of the others.
    """
    given = findings.given
    evidence = [_summary(rule.reasons) for rule in rules]
    counts = Counter(weakest for weakest, _ in evidence if weakest is not None)
    usual = max((name for name in Evidence if name in counts), key=counts.__getitem__, default=None)
    lines = [*map(_comment, _remarks(usual, header, findings)), *settings]
    lines.append("rules:" if given.rules or written else "rules: []")
    known: list[InferredRule] = []
    claims, makes = Counter(given.claims.values()), Counter(given.makes.values())
    for at, text in enumerate(given.texts):
        lines += [*text.comments, f"  {_comment(Evidence.HINT)}"]
        known.append(InferredRule(f"rules[{at}]", len(lines) + 1, claims[at], makes[at], "hint", ""))
        lines += text.lines
    lines += given.below
    for rule, one, (weakest, whys) in zip(rules, written, evidence, strict=False):
        # The header says already what the usual evidence is, and that the draft inverts a recipe.
        implied = weakest in (None, Evidence.RECIPE) or (weakest is usual and not whys)
        more = f"; and {len(whys) - _FEW} more" if len(whys) > _FEW else ""
        remark = ": ".join(filter(None, ("" if implied else str(weakest), "; ".join(whys[:_FEW]) + more)))
        if remark:
            lines.append(f"  {_comment(remark)}")
        name, why = cast(EvidenceName | None, weakest), "; ".join(whys)
        place = f"rules[{len(known)}]"
        known.append(InferredRule(place, len(lines) + 1, len(rule.claims), rule.makes, name, why))
        lines += yaml_text({"rules": [one]}).splitlines()[1:]
    for one in written[len(rules) :]:
        lines += [f"  {_comment(_ADVICE)}", *yaml_text({"rules": [one]}).splitlines()[1:]]
    return lines, known


def _summary(reasons: Sequence[Reason]) -> tuple[Evidence | None, tuple[str, ...]]:
    """The weakest evidence of one rule, and clauses: counts of leaves with better evidence, and details."""
    counts = Counter(evidence for evidence, _ in reasons)
    ranked = [evidence for evidence in Evidence if evidence in counts]
    better = [f"{name} for {counts[name]} of {len(reasons)} leaves" for name in ranked[:-1]]
    whys = dict.fromkeys(why for _, why in reasons if why)
    return (ranked[-1] if ranked else None), (*better, *whys)


def _remarks(usual: Evidence | None, header: Sequence[str], findings: Findings) -> Iterator[str]:
    """The lines of the comment at the beginning."""
    yield from header
    if usual is not None and usual is not Evidence.RECIPE:
        yield f"Evidence: {usual}, except where a comment says otherwise."
    for conflict in findings.conflicts:
        values, names = _listed(conflict.by_values), _listed(conflict.by_names)
        yield f"values over names: {conflict.target} is {values} by its values, {names} by its name"
    for undecided in findings.undecided:
        yield f"not decided: {_listed(undecided.targets)}: {undecided.why}"
        for each in undecided.candidates:
            yield f"  {each.how} of {_listed(each.sources)}: {each.value} (names: {each.score:.2f})"
            yield from _options(each.rules)
        if undecided.own_value:
            yield "  the target's own value:"
            yield from _options(undecided.own_value)


def _options(rules: Sequence[str]) -> Iterator[str]:
    if rules:
        yield f"    {' '.join(f'-e {shlex.quote(rule)}' for rule in rules)}"


def _comment(text: str) -> str:
    """A comment line; characters that would end it, or are invisible, are escaped."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return f"# {shown}".rstrip()


def _listed(keys: Sequence[str]) -> str:
    """The first keys, and the number of others."""
    more = f" and {len(keys) - _FEW} more" if len(keys) > _FEW else ""
    return ", ".join(keys[:_FEW]) + more
