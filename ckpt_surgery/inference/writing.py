"""The text of a draft: the recipe as YAML, with the evidence of each rule as a comment above it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.inference.formations import ConflictEntry, Evidence, Undecided
from ckpt_surgery.inference.parts import Kind
from ckpt_surgery.inference.rule_drafts import Inserted, RuleDraft, TemplatePiece
from ckpt_surgery.inference.sizes import named_sizes
from ckpt_surgery.inference.tables import Tables
from ckpt_surgery.language.yaml.writing import yaml_text

_WORDS = re.compile(r"[^\W\d]\w*")
_FEW = 3
"""So many keys, or reasons, are listed."""


def document_of(
    rules: Sequence[RuleDraft], tables: Tables, keeps: bool, policies: Mapping[str, Any]
) -> dict[str, Any]:
    """The recipe. `keeps`: whether leaves that no rule claims stay as they are; `policies`: see `drafted`."""
    written, sizes = named_sizes([_rule(rule) for rule in rules])
    used = {word for rule in rules for text in _expressions(rule) for word in _WORDS.findall(text)}
    wanted = {name: dict(table) for name, table in tables.items().items() if name in used}
    document: dict[str, Any] = {"version": 1, **policies, "unmatched": "keep" if keeps else "error"}
    if sizes:
        document["params"] = sizes
    if wanted:
        document["tables"] = wanted
    return {**document, "rules": written}


def _expressions(rule: RuleDraft) -> Iterator[str]:
    yield from (text for text in (rule.by, rule.when) if text is not None)
    yield from (text for _, text in rule.loops)
    for output in rule.outputs:
        yield output.value
        yield from (piece.expression for piece in output.to if isinstance(piece, Inserted))


def _rule(rule: RuleDraft) -> dict[str, Any]:
    used = {word for text in _expressions(rule) for word in _WORDS.findall(text)}
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
    rules: Sequence[RuleDraft],
    header: Sequence[str],
    undecided: Sequence[Undecided],
    conflicts: Sequence[ConflictEntry],
) -> tuple[str, list[int]]:
    """The draft as YAML, and the line of each rule, counted from 1."""
    lines = [comment(line) for line in header]
    lines += [comment(line) for one in conflicts for line in _conflict(one)]
    lines += [comment(line) for one in undecided for line in _undecided(one)]
    head = {name: value for name, value in document.items() if name != "rules"}
    lines += yaml_text(head).splitlines()
    starts: list[int] = []
    lines.append("rules:" if rules else "rules: []")
    for rule, written in zip(rules, document["rules"], strict=True):
        told = _evidence(rule)
        if told:
            lines.append(f"  {comment(told)}")
        starts.append(len(lines) + 1)
        lines += yaml_text({"rules": [written]}).splitlines()[1:]
    return "\n".join(lines) + "\n", starts


def stop_of(undecided: Sequence[Undecided]) -> dict[str, Any]:
    """A rule that ends every plan with an error, until somebody deletes it."""
    first = undecided[0].targets[0]
    others = sum(len(one.targets) for one in undecided) - 1
    more = f" and {others:,} more leaves are" if others else " is"
    return {
        "add": "not_decided",
        "when": f"require(False, {f'{first}{more} not decided'!a})",
        "value": "zeros((1,), 'int8')",
    }


def with_stop(text: str, rule: Mapping[str, Any]) -> str:
    """The text of a draft with this rule behind all others."""
    told = "  # write the rules that are missing, then delete this one, which keeps the draft from running"
    last = yaml_text({"rules": [rule]}).splitlines()[1:]
    return "\n".join([text.replace("rules: []", "rules:").rstrip("\n"), told, *last]) + "\n"


def comment(text: str) -> str:
    """A line of a comment; what would end the line, or hide, is written as an escape."""
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return f"# {shown}".rstrip()


def _evidence(rule: RuleDraft) -> str:
    if rule.evidence is None:
        return ""
    more = f"; and {len(rule.whys) - _FEW} more" if len(rule.whys) > _FEW else ""
    # That it is the way back of a recipe is true of every rule of such a draft, and said at its beginning.
    name = "" if rule.evidence is Evidence.RECIPE else str(rule.evidence)
    return ": ".join(filter(None, (name, "; ".join(rule.whys[:_FEW]) + more)))


def _conflict(conflict: ConflictEntry) -> Iterator[str]:
    values, names = listed(conflict.by_values), listed(conflict.by_names)
    yield f"values over names: {conflict.target} is {values} by its values, {names} by its name"


def _undecided(undecided: Undecided) -> Iterator[str]:
    yield f"not decided: {listed(undecided.targets)}: {undecided.why}"
    for one in undecided.candidates:
        yield f"  {one.how} of {listed(one.sources)}: {one.value} (names: {one.score:.2f})"


def listed(keys: Sequence[str]) -> str:
    """A few keys, and how many more there are."""
    more = f" and {len(keys) - _FEW} more" if len(keys) > _FEW else ""
    return ", ".join(keys[:_FEW]) + more
