"""Calls of functions with evaluated arguments."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series, apply, require_no_gaps
from ckpt_surgery.functions.base import Function, Number, Plain, expression_name
from ckpt_surgery.functions.binding import call
from ckpt_surgery.graph.binding import bind
from ckpt_surgery.language.scope import Lookup, Scope
from ckpt_surgery.language.values import bounded, told


def called(
    function: type[Function] | Plain, arguments: Sequence[Any], keywords: Mapping[str, Any], scope: Scope
) -> Any:
    """The value of a call: a lazy array, a list of them, or a plain value.

    Raises SurgeryError for arguments that the function does not take.
    """
    if isinstance(function, type):
        return _array_call(function, arguments, keywords, scope)
    given = [value if isinstance(value, Series) else _argument(value) for value in arguments]
    named = {k: value if isinstance(value, Series) else _argument(value) for k, value in keywords.items()}
    result = call(function, given, named, scope.leaf_key)
    if isinstance(result, Array | Number | str | list | tuple | range):
        return bounded(result)
    raise FunctionError(
        f"`{expression_name(function)}` gave a {type(result).__name__}, not an array or number"
    )


def _array_call(
    cls: type[Function], arguments: Sequence[Any], keywords: Mapping[str, Any], scope: Scope
) -> Any:
    first = arguments[0] if arguments else None
    if isinstance(first, Series) and "places" in cls.context:
        series, given = first, [list(first.items), *map(_argument, arguments[1:])]
    else:
        series, given = None, [_argument(value) for value in arguments]
    context = {"leaf_key": scope.leaf_key, "places": None if series is None else series.places}
    bound = bind(cls, given, {k: _argument(v) for k, v in keywords.items()}, context)
    if series is not None and all(getattr(f, "fill", None) is None for f in bound.functions):
        require_no_gaps(series)
    if bound.constant is not None:
        return bounded(bound.constant)
    results = [apply(f, *bound.inputs) for f in bound.functions]
    return results if bound.listed else results[0]


_PLAIN = frozenset([str, int, float, bool, type(None)])
"""Types of what functions take as it is. Lists of these, of up to a million, are looked at at once."""


def _argument(value: Any) -> Any:
    """The value as functions take it: `xs` becomes a list of arrays.

    Raises FunctionError for values that no function takes, such as a source.
    """
    if isinstance(value, Series):
        return list(require_no_gaps(value))
    if isinstance(value, list | tuple):
        return value if _PLAIN.issuperset(map(type, value)) else type(value)(map(_argument, value))
    if isinstance(value, Array | Number | str | range) or value is None:
        return value
    if isinstance(value, Lookup) and isinstance(value, Sized):
        return value  # a part of a config, for `len`
    raise FunctionError(f"{told(value)} cannot be an argument")
