"""Write a draft as YAML, with the evidence of each rule as a comment above it."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.inference.drafts.parts import Inserted, Reason, RuleDraft, Tables, TemplatePiece
from ckpt_surgery.inference.expressions.formations import Evidence, Findings, GivenRules, Undecided
from ckpt_surgery.language.yaml.writing import yaml_text

_WORDS = re.compile(r"[^\W\d]\w*")
_FEW = 3
"""Number of keys, or reasons, that are listed."""
_ADVICE = "write the rules that are missing, then delete this one, which keeps the draft from running"

Summary = tuple[Evidence | None, tuple[str, ...]]
"""The weakest evidence of a rule, and clauses with details."""


def document_of(
    rules: Sequence[RuleDraft],
    tables: Tables,
    keeps: bool,
    policies: Mapping[str, Any],
    given: GivenRules,
) -> dict[str, Any]:
    """The recipe. `keeps`: whether unclaimed leaves stay as they are; `policies`: see `draft_recipe`."""
    used = set().union(*map(words_of, rules))
    every = {**given.tables, **{name: dict(of) for name, of in tables.tables.items() if name in used}}
    return {
        "version": 1,
        **policies,
        "unmatched": "keep" if keeps else "error",
        **({"params": dict(given.params)} if given.params else {}),
        **({"tables": every} if every else {}),
        "rules": [*given.rules, *map(rule_of, rules)],
    }


def words_of(rule: RuleDraft) -> set[str]:
    """The words of all expressions of a rule: names of groups and tables among them."""
    texts = [rule.by or "", rule.when or ""]
    for output in rule.outputs:
        texts += [output.value, *(piece.expression for piece in output.to if isinstance(piece, Inserted))]
    return {word for text in texts for word in _WORDS.findall(text)}


def rule_of(rule: RuleDraft) -> dict[str, Any]:
    """A rule in the types of JSON."""
    claim = "fill" if rule.kind == "fallback" else "match"
    written: dict[str, Any] = {} if rule.pattern is None else {claim: rule.pattern.regex(words_of(rule))}
    if rule.when is not None:
        written["when"] = rule.when
    if rule.kind != "made":
        return {**written, rule.kind: True}
    if rule.count > 1:
        written["for"] = {"i": f"range({rule.count})"}
    values = {template(output.to): output.value for output in rule.outputs}
    if len(values) > 1:
        written["to"] = values
    elif any(values):
        written["to" if rule.pattern is not None else "add"] = next(iter(values))
    if rule.by is not None:
        written["by"] = rule.by
    if len(values) == 1 and (rule.outputs[0].value != "x" or rule.pattern is None):
        written["value"] = next(iter(values.values()))
    return written


def template(pieces: Sequence[TemplatePiece]) -> str:
    """The text of a key template."""
    return "".join(
        f"${{{piece.expression}}}"
        if isinstance(piece, Inserted)
        # A component in brackets would be a list index.
        else piece.replace("\\", "\\\\").replace("$", "$$").replace("[", "${'['}")
        for piece in pieces
    )


# --- text -------------------------------------------------------------------------------------------------


def text_of(
    document: Mapping[str, Any],
    evidence: Sequence[Summary],
    header: Sequence[str],
    findings: Findings,
) -> tuple[str, list[int]]:
    """The draft as YAML, and the line of each rule, counted from 1.

    `evidence`: of each rule that is not given; one without any keeps the draft from running. The header names
    the evidence of most rules once; a comment names it above each of the others.
    """
    counts = Counter(weakest for weakest, _ in evidence if weakest is not None)
    usual = max((name for name in Evidence if name in counts), key=counts.__getitem__, default=None)
    lines = [*header]
    if usual is not None and usual is not Evidence.RECIPE:
        lines.append(f"Evidence: {usual}, except where a comment says otherwise.")
    for conflict in findings.conflicts:
        values, names = listed(conflict.by_values), listed(conflict.by_names)
        lines.append(f"values over names: {conflict.target} is {values} by its values, {names} by its name")
    lines += [line for leaves in findings.undecided for line in _undecided(leaves)]
    lines = list(map(comment, lines))
    lines += yaml_text({name: value for name, value in document.items() if name != "rules"}).splitlines()
    starts: list[int] = []
    given = findings.given
    lines.append("rules:" if document["rules"] else "rules: []")
    for each in given.texts:
        lines += [*each.comments, f"  {comment(Evidence.HINT)}"]
        starts.append(len(lines) + 1)
        lines += each.lines
    lines += given.below
    remarks = [*(_remark(summed, usual) for summed in evidence), _ADVICE]
    for remark, written in zip(remarks, document["rules"][len(given.rules) :], strict=False):
        if remark:
            lines.append(f"  {comment(remark)}")
        starts.append(len(lines) + 1)
        lines += yaml_text({"rules": [written]}).splitlines()[1:]
    return "\n".join(lines) + "\n", starts


def stop_of(undecided: Sequence[Undecided]) -> dict[str, Any]:
    """A rule that makes every plan fail, until somebody deletes it."""
    first = undecided[0].targets[0]
    others = sum(len(leaves.targets) for leaves in undecided) - 1
    more = f" and {others:,} more leaves are" if others else " is"
    return {
        "add": "not_decided",
        "when": f"require(False, {f'{first}{more} not decided'!a})",
        "value": "zeros((1,), 'int8')",
    }


def comment(text: str) -> str:
    """A comment line; characters that would end it, or are invisible, are escaped."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return f"# {shown}".rstrip()


def summary(reasons: Sequence[Reason]) -> Summary:
    """Summarize the reasons of one rule: its weakest evidence, counts of leaves with better, and clauses."""
    counts = Counter(evidence for evidence, _ in reasons)
    ranked = [evidence for evidence in Evidence if evidence in counts]
    better = [f"{name} for {counts[name]} of {len(reasons)} leaves" for name in ranked[:-1]]
    whys = dict.fromkeys(why for _, why in reasons if why)
    return (ranked[-1] if ranked else None), (*better, *whys)


def _remark(summed: Summary, usual: Evidence | None) -> str:
    """The comment above a rule; empty if its evidence is the usual one, without details."""
    weakest, whys = summed
    if weakest is None or (weakest is usual and not whys):
        return ""
    more = f"; and {len(whys) - _FEW} more" if len(whys) > _FEW else ""
    # The header says already that the draft inverts a recipe.
    name = "" if weakest is Evidence.RECIPE else str(weakest)
    return ": ".join(filter(None, (name, "; ".join(whys[:_FEW]) + more)))


def _undecided(undecided: Undecided) -> Iterator[str]:
    yield f"not decided: {listed(undecided.targets)}: {undecided.why}"
    for each in undecided.candidates:
        yield f"  {each.how} of {listed(each.sources)}: {each.value} (names: {each.score:.2f})"
        yield from _options(each.rules)
    if undecided.own_value:
        yield "  the target's own value:"
        yield from _options(undecided.own_value)


def _options(rules: Sequence[str]) -> Iterator[str]:
    if rules:
        yield f"    {' '.join(f'-e {shlex.quote(rule)}' for rule in rules)}"


def listed(keys: Sequence[str]) -> str:
    """The first keys, and the number of others."""
    more = f" and {len(keys) - _FEW} more" if len(keys) > _FEW else ""
    return ", ".join(keys[:_FEW]) + more
