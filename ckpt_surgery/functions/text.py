"""Functions of text and numbers. They are evaluated while planning, within limits: recipes can be
untrusted."""

from collections.abc import Sized
from contextlib import suppress
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import abridged, number_of
from ckpt_surgery.functions.base import in_expressions

LONGEST_RANGE = 1_000_000  # Limit on the numbers that `range` gives

LONGEST_TEXT = 64 * 1024  # Limit on the characters of a text that `replace` gives


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise FunctionError(f"`{name}` is for text, not {_described(value)}")
    return value


@in_expressions
def int_(x: Any) -> int:
    """`int('12')` and `int(2.7)`: a decimal text or a number as an integer; fractions are truncated."""
    if isinstance(x, str | int | float):
        with suppress(ValueError, OverflowError):
            return int(x)
    raise FunctionError(f"`int` is for numbers and texts of integers, not {_described(x)}")


def _described(value: Any) -> str:
    items = value if isinstance(value, list | tuple) else ()
    if not all(item is None or isinstance(item, str | int | float) for item in items):
        return f"a list of {number_of(len(value), 'value')}"  # they may be arrays, whose repr is long
    return abridged(value)


@in_expressions
def str_(x: Any) -> str:
    """`str(3)`: text, a number, a bool or None as text."""
    if x is not None and not isinstance(x, str | int | float):
        raise FunctionError(f"`str` is for text and numbers, not {_described(x)}")
    return str(x)


@in_expressions
def lower(text: Any) -> str:
    """`lower('Q')` is `'q'`."""
    return _text(text, "lower").lower()


@in_expressions
def upper(text: Any) -> str:
    """`upper('q')` is `'Q'`."""
    return _text(text, "upper").upper()


@in_expressions
def replace(text: Any, old: Any, new: Any) -> str:
    """`replace(text, old, new)`: every `old` in the text becomes `new`."""
    whole, part, instead = (_text(value, "replace") for value in (text, old, new))
    if not part:
        raise FunctionError("`replace`: the text to be replaced is empty")
    if len(whole) + whole.count(part) * (len(instead) - len(part)) > LONGEST_TEXT:
        raise FunctionError(f"`replace` would give more than {LONGEST_TEXT:,} characters")
    return whole.replace(part, instead)


@in_expressions
def len_(x: Any) -> int:
    """`len(xs)`: the number of items of a list, characters of a text, or entries of a part of a config."""
    if isinstance(x, Sized) and not isinstance(x, bytes):
        return len(x)
    raise FunctionError(f"`len` is for text, lists and parts of a config, not {_described(x)}")


@in_expressions
def range_(start: Any, stop: Any = None, step: Any = 1) -> tuple[int, ...]:
    """`range(stop)`, `range(start, stop)`, `range(start, stop, step)`: integers, at most a million."""
    first, last = (0, start) if stop is None else (start, stop)
    for bound in (first, last, step):
        if type(bound) is not int:
            raise FunctionError(f"`range` is for integers, not {_described(bound)}")
    if step == 0:
        raise FunctionError("`range`: the step cannot be 0")
    numbers = range(first, last, step)
    # Not len(), which overflows for ranges of more than 2**63.
    if max(0, (last - first + step - (1 if step > 0 else -1)) // step) > LONGEST_RANGE:
        raise FunctionError(f"`range` would give more than {LONGEST_RANGE:,} numbers")
    return tuple(numbers)


@in_expressions
def require(condition: Any, message: Any) -> bool:
    """`require(condition, message)`: true if the condition holds, otherwise an error with this message.

    Use it for conditions that a recipe depends on: `when: require(heads > 0, 'give --set heads=N')`.
    """
    if not isinstance(condition, bool):
        raise FunctionError(f"`require` is for conditions, not {_described(condition)}")
    if not condition:
        raise FunctionError(_text(message, "require"))
    return True
