"""Types of the fields of a recipe: how their values are read, and their JSON Schema."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import regex
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ckpt_surgery.core.shardings import Mesh, Spec, is_axis
from ckpt_surgery.language.expressions.parsing import Expression, parse
from ckpt_surgery.language.expressions.regexes import compile_pattern, with_params
from ckpt_surgery.language.expressions.scope import Constant, ExpressionError
from ckpt_surgery.language.patterns.templates import Template, parse_template

SYNTAX = "recipe_syntax"
"""Type of the pydantic errors with an ExpressionError, as `error`, that points at characters of the value."""
WRONG_TYPE = "recipe_type"  # Type of the pydantic errors that say which type is wanted


def wrong_type(wanted: str) -> PydanticCustomError:
    """The error for a value of another type than is wanted."""
    return PydanticCustomError(WRONG_TYPE, "{wanted}", {"wanted": wanted})


def _parsed(parse_text: Callable[[str, ValidationInfo], Any], wanted: str) -> PlainValidator:
    """A validator that parses text. Its errors carry the offsets of the characters in question."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            raise wrong_type(wanted)
        try:
            return parse_text(value, info)
        except ExpressionError as error:
            raise PydanticCustomError(SYNTAX, "{error}", {"error": error}) from None

    return PlainValidator(validate)


def _pattern(text: str, info: ValidationInfo) -> regex.Pattern[str]:
    """A regular expression with the params that the context of the validation has by name."""
    whole = with_params(text, info.context or {})
    try:
        return compile_pattern(whole)
    except ExpressionError as error:
        raise (error if whole == text else error.at(0, len(text))) from None


def constant(value: Any) -> Constant:
    """A value of a param or a table: text, a number, true or false, or a list of those."""
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return tuple(value)
    if isinstance(value, str | int | float):
        return value
    raise wrong_type("text, a number, true or false, or a list of those")


def _paths(value: Any) -> tuple[str, ...]:
    """One or several paths in a config."""
    paths = [value] if isinstance(value, str) else value
    if isinstance(paths, list) and paths and all(isinstance(p, str) and all(p.split("/")) for p in paths):
        return tuple(paths)
    raise wrong_type("a path such as text_config/num_hidden_layers, or a list of those")


def _mesh(value: Any) -> Mesh:
    """The axes of a mesh and their lengths."""
    lengths = value.values() if isinstance(value, dict) else ()
    if not lengths or not all(type(length) is int and length > 0 for length in lengths):
        raise wrong_type("axes with their lengths, such as {data: 2, model: 4}")
    return {str(name): length for name, length in value.items()}


def _spec(value: Any) -> Spec:
    """For each axis of an array: a mesh axis, a list of them, or None."""
    if not isinstance(value, list) or not all(map(is_axis, value)):
        raise wrong_type("a list of mesh axes, such as [null, model] or [[data, model]]")
    return tuple(tuple(axis) if isinstance(axis, list) else axis for axis in value)


def one_of(expected: str) -> BeforeValidator:
    """Refuses all but integers. Without it, a `Literal[1]` takes `True` and `1.0` as well."""

    def validate(value: Any) -> Any:
        if type(value) is not int:
            raise PydanticCustomError("literal_error", "{expected}", {"expected": expected})
        return value

    return BeforeValidator(validate)


class StrictModel(BaseModel):
    """Base class of the models of documents."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # only whole recipes are validated, so their parts need no validators
    )


_SCALAR_SCHEMA: list[dict[str, Any]] = [{"type": name} for name in ("string", "number", "boolean")]

_TEXT = {"type": "string"}
ExpressionField = Annotated[
    Expression,
    _parsed(lambda text, _: parse(text), "an expression, as text"),
    WithJsonSchema({**_TEXT, "title": "Expression", "description": "An expression over x, xs, groups, …"}),
]
TemplateField = Annotated[
    Template,
    _parsed(lambda text, _: parse_template(text), "a key template, as text"),
    WithJsonSchema({**_TEXT, "title": "Key template", "description": r"\1, \g<name>, ${expression}, $$"}),
]
_REGEX = WithJsonSchema({**_TEXT, "format": "regex", "title": "Regular expression"})
_WANTED = "a regular expression, as text"
PatternField = Annotated[regex.Pattern, _parsed(lambda text, _: compile_pattern(text), _WANTED), _REGEX]
ClaimField = Annotated[regex.Pattern, _parsed(_pattern, _WANTED), _REGEX]
"""The regular expression of a rule. `${param}` in it stands for the param's value."""
ConstantField = Annotated[
    Constant,
    PlainValidator(constant),
    WithJsonSchema({"anyOf": [*_SCALAR_SCHEMA, {"type": "array", "items": {"anyOf": _SCALAR_SCHEMA}}]}),
]
PathsField = Annotated[
    tuple[str, ...],
    PlainValidator(_paths),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}),
]
MeshField = Annotated[
    Mapping[str, int],
    PlainValidator(_mesh),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}),
]
SpecField = Annotated[
    Spec,
    PlainValidator(_spec),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "array", "null"]}}),
]
Names = Annotated[tuple[str, ...], Strict(False)]
Unmatched = Literal["keep", "drop", "error"]
