"""Recipes that a program gives as data or as text, instead of a file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.language.yaml.document import DocumentPath, Mark, YamlDocument

INDENT = "  "


@dataclass(frozen=True)
class TracedFunction:
    """The user's function that a recipe was traced from."""

    name: str
    """Its name, as messages print it: "`surgery`"."""
    place: str
    """File and line of its definition, as `surgery.py:12`; the name again where it has none."""
    keys: frozenset[str]
    """Texts of the keys of the leaves that it returns."""
    warnings: tuple[str, ...] = ()
    """Sentences about what it computes in another way than the plan."""
    unwritable: tuple[str, ...] = ()
    """Keys of dicts, in place of a list of the source, that the recipe's text makes list indices."""
    rebuilt: Callable[[Mapping[str, Any]], Any] | None = field(default=None, compare=False, repr=False)
    """Makes a tree of the containers that it returns, with these values by key."""

    def check_written(self) -> None:
        """Raise UsageError if the recipe's text makes another tree than the recipe."""
        if self.unwritable:
            raise UsageError(
                f"{self.label} returns a dict with numbers as keys, such as `{shown(self.unwritable[0])}`, "
                "where the source has a list: in the text of a recipe they are indices of that list",
                hint="Give the function itself to `ckpt_surgery.restore` or `ckpt_surgery.apply`, or return "
                "other keys, such as `layer_0`.",
            )

    @property
    def label(self) -> str:
        """Name and place, for sentences."""
        return self.name if self.place == self.name else f"{self.name} ({self.place})"

    def __getstate__(self) -> dict[str, Any]:
        """The state for other processes, which hand no tree back."""
        return {**self.__dict__, "rebuilt": None}


def is_text(recipe: str) -> bool:
    """Whether a text is a recipe itself rather than the path of one: it has more than one line."""
    return "\n" in recipe


def text_of(recipe: Mapping[str, Any]) -> str:
    """A recipe that is given as data, as indented JSON: the text that its messages show.

    Keys that are integers, as tables have them, stay integers, which YAML allows. Raises UsageError for
    values that no recipe can have.
    """
    return _written(recipe, "", "") + "\n"


def data_document(value: Any, path: str, rules: Mapping[DocumentPath, str]) -> YamlDocument:
    """The document of data that a program of ours made: JSON's types, of any size.

    `path`: what messages call it. `rules`: see `YamlDocument`.
    """
    parts = dict(_parts(value, ()))
    marks = {
        where: Mark(0, 0, '"', part) if isinstance(part, str) else Mark(0, 0) for where, part in parts.items()
    }
    keys = {where: Mark(0, 0, '"', str(where[-1])) for where in marks if where and isinstance(where[-1], str)}
    return YamlDocument(path, text_of(value), value, marks, keys, rules=rules)


def _parts(value: Any, where: DocumentPath) -> Iterator[tuple[DocumentPath, Any]]:
    """Parts of a document with their paths, containers before their content."""
    yield where, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from _parts(part, (*where, name))


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
    what = f"{abridged(value)}, of type {type(value).__name__}"
    raise UsageError(
        f"the recipe's `{where}` is {what}, which no recipe can hold",
        hint="A recipe consists of mappings, lists, texts, numbers, true, false and nothing.",
    )


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str | int) or isinstance(name, bool):
        inside = f" in `{where}`" if where else ""
        raise UsageError(f"the recipe has the key {abridged(name)}{inside}: keys are texts or integers")
    return json.dumps(name, ensure_ascii=False)


def _bracketed(brackets: str, members: Sequence[str], indent: str) -> str:
    if not members:
        return brackets
    lines = ",\n".join(f"{indent}{INDENT}{member}" for member in members)
    return f"{brackets[0]}\n{lines}\n{indent}{brackets[1]}"
