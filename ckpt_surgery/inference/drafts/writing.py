"""Write a draft as YAML, with the evidence of each rule as a comment above it."""

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.inference.drafts.parts import Inserted, Kind, Reason, RuleDraft, Tables, TemplatePiece
from ckpt_surgery.inference.expressions.formations import (
    ConflictEntry,
    Evidence,
    Findings,
    GivenRules,
    Undecided,
)
from ckpt_surgery.language.yaml.writing import yaml_text

_WORDS = re.compile(r"[^\W\d]\w*")
_SIZE = re.compile(r"\b(?P<axis>[hle])=(?P<number>\d+)(?=[,)])")
"""A length in a pattern: of heads, of layers, of experts."""
_LEAST = 3
"""Smaller lengths are halves and pairs, the same in models of all sizes."""
_NOUNS = {"h": "heads", "l": "layers", "e": "experts"}
_SHARED_HEADS = re.compile(r"(?<![a-z])(?:key|value|k|v|kv|wk|wv)(?![a-z])|[kv]_proj")
"""Keys of leaves that groups of heads share."""
_QUERIES = re.compile(r"(?<![a-z])(?:query|q|wq|out|o|wo)(?![a-z])|[qo]_proj")
_FEW = 3
"""Number of keys, or reasons, that are listed."""

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
    plain = [rule_of(rule) for rule in rules]
    sizes: dict[str, int] = {}
    written = [_with_sizes(rule, sizes) for rule in plain]
    if not given.names.isdisjoint(sizes):
        written, sizes = plain, {}
    used = set().union(*map(words_of, rules))
    wanted = {name: dict(table) for name, table in tables.items().items() if name in used}
    document: dict[str, Any] = {"version": 1, **policies, "unmatched": "keep" if keeps else "error"}
    if given.params or sizes:
        document["params"] = {**given.params, **sizes}
    if given.tables or wanted:
        document["tables"] = {**given.tables, **wanted}
    return {**document, "rules": [*given.rules, *written]}


def _with_sizes(rule: Mapping[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """Replace the lengths in a rule by params, and add these to `sizes`."""
    keys = f"{rule.get('match', '')} {rule.get('to', '')}"
    shared = _SHARED_HEADS.search(keys) is not None and _QUERIES.search(keys) is None

    def named(match: re.Match[str]) -> str:
        axis, number = match["axis"], int(match["number"])
        noun = "kv_heads" if axis == "h" and shared else _NOUNS[axis]
        if number < _LEAST:
            return match[0]
        names = itertools.chain([noun], (f"{noun}_{count}" for count in itertools.count(2)))
        name = next(name for name in names if sizes.setdefault(name, number) == number)
        return f"{axis}={name}"

    written = dict(rule)
    if isinstance(rule.get("to"), dict):
        written["to"] = {key: _SIZE.sub(named, value) for key, value in rule["to"].items()}
    elif "value" in rule:
        written["value"] = _SIZE.sub(named, rule["value"])
    return written


def words_of(rule: RuleDraft) -> set[str]:
    """The words of all expressions of a rule: names of groups and tables among them."""
    texts = [text for text in (rule.by, rule.when) if text is not None]
    texts += [text for _, text in rule.loops]
    for output in rule.outputs:
        texts += [output.value, *(piece.expression for piece in output.to if isinstance(piece, Inserted))]
    return {word for text in texts for word in _WORDS.findall(text)}


def rule_of(rule: RuleDraft) -> dict[str, Any]:
    """A rule in the types of JSON."""
    used = words_of(rule)
    claim = "fill" if rule.kind is Kind.FILLED else "match"
    written: dict[str, Any] = {} if rule.pattern is None else {claim: rule.pattern.regex(used)}
    if rule.when is not None:
        written["when"] = rule.when
    if rule.kind is Kind.DROPPED:
        return {**written, "drop": True}
    if rule.kind is Kind.FILLED:
        return {**written, "fallback": True}
    if rule.loops:
        written["for"] = dict(rule.loops)
    if len(rule.outputs) > 1:
        written["to"] = {template(output.to): output.value for output in rule.outputs}
    elif rule.outputs and rule.outputs[0].to:
        written["to" if rule.pattern is not None else "add"] = template(rule.outputs[0].to)
    if rule.by is not None:
        written["by"] = rule.by
    if len(rule.outputs) == 1 and (rule.outputs[0].value != "x" or rule.pattern is None):
        written["value"] = rule.outputs[0].value
    return written


def template(pieces: Sequence[TemplatePiece]) -> str:
    """The text of a key template."""
    return "".join(_inserted(piece) for piece in pieces)


def _inserted(piece: TemplatePiece) -> str:
    if isinstance(piece, Inserted):
        return f"${{{piece.expression}}}"
    if "[" in piece:  # a component in brackets would be a list index
        return "".join("${'['}" if part == "[" else _plain(part) for part in re.split(r"(\[)", piece))
    return _plain(piece)


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("$", "$$")


# --- text -------------------------------------------------------------------------------------------------


def text_of(
    document: Mapping[str, Any],
    evidence: Sequence[Summary],
    header: Sequence[str],
    findings: Findings,
) -> tuple[str, list[int]]:
    """The draft as YAML, and the line of each rule, counted from 1. `evidence`: of each rule.

    The header names the evidence of most rules once; a comment names it above each of the others.
    """
    usual = _usual(evidence)
    lines = [comment(line) for line in header]
    if usual is not None and usual is not Evidence.RECIPE:
        lines.append(comment(f"Evidence: {usual}, except where a comment says otherwise."))
    lines += [comment(line) for conflict in findings.conflicts for line in _conflict(conflict)]
    lines += [comment(line) for leaves in findings.undecided for line in _undecided(leaves)]
    head = {name: value for name, value in document.items() if name != "rules"}
    lines += yaml_text(head).splitlines()
    starts: list[int] = []
    given = findings.given
    lines.append("rules:" if document["rules"] else "rules: []")
    for each in given.texts:
        lines += [*each.comments, f"  {comment(Evidence.HINT)}"]
        starts.append(len(lines) + 1)
        lines += each.lines
    lines += given.below
    for summed, written in zip(evidence, document["rules"][len(given.rules) :], strict=True):
        remark = _remark(summed, usual)
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


def with_stop(text: str, rule: Mapping[str, Any]) -> str:
    """Append this rule to the text of a draft."""
    advice = "  # write the rules that are missing, then delete this one, which keeps the draft from running"
    last = yaml_text({"rules": [rule]}).splitlines()[1:]
    return "\n".join([text.replace("rules: []", "rules:").rstrip("\n"), advice, *last]) + "\n"


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


def _usual(evidence: Sequence[Summary]) -> Evidence | None:
    """The evidence of most rules; the stronger one in a tie."""
    counts = Counter(weakest for weakest, _ in evidence if weakest is not None)
    return max((name for name in Evidence if name in counts), key=counts.__getitem__, default=None)


def _remark(summed: Summary, usual: Evidence | None) -> str:
    """The comment above a rule; empty if its evidence is the usual one, without details."""
    weakest, whys = summed
    if weakest is None or (weakest is usual and not whys):
        return ""
    more = f"; and {len(whys) - _FEW} more" if len(whys) > _FEW else ""
    # The header says already that the draft inverts a recipe.
    name = "" if weakest is Evidence.RECIPE else str(weakest)
    return ": ".join(filter(None, (name, "; ".join(whys[:_FEW]) + more)))


def _conflict(conflict: ConflictEntry) -> Iterator[str]:
    values, names = listed(conflict.by_values), listed(conflict.by_names)
    yield f"values over names: {conflict.target} is {values} by its values, {names} by its name"


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
