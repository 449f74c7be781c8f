"""Calls of functions by expressions: arguments are checked, and converted to the annotated types."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Never

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import FunctionError, SurgeryError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.functions.fields import Mismatch, typed, wanted
from ckpt_surgery.functions.signatures import Parameter, Signature, call_problem, signature_of, usage

LONGEST_TEXT = 4096
"""Limit on the characters of a text that is an argument, such as a pattern of axes."""


def call(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any], leaf_key: str
) -> Any:
    """Call a function that `in_expressions` has marked, as an expression does.

    `arguments` and `keywords` hold arrays, series, numbers, text, None, and lists or tuples of them;
    `leaf_key` is the text of the key of the output. Raises FunctionError for arguments that are missing,
    unexpected or of the wrong type, and for those that the function itself refuses.
    """
    signature = signature_of(function)
    if problem := call_problem(signature, len(arguments), tuple(keywords)):
        raise FunctionError(problem)
    given = _given(signature, arguments, keywords)
    positional: list[Any] = []
    named: dict[str, Any] = {} if signature.leaf_key is None else {signature.leaf_key: leaf_key}
    for parameter in signature.parameters:
        value = parameter.default
        if parameter.name in given:
            with _explained(signature, parameter, given[parameter.name]):
                where = f"`{parameter.name}` of `{signature.name}`"
                value = _converted(parameter, given[parameter.name], where)
        if parameter.collects:
            positional += value if parameter.name in given else ()
        elif parameter.by_place:
            positional.append(value)
        else:
            named[parameter.name] = value
    if signature.free is not None:
        free = {k: v for k, v in keywords.items() if k not in signature.keywords}
        named |= {k: _converted(signature.free, v, f"`{k}` of `{signature.name}`") for k, v in free.items()}
    try:
        return function(*positional, **named)
    except SurgeryError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FunctionError(str(error)) from error


def _given(signature: Signature, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the name of their parameter; those that one collects as a list."""
    names = [p.name for p in signature.places]
    given = {name: value for name, value in keywords.items() if name in signature.keywords}
    given |= zip(names, arguments, strict=False)
    if signature.collects and (rest := arguments[len(names) - 1 :]):
        is_list = len(rest) == 1 and isinstance(rest[0], list | tuple | Series)
        given[names[-1]] = rest[0] if is_list and signature.places[-1].takes_arrays else list(rest)
    return given


@contextmanager
def _explained(signature: Signature, parameter: Parameter, value: Any) -> Iterator[None]:
    """Add the order of the parameters to an error about one of them, and where a dtype belongs."""
    try:
        yield
    except FunctionError as error:
        if parameter.static is Any or (parameter.takes_dtype and isinstance(value, str)):
            raise  # it is no dtype, which was said
        named, text = "", abridged(value)
        dtype = next((p.name for p in signature.parameters if p.takes_dtype), None)
        if dtype is not None and isinstance(value, str) and value in DTYPES:
            named = f"{text} is a dtype: give it by name, {dtype}={text}. "
        first, *more = error.problems
        hint = first.hint or f"{named}The arguments are {usage(signature)}."
        raise FunctionError(replace(first, hint=hint), *more) from None


def _converted(parameter: Parameter, value: Any, where: str) -> Any:
    """An argument as the function takes it. Raises FunctionError for one of another type, or too long."""
    if parameter.collects and not parameter.takes_arrays:
        each = replace(parameter, kind=inspect.Parameter.POSITIONAL_ONLY)
        return [_converted(each, item, where) for item in value]
    if isinstance(value, Array) and parameter.takes_array:
        return value
    if isinstance(value, Series):
        if parameter.takes_series:
            return value
        value = list(require_no_gaps(value))
    if parameter.takes_arrays and (isinstance(value, list | tuple) or not parameter.takes_array):
        return _array_list(value, where)
    if parameter.static is Any:
        return _plain(value, where)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise FunctionError(f"{where} has {len(value):,} characters; the limit is {LONGEST_TEXT:,}")
    try:
        if isinstance(value, Array):
            raise Mismatch
        return typed(value, parameter.static)
    except Mismatch:
        told = ["an array"] * parameter.takes_array
        told += [wanted(parameter.static)] * (parameter.static is not Never)
        several = parameter.takes_array and isinstance(value, list | tuple) and value and _all_arrays(value)
        raise FunctionError(
            f"{where} has to be {' or '.join(told)}, not {_described(value)}",
            hint="stack(…) makes one array of them." if several else None,
        ) from None


def _plain(value: Any, where: str) -> Any:
    """Text, a number, or a list, as it is."""
    if isinstance(value, Array):
        name = where.rpartition(" ")[2]
        raise FunctionError(f"{name} takes text, numbers and lists, not an array {value.spec}")
    return value


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


def _all_arrays(values: Iterable[Any]) -> bool:
    return all(isinstance(value, Array) for value in values)


def _has_array(values: Sequence[Any]) -> bool:
    """Whether a list, or a list in it, holds an array."""
    return not _PLAIN.issuperset(map(type, values)) and any(
        isinstance(value, Array) or (isinstance(value, list | tuple) and _has_array(value))
        for value in values
    )


_PLAIN = frozenset([str, int, float, bool, type(None)])
"""Types of values that hold no array: lists of a million of them are looked at at once."""
