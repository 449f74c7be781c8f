"""Annotated types of arguments that hold no arrays: the conversion to them, and what messages call them."""

import types
import typing
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np


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
