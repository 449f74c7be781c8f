"""Operators, comparisons and f-strings on the values of expressions.

With an array, the result is a lazy array. Numbers and text are computed at once, within limits. All functions
raise FunctionError; the caller adds the column.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions import arrays
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.base import Number
from ckpt_surgery.language.expressions.scope import MAX_BITS, Lookup, bounded, described, is_list, series_hint

PYTHON_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = (
    {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    | {"//": operator.floordiv, "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_}
    | {"==": operator.eq, "!=": operator.ne}
    | {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)
"""Functions of Python by the symbols of binary operators."""
_UNARY: Mapping[str, Any] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


def binary(symbol: str, left: Any, right: Any) -> Any:
    """The value of `left symbol right`, which is a lazy array if one of them is an array."""
    if isinstance(left, Array) or isinstance(right, Array):
        return _array_binary(symbol, left, right)
    if isinstance(left, Number) and isinstance(right, Number):
        return _number_binary(symbol, left, right)
    same = (isinstance(left, str) and isinstance(right, str)) or (is_list(left) and is_list(right))
    if same and symbol == "+":
        return bounded(left + right if isinstance(left, str) else [*left, *right])
    message = f"`{symbol}` does not take {described(left)} and {described(right)}"
    raise FunctionError(message, hint=_text_hint(left, right))


def _array_binary(symbol: str, left: Any, right: Any) -> Array:
    for side in (left, right):
        if not isinstance(side, Array | Number):
            message = f"`{symbol}` does not take an array and {described(side)}"
            raise FunctionError(message, hint=series_hint(side))
    left, right = (side if isinstance(side, Array) else bounded(side) for side in (left, right))
    return arrays.binary(symbol, left, right)


def _number_binary(symbol: str, left: Number, right: Number) -> Number:
    integers = isinstance(left, int) and isinstance(right, int)
    if symbol == "**" and integers and int(left).bit_length() * abs(right) > 2 * MAX_BITS:
        raise FunctionError(f"{left!r} ** {right!r} is too large: the limit is {MAX_BITS} bits")
    try:
        result = PYTHON_OPERATORS[symbol](left, right)
    except (KeyError, TypeError):
        raise FunctionError(f"`{symbol}` does not take {described(left)} and {described(right)}") from None
    except ZeroDivisionError:
        raise FunctionError(f"{left!r} {symbol} {right!r} divides by zero") from None
    except OverflowError:
        raise FunctionError(f"{left!r} {symbol} {right!r} is beyond what a float holds") from None
    if not isinstance(result, Number):
        raise FunctionError(f"{left!r} {symbol} {right!r} is not a real number")
    return bounded(result)  # type: ignore[no-any-return]


def _text_hint(left: object, right: object) -> str | None:
    if {isinstance(left, str), isinstance(right, str)} != {True, False}:
        return series_hint(left) or series_hint(right)
    return "A group of the regular expression is text; int(…) makes a number of text, str(…) the reverse."


def compared(symbol: str, left: Any, right: Any) -> Any:
    """The value of `left symbol right` for comparisons, `in` and `not in`."""
    if symbol in ("in", "not in"):
        return _contained(left, right) == (symbol == "in")
    if isinstance(left, Array) or isinstance(right, Array):
        return _array_binary(symbol, left, right)
    if _comparable(left, right, ordered=symbol not in ("==", "!=")):
        return PYTHON_OPERATORS[symbol](_as_list(left), _as_list(right))
    message = f"`{symbol}` cannot compare {described(left)} with {described(right)}"
    raise FunctionError(message, hint=_text_hint(left, right))


def _comparable(left: object, right: object, ordered: bool) -> bool:
    """Whether both are text, numbers or lists. To compare anything else is always a mistake."""
    if left is None or right is None:
        return not ordered
    kinds: tuple[Any, ...] = (str, Number, list | tuple | range)
    return any(isinstance(left, kind) and isinstance(right, kind) for kind in kinds)


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | range) else value


def _contained(item: Any, container: Any) -> bool:
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    if isinstance(container, Lookup) and isinstance(item, str | int):
        return container.has(item)
    if not is_list(container) or isinstance(item, Array):
        raise FunctionError(f"`in` cannot look for {described(item)} in {described(container)}")
    candidates = [other for other in container if _comparable(item, other, ordered=False)]
    if len(container) and not candidates:
        message = f"`in` looks for {described(item)} in a list of values such as {described(container[0])}"
        raise FunctionError(message, hint=_text_hint(item, container[0]))
    return any(_as_list(item) == _as_list(other) for other in candidates)


def unary(symbol: str, value: Any) -> Any:
    """The value of `-x`, `+x` or `~x`."""
    if isinstance(value, Array):
        return _UNARY[symbol](value)
    if symbol == "~" and isinstance(value, bool):
        return not value
    if symbol != "~" and isinstance(value, Number):
        return bounded(_UNARY[symbol](value))
    raise FunctionError(f"`{symbol}` does not take {described(value)}")


def truth(value: Any) -> bool:
    """Whether a condition holds. Raises FunctionError for an array, which has no single truth value."""
    if isinstance(value, Array | Number | str | list | tuple | range) or value is None:
        return bool(value)
    raise FunctionError(f"{described(value)} is neither true nor false")


_SPECIFICATION = re.compile(r"(?:[^{}]?[<>=^])?[-+ ]?#?0?(\d{1,3})?[,_]?(?:\.\d{1,2})?[bdeEfFgGosxX%]?")


def formatted(value: Any, specification: str) -> str:
    """The text `f'{value:specification}'` of text or a number. Widths have at most three digits."""
    if not isinstance(value, str | Number):
        raise FunctionError(f"{described(value)} cannot be part of a text")
    if isinstance(value, float) and not math.isfinite(value):
        raise FunctionError(f"{value} cannot be part of a text")
    if not _SPECIFICATION.fullmatch(specification):
        raise FunctionError(f"the format {specification!r} is not accepted")
    try:
        return format(value, specification)
    except ValueError as error:
        message = f"the format {specification!r} does not fit {described(value)}: {error}"
        raise FunctionError(message) from None
