"""Values of expressions: their descriptions in messages, and the limits on their size."""

from collections.abc import Iterable
from types import EllipsisType
from typing import Any, TypeGuard

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series
from ckpt_surgery.language.expressions.scope import Groups, Leaves, Lookup

MAX_BITS = 128
"""Limit on the bits of an integer that an expression computes."""
MAX_STRING = 1 << 16
"""Limit on the characters of a text that an expression computes."""
MAX_LIST = 1_000_000
"""Limit on the values of a list, and on those of all lists in a list together."""


def described(value: object) -> str:
    """A description of a value, for messages: `the number 3`, `an array float32[4,6]`."""
    if isinstance(value, Array):
        return f"an array {value.spec}"
    if isinstance(value, Series):
        return f"a list of {len(value.items)} arrays"
    if isinstance(value, Lookup):
        return value.description
    if isinstance(value, Groups):
        return "the groups of the match"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!r}"
    if is_list(value):
        noun = "arrays" if value and all(isinstance(item, Array) for item in value) else "values"
        return f"a list of {len(value)} {noun}"
    if isinstance(value, slice | EllipsisType):
        return "a slice"
    return "a source" if isinstance(value, Leaves) else "the hooks"  # no other kind of value exists


def bounded(value: Any) -> Any:
    """The value itself. Raises FunctionError if it is larger than a recipe may compute."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise FunctionError(f"the integer is too large: {value.bit_length()} bits, the limit is {MAX_BITS}")
    if isinstance(value, str) and len(value) > MAX_STRING:
        raise FunctionError(f"the text is too long: {len(value)} characters, the limit is {MAX_STRING}")
    if isinstance(value, list | tuple) and len(value) > MAX_LIST:
        raise FunctionError(f"the list is too long: {len(value)} values, the limit is {MAX_LIST}")
    return value


def listed(values: Iterable[Any]) -> list[Any]:
    """The values of a list or of the arguments of a call.

    They are taken one by one, so that many long lists are never in memory together. Raises FunctionError if
    they are too long together.
    """
    held: list[Any] = []
    size = 0
    for value in values:
        if isinstance(value, list | tuple):
            size += len(value)
            if size > MAX_LIST:
                raise FunctionError(f"the lists are too long together; the limit is {MAX_LIST} values")
        held.append(value)
    return held


def bounded_together(value: Any) -> Any:
    """The value itself, which has a name. Raises FunctionError if it has too many values, nested ones too.

    Without the limit, names that each list the one before twice would make lists that double.
    """
    pending, size = [value], 0
    while pending:
        part = pending.pop()
        if isinstance(part, list | tuple):
            size += len(part)
            if size > MAX_LIST:
                raise FunctionError(f"the lists are too long together; the limit is {MAX_LIST} values")
            pending.extend(item for item in part if isinstance(item, list | tuple))
    return value


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...] | range]:
    return isinstance(value, list | tuple | range)


def series_hint(value: object) -> str | None:
    return (
        "stack(xs), concat(xs), mean(xs) and sum(xs) make one array of it."
        if isinstance(value, Series)
        else None
    )
