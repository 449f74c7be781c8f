"""Calls of functions by expressions: their parameters, and arguments of the annotated types."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Sized
from inspect import Parameter
from typing import Any, Literal, NamedTuple

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES, DType, dtype_named
from ckpt_surgery.core.errors import FunctionError, SurgeryError
from ckpt_surgery.core.text import abridged, did_you_mean
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.functions.base import LeafKey, Number, Plain, expression_name
from ckpt_surgery.language.expressions.scope import (
    MAX_STRING,
    Lookup,
    are_arrays,
    bounded,
    described,
    is_list,
)

OTHER_NAMES: Mapping[str, str] = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "input": "x"}
"""PyTorch's names of parameters, and ours."""
LISTS = frozenset({Sequence[Array], list[Array]})  # Annotations of lists of arrays
LONGEST_TEXT = 4096
"""Limit on the characters of a text that is an argument, such as a pattern of axes. Functions that give text,
an integer or a bool take any text: what an expression computes is bounded."""

_COLLECTED = Parameter.VAR_POSITIONAL
_FREE = Parameter.VAR_KEYWORD


class Signature(NamedTuple):
    """Parameters of a function that a call can give."""

    parameters: tuple[Parameter, ...]  # All but keywords of any name, with `Any` for missing annotations
    free: Any  # Annotation of keywords of any name; None if there are none
    leaf_key: str | None  # Name of the parameter that gets the key of the output
    longest: int  # Limit on the characters of a text


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
        MAX_STRING if hints.get("return") in (str, int, bool) else LONGEST_TEXT,
    )


@functools.cache
def types_of(annotation: Any) -> tuple[Any, ...]:
    """The types of which a value needs one."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


@functools.lru_cache(maxsize=4096)  # a rule has the same calls at thousands of leaves
def call_problem(function: Plain, positional: int, keywords: tuple[str, ...]) -> str | None:
    """The message for a call with this many positional arguments and these keywords, or None if it fits.

    The values of the arguments are not looked at.
    """
    name, parameters = f"`{expression_name(function)}`", signature_of(function).parameters
    places = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
    if positional > len(places) and all(p.kind is not _COLLECTED for p in places):
        limit = "one argument" if len(places) == 1 else f"{len(places)} arguments"
        return f"{name} takes at most {limit}, {positional} given: {usage(function)}"
    names = [p.name for p in parameters]
    by_name = {p.name for p in parameters if p.kind not in (Parameter.POSITIONAL_ONLY, _COLLECTED)}
    free = signature_of(function).free is not None
    for keyword in keywords:
        # Keywords that are given twice are refused by Python's compiler only, not by its parser.
        if (keyword in names[:positional] and keyword in by_name) or keywords.count(keyword) > 1:
            return f"{name}: `{keyword}` is given twice"
        if keyword not in names and not free:
            meant = OTHER_NAMES.get(keyword, "")
            guess = f"; did you mean `{meant}`?" if meant in names else did_you_mean(keyword, names)
            return f"{name} has no argument `{keyword}`{guess}"
    for parameter in parameters[positional:]:
        if parameter.name not in by_name and parameter.name in keywords:
            return f"{name}: `{parameter.name}` has to be given by position: {usage(function)}"
        if is_required(parameter) and parameter.name not in keywords:
            return f"{name} needs `{parameter.name}`: {usage(function)}"
    return None


def is_required(parameter: Parameter) -> bool:
    """Whether a call must give it: a list of arrays has at least one."""
    if parameter.kind is _COLLECTED:
        return Array in types_of(parameter.annotation)
    return parameter.default is Parameter.empty


def usage(function: Plain, optional: str = "[{}]") -> str:
    """Signature of a function, for messages: `pad(x, axis, to, [value])`. `optional`: a format."""
    shown = [p.name if is_required(p) else optional.format(p.name) for p in signature_of(function).parameters]
    return f"{expression_name(function)}({', '.join(shown)})"


def call(function: Plain, arguments: Sequence[Any], keywords: Mapping[str, Any], leaf_key: str) -> Any:
    """The value of a call: a lazy array, a list of them, or a plain value.

    `leaf_key` is the text of the key of the output. Raises FunctionError for arguments that are missing,
    unexpected or of the wrong type, and for those that the function itself refuses.
    """
    if problem := call_problem(function, len(arguments), tuple(keywords)):
        raise FunctionError(problem)
    name, signature, free = expression_name(function), signature_of(function), dict(keywords)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for number, parameter in enumerate(signature.parameters):
        wanted = parameter.annotation, parameter.name, function
        if parameter.kind is _COLLECTED:
            values = arguments[number:]
            is_list_of_arrays = parameter.annotation is Array and len(values) == 1
            if is_list_of_arrays and isinstance(values[0], list | tuple | Series):
                values = _converted(values[0], Sequence[Array], parameter.name, function)
            positional += [_converted(value, *wanted) for value in values]
        elif number < len(arguments):
            positional.append(_converted(arguments[number], *wanted))
        elif parameter.kind is not parameter.POSITIONAL_ONLY and parameter.name in free:
            named[parameter.name] = _converted(free.pop(parameter.name), *wanted)
    named |= {keyword: _converted(v, signature.free, keyword, function) for keyword, v in free.items()}
    if signature.leaf_key:
        named[signature.leaf_key] = leaf_key
    try:
        result = function(*positional, **named)
    except SurgeryError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FunctionError(f"`{name}` raised {type(error).__name__}: {error}") from error
    if isinstance(result, Array | Number | str | list | tuple | range):
        return bounded(result)
    raise FunctionError(f"`{name}` gave a {type(result).__name__}, and no array, number or text")


def _converted(value: Any, annotation: Any, name: str, function: Plain) -> Any:
    """A value as one of the annotated types. Raises FunctionError for one of another type, or too long."""
    kinds = types_of(annotation)
    if isinstance(value, Series) and Series not in kinds:
        value = list(require_no_gaps(value))
    longest = signature_of(function).longest
    is_too_long = isinstance(value, str) and len(value) > longest and annotation is not Any
    if type(value) in kinds and not is_too_long:
        return value
    if not (isinstance(value, Array | Series | Number | str) or value is None or is_list(value)) and not (
        isinstance(value, Lookup) and isinstance(value, Sized)  # a part of a config, for `len`
    ):
        raise FunctionError(f"{described(value)} cannot be an argument")
    if annotation is Any:
        if isinstance(value, Array):
            raise FunctionError(
                f"`{expression_name(function)}` takes text, numbers and lists, not an array {value.spec}"
            )
        return value
    where = f"`{name}` of `{expression_name(function)}`"
    if isinstance(value, str) and is_too_long:
        raise FunctionError(f"{where} has {len(value):,} characters; the limit is {longest:,}")
    if not LISTS.isdisjoint(kinds) and (isinstance(value, list | tuple) or Array not in kinds):
        items = value if isinstance(value, list | tuple) else ()
        other = next((i for i, item in enumerate(items) if not isinstance(item, Array)), None)
        if items and other is None:
            return list(items)
        if other is not None:
            wrong = f"but item {other} is {_shown(items[other])}"
        else:
            wrong = "not an empty one" if isinstance(value, list | tuple) else f"not {_shown(value)}"
        message = f"{where} has to be a list of arrays, {wrong}"
        raise FunctionError(message, hint=_advice(value, kinds, function))
    if (typed := _typed(value, annotation)) is not _MISMATCH:
        return typed
    message = f"{where} has to be {_wanted(kinds)}, not {_shown(value)}"
    raise FunctionError(message, hint=_advice(value, kinds, function))


def _advice(value: Any, kinds: Sequence[Any], function: Plain) -> str:
    """Advice for an argument of another type: the order of all, and where a dtype belongs."""
    if Array in kinds and are_arrays(value):
        return "stack(…) makes one array of them."
    advice = f"The arguments are {usage(function)}."
    for other in signature_of(function).parameters if isinstance(value, str) and value in DTYPES else ():
        if any(typing.get_origin(kind) is np.dtype for kind in types_of(other.annotation)):
            advice = f"{value!r} is a dtype: give it by name, {other.name}={value!r}. {advice}"
    return advice


_PLAIN = frozenset([str, int, float, bool, type(None)])


def _shown(value: Any) -> str:
    """An argument, for messages: in full where it holds nothing but text and numbers."""
    values = value if isinstance(value, list | tuple) else [value]
    return abridged(value) if _PLAIN.issuperset(map(type, values)) else described(value)


_MISMATCH = object()  # Stands for a value that is not of an annotation's type


def _typed(value: Any, annotation: Any) -> Any:
    """`value` converted to the annotated type, or _MISMATCH: lists become tuples, and names dtypes.

    Raises FunctionError for an unknown dtype.
    """
    for kind in types_of(annotation):
        origin, members = typing.get_origin(kind), typing.get_args(kind)
        if origin is np.dtype and isinstance(value, str):
            return dtype_named(value)
        if origin is tuple and is_list(value):
            if members[-1:] == (...,) and members[0] in (int, str) and set(map(type, value)) == {members[0]}:
                return tuple(value)  # of up to a million
            wanted = members[:1] * len(value) if members[-1:] == (...,) else members
            items = tuple(map(_typed, value, wanted))
            if len(value) == len(wanted) and all(item is not _MISMATCH for item in items):
                return items
        if kind is float and type(value) is int:
            return float(value)
        is_literal = origin is Literal and value in members
        if kind is Any or is_literal or (kind in _PLAIN and type(value) is kind):  # a bool is not an int here
            return value
    return _MISMATCH


_WANTED = {bool: "True or False", int: "an integer", float: "a number", str: "a text", type(None): "None"}
_WANTED |= {Array: "an array", tuple[int, ...]: "a list of integers", DType: "the name of a dtype"}


def _wanted(kinds: Sequence[Any]) -> str:
    """A description of annotated types, for messages: `an integer or a list of integers`."""
    left_out = LISTS | {Series} | ({bool, int} if {bool, int, float} <= set(kinds) else set())
    words: list[str] = []
    for kind in sorted(set(kinds) - left_out, key=[Array, *kinds].index):
        is_literal = typing.get_origin(kind) is Literal
        other = "a list" if typing.get_origin(kind) is tuple else str(kind)
        words += map(repr, typing.get_args(kind)) if is_literal else [_WANTED.get(kind, other)]
    return " or ".join(words)
