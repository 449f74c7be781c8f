"""JSON documents of this package: their classes, and how specs and numbers are written.

A document is a frozen dataclass of `Versioned`, and each mapping in it one of `Document`, with a docstring
for each member. Their JSON Schemas are made from these classes, which do not import pydantic.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from ckpt_surgery.core.frozen import frozen

if TYPE_CHECKING:  # they import NumPy, which `lint` does without
    from ckpt_surgery.core.arrays import Shape
    from ckpt_surgery.core.leaves import Leaf

JSON_SCHEMA: Final = 1
"""Version of the schema of all documents, in their field `schema`."""


class _Number:
    """Marks numbers that may be NaN or infinite, which JSON has as texts."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """The schema of a number, or one of these texts."""
        return handler(float | Literal["NaN", "Infinity", "-Infinity"])


Number = Annotated[float, _Number()]
"""A number of a document, which may be NaN or infinite."""


UNSET: Any = object()
"""Default of a member that is left out where it has no value; None is written as null."""


def member_name(field: str) -> str:
    """Name of the member that a field of a document has; a keyword of Python's has `_` after it."""
    return field.removesuffix("_")


class Document:
    """A mapping with these members and no others."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "alias_generator": member_name,
    }

    @classmethod
    def from_attributes(cls, value: object, /, **more: Any) -> Self:
        """The document with the attributes of a value that have its members' names, and with `more`."""
        names = [field.name for field in fields(cls) if field.name not in more]  # type: ignore[arg-type]
        return cls(**{name: getattr(value, name) for name in names if hasattr(value, name)}, **more)


@dataclass(frozen=True)
class Pattern:
    """Marks texts of a document that match a regular expression, for their JSON Schema."""

    regex: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        """The JSON Schema of the texts."""
        return {**handler(schema), "pattern": self.regex}


class _Named:
    """Type of `NAMED`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: object) -> Any:
        """The schema of the values."""
        from pydantic_core import core_schema

        return core_schema.literal_schema([one.value for one in source])


NAMED: Final = _Named()
"""Marks an enumeration whose values a document has as texts, which its JSON Schema lists in place."""


@dataclass(frozen=True, kw_only=True)
class Versioned(Document):
    """First members of every document."""

    schema: Literal[1] = JSON_SCHEMA
    """Version of the documents; a change that programs could notice raises it."""


@frozen()
class Keyed(Document):
    """Something about a leaf."""

    key: str
    """Its key: the components with `/` between them."""
    components: tuple[str, ...]
    """The components of the key, of which one may have a `/` in it."""


def keyed(leaf: "Leaf") -> Keyed:
    """The key of a leaf."""
    return Keyed(leaf.key.text, leaf.key.names)


def shape_and_dtype(leaf: "Leaf") -> tuple["Shape | None", str | None]:
    """Shape of a leaf, and the name of its dtype; None for both where it has no array."""
    return (None, None) if leaf.spec is None else (leaf.spec.shape, leaf.spec.dtype.name)


def json_text(document: Mapping[str, Any] | Document, *, indent: int | None = 1) -> str:
    """A JSON document in ASCII, with a line break at its end. NaN and infinities are written as strings."""
    return json.dumps(plain(document), indent=indent, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The value in JSON's types; an object of any other type becomes its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Document):
        kind: type = type(value)
        members = [(name, getattr(value, field)) for name, field in _members(kind)]
        return {name: plain(member) for name, member in members if member is not UNSET}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float):
        names = {math.inf: "Infinity", -math.inf: "-Infinity"}
        return value if math.isfinite(value) else names.get(value, "NaN")
    return str(value)


@cache
def _members(document: type) -> list[tuple[str, str]]:
    """Names of members, and of the fields that hold them."""
    return [(member_name(field.name), field.name) for field in fields(document)]
