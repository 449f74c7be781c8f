"""Problems of a recipe by the paths of fields, those of fields that do not parse among them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from ckpt_surgery.core.errors import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions.naming import EVERYWHERE
from ckpt_surgery.language.expressions.scope import HOOKS, ExpressionError
from ckpt_surgery.language.schema.field_types import SYNTAX
from ckpt_surgery.language.schema.fields import Recipe
from ckpt_surgery.language.yaml.document import DocumentPath, path_text
from ckpt_surgery.language.yaml.parsing import yaml_word


@dataclass(frozen=True)
class Finding:
    """A problem of a recipe, by the path of its field; its line is looked up later."""

    path: DocumentPath
    message: str
    start: int | None = None
    """Offset of the first character in question, in the value, or in the key if `at_key`."""
    end: int | None = None
    at_key: bool = False  # Whether the problem is with the key of the value
    hint: str | None = None
    code: Code = Code.FIELDS_DISAGREE

    @classmethod
    def of(cls, path: DocumentPath, error: ExpressionError, at_key: bool = False) -> "Finding":
        """An error of a text, as a problem of the field that has the text."""
        code = error.problems[0].code or error.code
        return cls(path, error.message, error.start, error.end, at_key, error.hint, code)


@dataclass(frozen=True)
class Subject:
    """The recipe that is checked."""

    recipe: Recipe
    written: Mapping[str | int, Any]  # Value of the document, as it was written
    broken: frozenset[DocumentPath]  # Paths of the fields that do not parse. They are missing from `recipe`.
    with_hooks: bool = False  # Whether expressions can call functions that the caller gives

    @property
    def constants(self) -> frozenset[str]:
        """The names that all expressions of the recipe can use."""
        names = {*self.recipe.params, *self.recipe.tables, *self.recipe.named_sources, *EVERYWHERE}
        names |= {str(path[1]) for path in self.broken if len(path) > 1 and path[0] in ("params", "tables")}
        return frozenset(names | ({HOOKS} if self.with_hooks or "hooks" in self.written else set()))

    def is_broken(self, path: DocumentPath) -> bool:
        """Whether the value at this path, or part of it, does not parse."""
        return any(broken[: len(path)] == path for broken in self.broken)


def empty_fields(written: Mapping[str | int, Any], path: DocumentPath) -> Iterator[Finding]:
    for name, value in written.items():
        if value is None and name not in ("params", "tables"):
            message = f"`{name}` has no value; write one, or leave the field out"
            yield Finding((*path, name), message, at_key=True, code=Code.MISSING_FIELD)


def prune(value: dict[str | int, Any], path: DocumentPath) -> None:
    """Remove a field that does not parse, so that the rest can be checked. Rules keep their numbers."""
    if path == ("version",):
        value["version"] = 1
        return
    if path[:1] == ("params",):
        path = path[:2]  # a param is nothing without its default
    holder: Any = value
    for part in path[:-1]:
        if not _has(holder, part):
            return
        holder = holder[part]
    in_pass = path[:1] == ("passes",) and path[2:-1] == ("rules",)
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    elif in_pass or path[:-1] in (("rules",), ("passes",)):
        holder[int(path[-1])] = {}
    else:
        prune(value, path[:-1])


def _has(holder: Any, part: str | int) -> bool:
    if isinstance(holder, dict):
        return part in holder
    return isinstance(holder, list) and isinstance(part, int) and part < len(holder)


_MEANT: Mapping[str, str] = {
    "rename renamed replace new_name into key name": "A rule renames with `match` and `to`.",
    "regex pattern keys select": "A rule says with `match` which leaves it is for.",
    "delete remove exclude ignore skip": "A rule removes leaves with `match` and `drop: true`.",
    "transform apply function expression cast dtype": "Write, for example, `value: cast(x, 'bfloat16')`.",
}
MEANT = {name: hint for names, hint in _MEANT.items() for name in names.split()}
"""Fields of a rule to use instead of names that do not exist, by the names that people try."""

MOST_LISTED = 8
"""Fields of a mapping that are listed where one is not known; a longer list hides the rest of the message."""


def field_finding(details: Mapping[str, Any], value: Any, document: type[BaseModel] = Recipe) -> Finding:
    """The finding for an error of pydantic. `document`: the model of the whole document."""
    path, at_key = _document_path(details["loc"], value)
    context = details.get("ctx") or {}
    if details["type"] == SYNTAX:
        return Finding.of(path, context["error"], at_key)
    if details["type"] == "extra_forbidden":
        model = document  # that of the mapping with the field
        for part in path[:-1]:
            fields = (f.annotation for name, f in model.model_fields.items() if part == (f.alias or name))
            model = next((inner for annotation in fields for inner in _models(annotation)), model)
        known = [field.alias or name for name, field in model.model_fields.items()]
        listed = f"; known are {', '.join(known)}" if len(known) <= MOST_LISTED else ""
        message = f"unknown field `{path[-1]}`{did_you_mean(str(path[-1]), known) or listed}"
        hint = MEANT.get(str(path[-1])) if "rules" in path else None
        return Finding(path, message, at_key=True, hint=hint, code=Code.UNKNOWN_FIELD)
    if details["type"] == "missing":
        hint = "A recipe starts with `version: 1`." if path == ("version",) else None
        return Finding(path, f"`{path[-1]}` is missing", hint=hint, code=Code.MISSING_FIELD)
    return Finding(path, _wrong_value(path, details, context), at_key=at_key, code=Code.WRONG_VALUE)


def _document_path(location: Sequence[str | int], value: Any) -> tuple[DocumentPath, bool]:
    """The path in the document for a location of pydantic, and whether it is that of a mapping's key.

    Locations also have the names of union members, which are left out.
    """
    at_key = location[-1:] == ("[key]",)
    path: list[str | int] = []
    for i, part in enumerate(location[:-1] if at_key else location):
        if _has(value, part):
            path.append(part)
            value = value[part]
        elif i == len(location) - 1 and isinstance(value, dict):
            path.append(part)
    return tuple(path), at_key


_TYPES: Mapping[str, str] = (
    {"string_type": "text", "invalid_key": "text", "bool_type": "true or false", "int_type": "an integer"}
    | {"dict_type": "a mapping", "mapping_type": "a mapping", "model_type": "a mapping of fields"}
    | {"tuple_type": "a list", "list_type": "a list"}
)


def _wrong_value(path: DocumentPath, details: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    given = details["input"]
    name = f"`{path[-1]}`" if path and isinstance(path[-1], str) else f"`{path_text(path)}`"
    if path == ("version",):
        return f"this program reads version 1 of the recipe language, not {yaml_word(given)}"
    if details["type"] == "literal_error":
        choices = re.sub(r"'(\w+)'", r"\1", str(context["expected"]))
        guess = did_you_mean(given, re.findall(r"\w+", choices)) if isinstance(given, str) else ""
        return f"{name} must be one of {choices}, not {yaml_word(given)}{guess}"
    wanted = context.get("wanted") or _TYPES.get(details["type"])
    if wanted is None:
        return f"{name}: {details['msg']}"
    quotes = ""
    if "text" in wanted and isinstance(given, bool | int | float):
        quotes = "; write it in quotes"
    elif "text" in wanted and isinstance(given, list | dict):
        quotes = f"; text that begins with `{'[' if isinstance(given, list) else '{'}` needs quotes"
    return f"{name} has to be {wanted}, not {yaml_word(given)}{quotes}"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation, such as `Sequence[Rule] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
