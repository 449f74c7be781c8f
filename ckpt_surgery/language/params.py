"""The values of params: from the caller, otherwise from the source's config, otherwise the default."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import FunctionError, Problem, RecipeError, UsageError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import brief, did_you_mean
from ckpt_surgery.language.expressions.lookups import Config
from ckpt_surgery.language.expressions.scope import Constant, bounded, described
from ckpt_surgery.language.schema.fields import Param
from ckpt_surgery.language.yaml.parsing import parse_document


class ParamSource(enum.StrEnum):
    """Origin of the value of a param."""

    SET = "set"
    """`set`, or `--set` of the command line."""
    CONFIG = "config"
    """The config beside the source."""
    DEFAULT = "default"
    """The default in the recipe."""


@dataclass(frozen=True)
class ParamValue:
    """A param with its value, and the origin of the value."""

    name: str
    """Name of the param."""
    value: Constant
    """Text, a number, a truth value, or a tuple of those."""
    origin: ParamSource
    entry: str | None = None
    """Path in the config, if the value comes from it."""
    note: str | None = None
    """File that the value comes from, such as `config.json`. For a default: why the config gave none."""

    __repr__ = brief

    @property
    def text(self) -> str:
        """The value as `--set` takes it."""
        return _text(self.value)


def _text(value: Constant) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolved(name: str, param: Param, given: Mapping[str, Constant], config: Config) -> ParamValue:
    """The value of one param. Raises FunctionError if the config has a value of another type."""
    if name in given:
        return ParamValue(name, given[name], ParamSource.SET)
    for path in param.config:
        if (entry := config.value_at(path)) is not None:
            given_value, origin = entry
            value = _typed(name, given_value, param.default, f"`{path}` in {origin}")
            return ParamValue(name, value, ParamSource.CONFIG, path, origin)
    note = config.without(param.config) if param.config else None
    return ParamValue(name, param.default, ParamSource.DEFAULT, None, note)


def _typed(name: str, value: Any, default: Constant, where: str) -> Constant:
    if isinstance(default, float) and type(value) is int:
        return float(bounded(value))
    if type(value) is not type(default):
        hint = f'Set the value yourself: `set={{"{name}": VALUE}}`.'
        message = f"{where} is {described(value)}, not {type_name(default)}"
        raise FunctionError(message, hint=hint, code=Code.PARAM)
    return bounded(value)  # type: ignore[no-any-return]


def unsaid(values: Iterable[ParamValue]) -> list[str]:
    """One sentence about all defaults that stand in for values of a config, with the reasons; or none."""
    silent: dict[str, list[str]] = {}
    for value in values:
        if value.origin is ParamSource.DEFAULT and value.note is not None:
            silent.setdefault(value.note, []).append(f"{value.name}={value.text}")
    defaults = ", ".join(f"{', '.join(alike)} ({note})" for note, alike in silent.items())
    return [f"by default {defaults}"] if silent else []


def overridden(params: Mapping[str, Param], overrides: Iterable[str]) -> dict[str, Constant]:
    """The params that texts of the form `NAME=VALUE` set. Raises UsageError with all that are wrong."""
    values: dict[str, Constant] = {}
    problems: list[Problem] = []
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            problems.append(Problem(f"`{override}` is not of the form NAME=VALUE"))
        elif name not in params:
            known = f"; the recipe has {', '.join(params)}" if params else "; the recipe has no params"
            problems.append(Problem(f"unknown param `{name}`{did_you_mean(name, params) or known}"))
        elif (value := _read(text, params[name].default, name)) is None:
            problems.append(Problem(f"`{name}` has to be {type_name(params[name].default)}, not {text!r}"))
        else:
            values[name] = value
    if problems:
        raise UsageError(*problems, code=Code.PARAM)
    return values


def _read(text: str, default: Constant, name: str) -> Constant | None:
    """The text as a value of the default's type, or None."""
    if isinstance(default, str):
        return text
    is_texts = isinstance(default, tuple) and default and all(isinstance(item, str) for item in default)
    if is_texts and not text.lstrip().startswith("["):
        return (text,)  # a list of one
    try:
        document = parse_document(text, name)
    except RecipeError:
        return None
    value = tuple(document.value) if isinstance(document.value, list) else document.value
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    fits = type(value) is type(default) and not document.problems
    items = value if isinstance(value, tuple) else ()
    return value if fits and all(isinstance(item, str | int | float) for item in items) else None


def type_name(default: Constant) -> str:
    """The type of a default, for messages: `an integer`."""
    if isinstance(default, tuple):
        return "a list such as [1, 2]"
    return {bool: "true or false", int: "an integer", float: "a number"}.get(type(default), "text")
