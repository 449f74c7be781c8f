"""JSON documents of this package: their classes, and how specs and numbers are written.

A document is a frozen dataclass of `Versioned`, and each mapping in it one of `Document`, with a docstring
for each member. Their JSON Schemas are made from these classes, which do not import pydantic.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal

from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf

JSON_SCHEMA: Final = 1
"""Version of the schema of all documents, in their field `schema`."""


Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number of a document; JSON has no others than finite ones."""


class _Unset:
    """Type of `UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()
"""Default of a member that is left out where it has no value; None is written as null."""


class Document:
    """A mapping with these members and no others."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True)
class Pattern:
    """Marks texts of a document that match a regular expression, for their JSON Schema."""

    regex: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        """The JSON Schema of the texts."""
        return {**handler(schema), "pattern": self.regex}


@dataclass(frozen=True, kw_only=True)
class Versioned(Document):
    """What every document starts with."""

    schema: Literal[1] = JSON_SCHEMA
    """Version of the documents; a change that programs could notice raises it."""


def key_json(key: Key) -> dict[str, Any]:
    """The text of a key, and its components, since one of them may have a `/` in it."""
    return {"key": key.text, "components": list(key.names)}


def spec_json(leaf: Leaf) -> dict[str, Any]:
    """Shape and dtype of a leaf; both are null for a leaf without an array."""
    if leaf.spec is None:
        return {"shape": None, "dtype": None}
    return {"shape": list(leaf.spec.shape), "dtype": leaf.spec.dtype.name}


def json_text(document: Mapping[str, Any] | Document, *, indent: int | None = 1) -> str:
    """A JSON document in ASCII, with a line break at its end. NaN and infinities are written as strings."""
    return json.dumps(_plain(document), indent=indent, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    """The value in JSON's types; an object of any other type becomes its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        )
    if isinstance(value, Document):
        members = {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
        return {name: _plain(member) for name, member in members.items() if member is not UNSET}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
