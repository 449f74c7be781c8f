"""Calls of functions by expressions: arguments are checked, and converted to the annotated types."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Never

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import FunctionError, SurgeryError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.functions.base import expression_name
from ckpt_surgery.functions.signatures import (
    LISTS,
    call_problem,
    signature_of,
    static_type,
    types_of,
    usage,
)

LONGEST_TEXT = 4096
"""Limit on the characters of a text that is an argument, such as a pattern of axes."""
_PLAIN = frozenset([str, int, float, bool, type(None)])
"""Types of values that hold no array: lists of a million of them are looked at at once."""


def call(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any], leaf_key: str
) -> Any:
    """Call a function that `in_expressions` has marked, as an expression does.

    `arguments` and `keywords` hold arrays, series, numbers, text, None, and lists or tuples of them;
    `leaf_key` is the text of the key of the output. Raises FunctionError for arguments that are missing,
    unexpected or of the wrong type, and for those that the function itself refuses.
    """
    if problem := call_problem(function, len(arguments), tuple(keywords)):
        raise FunctionError(problem)
    name, signature, free = expression_name(function), signature_of(function), dict(keywords)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for number, parameter in enumerate(signature.parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += _collected(parameter, arguments[number:], name)
        elif number < len(arguments):
            positional.append(_argument(function, parameter, arguments[number]))
        elif parameter.kind is not parameter.POSITIONAL_ONLY and parameter.name in free:
            named[parameter.name] = _argument(function, parameter, free.pop(parameter.name))
    if free:
        named |= {k: _converted(value, signature.free, k, name) for k, value in free.items()}
    if signature.leaf_key:
        named[signature.leaf_key] = leaf_key
    try:
        return function(*positional, **named)
    except SurgeryError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FunctionError(f"`{name}` raised {type(error).__name__}: {error}") from error


def _collected(parameter: inspect.Parameter, values: Sequence[Any], called: str) -> list[Any]:
    """The arguments that one parameter collects; a single list of arrays stands for its items."""
    if parameter.annotation is Array and values:
        is_list = len(values) == 1 and isinstance(values[0], list | tuple | Series)
        return list(_converted(values[0] if is_list else values, Sequence[Array], parameter.name, called))
    return [_converted(value, parameter.annotation, parameter.name, called) for value in values]


def _argument(function: Callable[..., Any], parameter: inspect.Parameter, value: Any) -> Any:
    """The argument of one parameter. Errors about it have the order of all, and where a dtype belongs."""
    try:
        return _converted(value, parameter.annotation, parameter.name, expression_name(function))
    except FunctionError as error:
        if parameter.annotation is Any or (_takes_dtype(parameter) and isinstance(value, str)):
            raise  # it is no dtype, which was said
        named, text = "", abridged(value)
        dtype = next((p.name for p in signature_of(function).parameters if _takes_dtype(p)), None)
        if dtype is not None and isinstance(value, str) and value in DTYPES:
            named = f"{text} is a dtype: give it by name, {dtype}={text}. "
        first, *more = error.problems
        hint = first.hint or f"{named}The arguments are {usage(function)}."
        raise FunctionError(replace(first, hint=hint), *more) from None


def _converted(value: Any, annotation: Any, name: str, called: str) -> Any:
    """A value as one of the annotated types. Raises FunctionError for one of another type, or too long."""
    if isinstance(value, Series) and Series not in types_of(annotation):
        value = list(require_no_gaps(value))
    if annotation is Any:
        if isinstance(value, Array):
            raise FunctionError(f"`{called}` takes text, numbers and lists, not an array {value.spec}")
        return value
    kinds = types_of(annotation)
    if type(value) in (Array, Series) and type(value) in kinds:
        return value
    where = f"`{name}` of `{called}`"
    if not LISTS.isdisjoint(kinds) and (isinstance(value, list | tuple) or Array not in kinds):
        return _array_list(value, where)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise FunctionError(f"{where} has {len(value):,} characters; the limit is {LONGEST_TEXT:,}")
    static = static_type(annotation)
    try:
        if isinstance(value, Array):
            raise Mismatch
        return typed(value, static)
    except Mismatch:
        told = ["an array"] * (Array in kinds) + [wanted(static)] * (static is not Never)
        several = Array in kinds and isinstance(value, list | tuple) and value and _all_arrays(value)
        raise FunctionError(
            f"{where} has to be {' or '.join(told)}, not {_described(value)}",
            hint="stack(…) makes one array of them." if several else None,
        ) from None


def _takes_dtype(parameter: inspect.Parameter) -> bool:
    return any(typing.get_origin(each) is np.dtype for each in types_of(parameter.annotation))


def _array_list(value: Any, where: str) -> list[Array]:
    if not isinstance(value, list | tuple):
        raise FunctionError(f"{where} has to be a list of arrays, not {_described(value)}")
    if not value:
        raise FunctionError(f"{where} is an empty list; it needs at least one array")
    for item in value:
        if not isinstance(item, Array):
            raise FunctionError(f"{where} has to be a list of arrays; {_described(item)} is in it")
    return list(value)


def _described(value: Any) -> str:
    """A description of an argument, for messages."""
    if isinstance(value, Array):
        return "an array"
    if isinstance(value, list | tuple) and _has_array(value):
        return f"a list of {len(value)} {'arrays' if _all_arrays(value) else 'values'}"
    return abridged(value)


def _all_arrays(values: Sequence[Any]) -> bool:
    return all(isinstance(value, Array) for value in values)


def _has_array(values: Sequence[Any]) -> bool:
    """Whether a list, or a list in it, holds an array."""
    return not _PLAIN.issuperset(map(type, values)) and any(
        isinstance(value, Array) or (isinstance(value, list | tuple) and _has_array(value))
        for value in values
    )


class Mismatch(Exception):
    """A value is not of an annotation's type."""


def typed(value: Any, annotation: Any) -> Any:
    """`value` converted to the annotated type: lists become tuples, and names dtypes.

    Raises Mismatch for a value of another type, FunctionError for an unknown dtype.
    """
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _typed_as_one_of(value, members)
    if origin is np.dtype and isinstance(value, str):
        from ckpt_surgery.core.dtypes import dtype_named  # dtypes imports this package

        return dtype_named(value)
    if origin is tuple and isinstance(value, list | tuple | range):
        return _typed_items(value, members)
    if origin is Literal and value in members:
        return value
    if annotation is float and type(value) is int:
        return float(value)
    # Not isinstance, because a bool is not an int here.
    plain = annotation in (bool, int, float, str, types.NoneType)
    if annotation is Any or (plain and type(value) is annotation):
        return value
    raise Mismatch


def _typed_items(values: list[Any] | tuple[Any, ...] | range, members: tuple[Any, ...]) -> tuple[Any, ...]:
    """The converted items of a tuple of any length, or of one with an annotation for each item."""
    if members[-1:] == (...,):
        if members[0] in (int, str) and set(map(type, values)) == {members[0]}:
            return tuple(values)  # of up to a million
        return tuple(typed(item, members[0]) for item in values)
    if len(values) != len(members):
        raise Mismatch
    return tuple(map(typed, values, members))


def _typed_as_one_of(value: Any, members: Iterable[Any]) -> Any:
    for member in members:
        try:
            return typed(value, member)
        except Mismatch:
            continue
    raise Mismatch


_WANTED = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a text",
    types.NoneType: "None",
}


def wanted(annotation: Any) -> str:
    """A description of an annotated type, for messages: `an integer or a list of integers`."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        numbers = {bool, int, float} <= set(members)
        words = ["a number"] if numbers else []
        words += [wanted(m) for m in members if not (numbers and m in (bool, int, float))]
        return " or ".join(words)
    if origin is np.dtype:
        return "the name of a dtype"
    if origin is tuple:
        return "a list of integers" if members[0] is int else "a list"
    if origin is Literal:
        return " or ".join(map(repr, members))
    return _WANTED.get(annotation, str(annotation))
