"""Functions of text and numbers. They are evaluated while planning, within limits: recipes can be
untrusted."""

from collections.abc import Sized
from contextlib import suppress
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.functions.base import Number, in_expressions

LONGEST_RANGE = 1_000_000  # Limit on the numbers that `range` gives

LONGEST_TEXT = 64 * 1024  # Limit on the characters of a text that `replace` gives


@in_expressions
def int_(x: str | Number) -> int:
    """`int('12')` and `int(2.7)`: a decimal text or a number as an integer; fractions are truncated."""
    with suppress(ValueError, OverflowError):
        return int(x)
    raise FunctionError(f"`int` is for numbers and texts of integers, not {abridged(x)}")


@in_expressions
def str_(x: str | Number | None) -> str:
    """`str(3)`: text, a number, a bool or None as text."""
    return str(x)


@in_expressions
def lower(text: str) -> str:
    """`lower('Q')` is `'q'`."""
    return text.lower()


@in_expressions
def upper(text: str) -> str:
    """`upper('q')` is `'Q'`."""
    return text.upper()


@in_expressions
def replace(text: str, old: str, new: str) -> str:
    """`replace(text, old, new)`: every `old` in the text becomes `new`."""
    if not old:
        raise FunctionError("`replace`: the text to be replaced is empty")
    if len(text) + text.count(old) * (len(new) - len(old)) > LONGEST_TEXT:
        raise FunctionError(f"`replace` would give more than {LONGEST_TEXT:,} characters")
    return text.replace(old, new)


@in_expressions
def len_(x: Any) -> int:
    """`len(xs)`: the number of items of a list, characters of a text, or entries of a part of a config."""
    if isinstance(x, Sized) and not isinstance(x, bytes):
        return len(x)
    raise FunctionError(f"`len` is for text, lists and parts of a config, not {abridged(x)}")


@in_expressions
def range_(start: int, stop: int | None = None, step: int = 1) -> tuple[int, ...]:
    """`range(stop)`, `range(start, stop)`, `range(start, stop, step)`: integers, at most a million."""
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise FunctionError("`range`: the step cannot be 0")
    numbers = range(first, last, step)
    # Not len(), which overflows for ranges of more than 2**63.
    if max(0, (last - first + step - (1 if step > 0 else -1)) // step) > LONGEST_RANGE:
        raise FunctionError(f"`range` would give more than {LONGEST_RANGE:,} numbers")
    return tuple(numbers)


@in_expressions
def require(condition: bool, message: str) -> bool:
    """`require(condition, message)`: true if the condition holds, otherwise an error with this message.

    Use it for conditions that a recipe depends on: `when: require(heads > 0, 'give --set heads=N')`.
    """
    if not condition:
        raise FunctionError(message)
    return True
