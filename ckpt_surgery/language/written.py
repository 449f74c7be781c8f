"""Recipes that a program gives as data or as text, instead of a file."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import abridged

IN_MEMORY = "(recipe)"
"""What messages call a recipe that has no file."""
INDENT = "  "


def is_text(recipe: str) -> bool:
    """Whether a text is a recipe itself rather than the path of one: it has more than one line."""
    return "\n" in recipe


def text_of(recipe: Mapping[str, Any]) -> str:
    """A recipe that is given as data, as indented JSON: the text that its messages show.

    Keys that are integers, as tables have them, stay integers, which YAML allows. Raises UsageError for
    values that no recipe can have.
    """
    return _written(recipe, "", "") + "\n"


def _written(value: Any, indent: str, where: str) -> str:
    if isinstance(value, Mapping):
        members = [
            f"{_name(name, where)}: {_written(item, indent + INDENT, f'{where}.{name}'.lstrip('.'))}"
            for name, item in value.items()
        ]
        return _bracketed("{}", members, indent)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        items = (_written(item, indent + INDENT, f"{where}[{i}]") for i, item in enumerate(value))
        return _bracketed("[]", list(items), indent)
    if value is None or isinstance(value, str | bool | int | float):
        return json.dumps(value, ensure_ascii=False)
    kind = type(value).__name__
    raise UsageError(
        f"the recipe's `{where}` is {abridged(value)}, of type {kind}, which no recipe can hold",
        hint="A recipe consists of mappings, lists, texts, numbers, true, false and nothing.",
    )


def _name(name: Any, where: str) -> str:
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if not isinstance(name, str):
        inside = f" in `{where}`" if where else ""
        raise UsageError(f"the recipe has the key {abridged(name)}{inside}: keys are texts or integers")
    return json.dumps(name, ensure_ascii=False)


def _bracketed(brackets: str, members: Sequence[str], indent: str) -> str:
    if not members:
        return brackets
    lines = ",\n".join(f"{indent}{INDENT}{member}" for member in members)
    return f"{brackets[0]}\n{lines}\n{indent}{brackets[1]}"
