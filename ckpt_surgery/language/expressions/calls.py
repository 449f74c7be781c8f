"""Calls of functions with evaluated arguments."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.functions.base import Number, Plain, expression_name
from ckpt_surgery.functions.binding import call
from ckpt_surgery.language.expressions.scope import Lookup, Scope
from ckpt_surgery.language.expressions.values import bounded, told


def called(function: Plain, arguments: Sequence[Any], keywords: Mapping[str, Any], scope: Scope) -> Any:
    """The value of a call: a lazy array, a list of them, or a plain value.

    Raises SurgeryError for arguments that the function does not take.
    """
    given = list(map(_argument, arguments))
    named = {name: _argument(value) for name, value in keywords.items()}
    result = call(function, given, named, scope.leaf_key)
    if isinstance(result, Array | Number | str | list | tuple | range):
        return bounded(result)
    name = expression_name(function)
    raise FunctionError(f"`{name}` gave a {type(result).__name__}, and no array, number or text")


_PLAIN = frozenset([str, int, float, bool, type(None)])
"""Types of what functions take as it is. Lists of these, of up to a million, are looked at at once."""


def _argument(value: Any) -> Any:
    """The value as functions take it: `xs` in a list becomes a list of arrays.

    Raises FunctionError for values that no function takes, such as a source.
    """
    if isinstance(value, list | tuple):
        return value if _PLAIN.issuperset(map(type, value)) else type(value)(map(_item, value))
    if isinstance(value, Array | Series | Number | str | range) or value is None:
        return value
    if isinstance(value, Lookup) and isinstance(value, Sized):
        return value  # a part of a config, for `len`
    raise FunctionError(f"{told(value)} cannot be an argument")


def _item(value: Any) -> Any:
    return list(require_no_gaps(value)) if isinstance(value, Series) else _argument(value)
