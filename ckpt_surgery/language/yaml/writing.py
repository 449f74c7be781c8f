"""Recipes as the YAML that a person would write: a rule on one line where it fits.

And the text of single rules as they were written, with their comments.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.language.yaml.document import YamlDocument
from ckpt_surgery.language.yaml.parsing import parse_document, quoted

SCHEMA = "yaml-language-server: $schema=recipe.schema.json"
"""A comment that tells editors of the schema that `ckpt-surgery schema > recipe.schema.json` writes."""
LINE = 110  # Characters up to which a rule, or another mapping, is written on one line

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{5,}")
"""Text that reads as itself: it is longer than the words that stand for something else, such as `false`."""


def yaml_text(document: Mapping[str, Any]) -> str:
    """The text of a recipe. Reading it gives the same document."""
    return "".join(line + "\n" for line in _mapping_lines(document, 0))


def _mapping_lines(mapping: Mapping[str, Any], indent: int) -> Iterator[str]:
    """The entries of a mapping in block style. `indent`: spaces before each."""
    for name, value in mapping.items():
        start = f"{' ' * indent}{_scalar(name)}:"
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            yield start
            for item in value:
                yield from _item_lines(item, indent + 2)
        elif isinstance(value, dict) and len(start) + 1 + len(_inline(value)) > LINE:
            yield start
            yield from _mapping_lines(value, indent + 2)
        else:
            yield f"{start} {_inline(value)}"


def _item_lines(item: Mapping[str, Any], indent: int) -> Iterator[str]:
    """A mapping as an item of a list: on one line, or with each entry on a line of its own."""
    dash, inline = " " * indent + "- ", _inline(item)
    if len(dash) + len(inline) <= LINE or not item:
        yield dash + inline
        return
    first, *others = _mapping_lines(item, indent + 2)
    yield dash + first[indent + 2 :]
    yield from others


def _inline(value: Any) -> str:
    """A value on one line, in flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(name)}: {_inline(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


@functools.lru_cache(maxsize=4096)
def _scalar(text: str) -> str:
    """Text without quotes where it reads as itself, as a value and as a key; else in quotes."""
    if _PLAIN.fullmatch(text):
        return text  # to read each key of a long table would take minutes
    forms = [text] if text.isascii() else []
    forms += [f'"{text}"'] if "'" in text and not set(text) & set('"\\') else []
    block = [{"k": text}, {text: 1}]
    for form in (*forms, quoted(text)) if text.isprintable() else ():
        written = f"- [[{form}], {{k: {form}}}, {{{form}: 1}}]\n- k: {form}\n- {form}: 1\n"
        if _means(written, [[[text], *block], *block]):
            return form
    return json.dumps(text)


def _means(text: str, value: Any) -> bool:
    """Whether a document has this value."""
    try:
        read = parse_document(text, "")
    except RecipeError:
        return False
    return not read.problems and bool(read.value == value)


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
    ranges = _ranges(document, len(rules))
    if ranges:
        texts, below = _texts(document, ranges)
        written = [line for text in texts for line in (*text.comments, *text.lines)]
        if _means("\n".join(["rules:", *written, ""]), {"rules": list(rules)}):
            return tuple(texts), below
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


def _texts(document: YamlDocument, ranges: Sequence[range]) -> tuple[list[RuleText], tuple[str, ...]]:
    """The text of each rule, indented by two, and the comments below the last one."""
    lines = _LINE_END.split(document.text)
    indent = _indent(lines[ranges[0].start])
    starts = [document.line(document.key_marks["rules",].start), *(each.stop for each in ranges)]
    texts = [
        RuleText(_shifted(lines[start : each.start], indent), _shifted(lines[each.start : each.stop], indent))
        for start, each in zip(starts, ranges, strict=False)
    ]
    below = lines[starts[-1] :]
    for i, line in enumerate(below):
        if line.strip() and not line.lstrip().startswith("#"):
            below = [text for text in below[:i] if _indent(text)]  # the others are about what follows
            break
    return texts, _shifted(below, indent)


def _shifted(lines: Sequence[str], indent: int) -> tuple[str, ...]:
    """Lines with this indent, indented by two; without empty lines around them."""
    text = [_MARGIN + (line.lstrip() if line[:indent].strip() else line[indent:]) for line in lines]
    stripped = [line.rstrip() for line in text]
    return tuple(_LINE_END.split("\n".join(stripped).strip("\n"))) if any(stripped) else ()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
