"""The parameters of functions that expressions call, and the messages for calls that do not fit them."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, NamedTuple, Never

from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array, Series
from ckpt_surgery.functions.base import LeafKey, expression_name

OTHER_NAMES: Mapping[str, str] = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "input": "x"}
"""PyTorch's names of parameters, and ours."""
LISTS = frozenset({Sequence[Array], list[Array]})
"""Annotations of lists of arrays."""
LAZY = LISTS | {Array, Series}
"""Annotations of values that have arrays."""

_COLLECTED = Parameter.VAR_POSITIONAL
_FREE = Parameter.VAR_KEYWORD


class Signature(NamedTuple):
    """What a call of a function can give."""

    parameters: tuple[Parameter, ...]
    """All but keywords of any name, with `Any` for missing annotations."""
    free: Any
    """Annotation of keywords of any name; None if there are none."""
    leaf_key: str | None
    """Name of the parameter that gets the key of the output."""


@functools.cache
def signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of a function that `in_expressions` has marked."""
    hints = typing.get_type_hints(function)
    written = inspect.signature(function).parameters.values()
    all_of_them = [p.replace(annotation=hints.get(p.name, Any)) for p in written]
    return Signature(
        tuple(p for p in all_of_them if p.kind is not _FREE and p.annotation is not LeafKey),
        next((p.annotation for p in all_of_them if p.kind is _FREE), None),
        next((p.name for p in all_of_them if p.annotation is LeafKey), None),
    )


@functools.cache
def types_of(annotation: Any) -> tuple[Any, ...]:
    """The types of which a value needs one."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


@functools.cache
def static_type(annotation: Any) -> Any:
    """The annotation of values without arrays; `Never` if there are none."""
    return typing.Union[tuple(t for t in types_of(annotation) if t not in LAZY) or (Never,)]  # noqa: UP007


@functools.lru_cache(maxsize=4096)  # a rule has the same calls at thousands of leaves
def call_problem(function: Callable[..., Any], positional: int, keywords: tuple[str, ...]) -> str | None:
    """The message for a call with this many positional arguments and these keywords, or None if it fits.

    The values of the arguments are not looked at.
    """
    called, parameters = f"`{expression_name(function)}`", signature_of(function).parameters
    places = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
    if positional > len(places) and all(p.kind is not _COLLECTED for p in places):
        return f"{called} takes {_counted(len(places))}, {positional} given: {usage(function)}"
    names = [p.name for p in parameters]
    by_name = {p.name for p in parameters if p.kind not in (Parameter.POSITIONAL_ONLY, _COLLECTED)}
    free = signature_of(function).free is not None
    for keyword in keywords:
        if keyword in names[:positional] and keyword in by_name:
            return f"{called}: `{keyword}` is given twice"
        if keyword not in names and not free:
            meant = OTHER_NAMES.get(keyword, "")
            guess = f"; did you mean `{meant}`?" if meant in names else did_you_mean(keyword, names)
            return f"{called} has no argument `{keyword}`{guess}"
    for parameter in parameters[positional:]:
        if parameter.name not in by_name and parameter.name in keywords:
            return f"{called}: `{parameter.name}` has to be given by position: {usage(function)}"
        if is_required(parameter) and parameter.name not in keywords:
            return f"{called} needs `{parameter.name}`: {usage(function)}"
    return None


def is_required(parameter: Parameter) -> bool:
    """Whether a call must give it: a list of arrays has at least one."""
    if parameter.kind is _COLLECTED:
        return Array in types_of(parameter.annotation)
    return parameter.default is Parameter.empty


def _counted(arguments: int) -> str:
    return {0: "no arguments", 1: "at most one argument"}.get(arguments, f"at most {arguments} arguments")


def usage(function: Callable[..., Any], optional: str = "[{}]") -> str:
    """Signature of a function, for messages: `pad(x, axis, to, [value])`. `optional`: a format."""
    shown = [p.name if is_required(p) else optional.format(p.name) for p in signature_of(function).parameters]
    return f"{expression_name(function)}({', '.join(shown)})"
