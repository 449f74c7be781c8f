"""Recipes as the YAML that a person would write: a rule on one line where it fits."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.language.yaml.quoting import quoted

SCHEMA = "yaml-language-server: $schema=recipe.schema.json"
"""A comment that tells editors of the schema that `ckpt-surgery schema > recipe.schema.json` writes."""
LINE = 110
"""Characters up to which a rule, or another mapping, is written on one line."""

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
    return next((form for form in _forms(text) if _reads_as(form, text)), json.dumps(text))


def _forms(text: str) -> Iterator[str]:
    if text.isascii() and text.isprintable():
        yield text
    if text.isprintable() and "'" in text and not set(text) & set('"\\'):
        yield f'"{text}"'
    if text.isprintable():
        yield quoted(text)


def _reads_as(form: str, text: str) -> bool:
    try:
        read = parse_document(f"- [[{form}], {{k: {form}}}, {{{form}: 1}}]\n- k: {form}\n- {form}: 1\n", "")
    except RecipeError:
        return False
    block = [{"k": text}, {text: 1}]
    return not read.problems and read.value == [[[text], *block], *block]
