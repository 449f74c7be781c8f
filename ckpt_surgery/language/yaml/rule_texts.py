"""The text of single rules of a recipe, with their comments, and recipes with more rules."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.language.yaml.document import YamlDocument
from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.language.yaml.writing import yaml_text

_LINE_END = re.compile(r"\r\n|\n|\r")
_MARGIN = "  "


@frozen()
class RuleText:
    """One rule as it is written."""

    comments: tuple[str, ...]
    """Lines above it."""
    lines: tuple[str, ...]
    """Its own lines."""


def rule_texts(document: YamlDocument) -> tuple[tuple[RuleText, ...], tuple[str, ...]]:
    """The text of each rule of a recipe with one pass, indented by two, and the comments below the last one.

    Rules that are not on lines of their own, as in JSON, are written anew.
    """
    rules = document.value.get("rules") or ()
    texts, below = _texts(document, len(rules))
    if _means(texts, rules):
        return texts, below
    lines = (yaml_text({"rules": [rule]}).splitlines()[1:] for rule in rules)
    return tuple(RuleText((), tuple(each)) for each in lines), ()


def with_rules(document: YamlDocument, rules: Sequence[Mapping[str, Any]]) -> str:
    """The text of a recipe with one pass, and more rules behind its own."""
    ranges = _ranges(document, len(document.value.get("rules") or ()))
    if not ranges:
        value = document.value
        return yaml_text({**value, "rules": [*(value.get("rules") or ()), *rules]})
    lines = _LINE_END.split(document.text)
    indent = _indent(lines[ranges[0].start])
    more = yaml_text({"rules": list(rules)}).splitlines()[1:]
    end = ranges[-1].stop
    return "\n".join([*lines[:end], *(" " * indent + line[len(_MARGIN) :] for line in more), *lines[end:]])


def _ranges(document: YamlDocument, count: int) -> list[range]:
    """The lines of each rule, counted from 0; none where rules are not on lines of their own."""
    lines = _LINE_END.split(document.text)
    ranges: list[range] = []
    for number in range(count):
        numbers = [line - 1 for line, _ in document.lines(("rules", number))]
        start = numbers[0] if numbers else 0
        if not lines[start].lstrip().startswith("- ") or (ranges and start < ranges[-1].stop):
            return []
        ranges.append(range(start, numbers[-1] + 1))
    return ranges


def _texts(document: YamlDocument, count: int) -> tuple[tuple[RuleText, ...], tuple[str, ...]]:
    """The text of each rule, indented by two, and the comments below the last one."""
    ranges = _ranges(document, count)
    if not ranges:
        return (), ()
    lines = _LINE_END.split(document.text)
    indent = _indent(lines[ranges[0].start])
    starts = [document.line(document.key_marks["rules",].start), *(each.stop for each in ranges)]
    texts = [
        RuleText(_shifted(lines[start : each.start], indent), _shifted(lines[each.start : each.stop], indent))
        for start, each in zip(starts, ranges, strict=False)
    ]
    below: list[str] = []
    for line in lines[starts[-1] :]:
        if line.strip() and not line.lstrip().startswith("#"):
            below = [comment for comment in below if _indent(comment)]  # the others are about what follows
            break
        below.append(line)
    return tuple(texts), _shifted(below, indent)


def _shifted(lines: Sequence[str], indent: int) -> tuple[str, ...]:
    """Lines with this indent, indented by two; without empty lines around them."""
    text = [_MARGIN + (line.lstrip() if line[:indent].strip() else line[indent:]) for line in lines]
    stripped = [line.rstrip() for line in text]
    return tuple(_LINE_END.split("\n".join(stripped).strip("\n"))) if any(stripped) else ()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _means(texts: Sequence[RuleText], rules: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these lines are these rules."""
    if len(texts) != len(rules):
        return False
    lines = [line for text in texts for line in (*text.comments, *text.lines)]
    try:
        value = parse_document("\n".join(["rules:", *lines, ""]), "").value
    except RecipeError:
        return False
    return bool(value == {"rules": list(rules)})
