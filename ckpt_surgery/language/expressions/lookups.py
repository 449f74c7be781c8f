"""Subscripts and attributes, look-ups of what may be missing, and functions of regular expressions."""

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

import regex

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.language.expressions.configs import MISSING, Configs, Entries, reached
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import (
    Groups,
    Leaves,
    Lookup,
    Scope,
    bounded,
    described,
    is_list,
    looked_up,
    series_hint,
)


def has(holder: Any, key: Any) -> bool:
    """Whether there is such a leaf, or such an entry that is not null."""
    if isinstance(holder, Leaves):
        return key_text(holder, key) in holder.keys()  # noqa: SIM118 - not a mapping
    return _entry(holder, key, "has") is not MISSING


def kind(holder: Any, key: Any) -> str:
    """The kind of a leaf. Raises FunctionError if there is no such leaf."""
    if not isinstance(holder, Leaves):
        raise FunctionError(f"`kind` looks into a source or the target, not {described(holder)}")
    return looked_up(holder, key_text(holder, key), holder.kind)


def get(holder: Any, key: Any, default: Any) -> Any:
    """The array of a leaf, or an entry; the default if it is missing or null."""
    if isinstance(holder, Leaves):
        return subscripted(holder, key) if has(holder, key) else default
    entry = _entry(holder, key, "get")
    return default if entry is MISSING else entry


def within(holder: Any, key: Any) -> Any:
    """The holder `holder[key]` that a further key is looked up in, or MISSING if it holds no entries."""
    entry = _entry(holder, key, "has")
    return entry if isinstance(entry, _HOLDERS) else MISSING


_HOLDERS = (Configs, Entries, list)


def _entry(holder: Any, key: Any, function: str) -> Any:
    if holder is MISSING or isinstance(holder, _HOLDERS):
        return reached(holder, key)
    raise FunctionError(f"`{function}` looks into a source, the target or a config, not {described(holder)}")


LOOKUPS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "has": (has, "source['a/b']"),
    "kind": (kind, "source['a/b']"),
    "get": (get, "source['a/b'], default"),
}
"""Functions whose first argument is a look-up, which is not evaluated before the call; their arguments."""


def counted(scope: Scope, pattern: Any) -> int:
    """The value of `count('regex')`."""
    if not isinstance(pattern, str):
        raise FunctionError(f"`count` takes a regular expression as text, not {described(pattern)}")
    if scope.count is None:
        raise FunctionError("`count` has no keys to count here")
    return scope.count(pattern)


def substitution() -> Callable[[Scope, Any, Any, Any], str]:
    """`sub(text, 'regex', 'replacement')` at one place of a recipe, whose matches share a limit."""
    budget = MatchBudget()

    def substituted(scope: Scope, text: Any, pattern: Any, replacement: Any) -> str:
        for value in (text, pattern, replacement):
            if not isinstance(value, str):
                raise FunctionError(f"`sub` takes three texts, not {described(value)}")
        try:
            replaced: str = bounded(budget.sub(compile_pattern(pattern), replacement, text))
        except (regex.error, IndexError) as error:
            raise FunctionError(f"`sub`: the replacement {replacement!r} does not fit: {error}") from None
        return replaced

    return substituted


WITH_PATTERNS: Mapping[str, tuple[Sequence[str], str, Callable[[], Callable[..., Any]]]] = {
    "count": (("regex",), "one regular expression: count('regex')", lambda: counted),
    "sub": (("text", "regex", "replacement"), "three texts: sub(text, 'regex', 'replacement')", substitution),
}
"""Functions of a regular expression: parameters, usage, and what makes the action of one call."""


def subscripted(value: Any, index: Any) -> Any:
    """The value of `value[index]`; `index` is a tuple if the subscript has a comma."""
    if isinstance(value, Array):
        for item in index if isinstance(index, tuple) else (index,):
            _check_item(item)
        return value[index]
    if isinstance(value, Lookup):
        return value.entry(index)
    if isinstance(value, Groups):
        return value.text(index)
    if isinstance(value, Series):
        return _element(list(require_no_gaps(value)), index)
    if isinstance(value, str | list | tuple | range):
        return _element(value, index)
    if isinstance(value, Leaves):
        return looked_up(value, key_text(value, index), value.lookup)
    raise FunctionError(f"{described(value)} has no elements")


def key_text(leaves: Leaves, index: Any) -> str:
    """The key in `leaves[key]`. Raises FunctionError if it is not text."""
    if not isinstance(index, str):
        raise FunctionError(f"the key in `{leaves.name}[…]` has to be text, not {described(index)}")
    return index


def _check_item(item: Any) -> None:
    """Raises FunctionError for an item of a subscript that no array takes."""
    if isinstance(item, slice):
        for bound in (item.start, item.stop, item.step):
            if bound is not None and type(bound) is not int:
                raise FunctionError(f"the bounds of a slice have to be integers, not {described(bound)}")
    elif not (item is None or isinstance(item, EllipsisType) or type(item) is int):
        hint = "take(x, [0, 2], axis) takes several elements." if is_list(item) else None
        raise FunctionError(f"an array is not indexed with {described(item)}", hint=hint)


def _element(values: Any, index: Any) -> Any:
    if isinstance(index, slice):
        if index.step == 0:
            raise FunctionError("the step of a slice cannot be 0")
        _check_item(index)
        return values[index]
    if type(index) is not int:
        raise FunctionError(f"{described(values)} is indexed with an integer, not {described(index)}")
    if not -len(values) <= index < len(values):
        raise FunctionError(f"index {index} is out of bounds for {described(values)}")
    return values[index]


ATTRIBUTES = ("T", "shape", "dtype", "ndim", "size")


def attribute(value: Any, name: str) -> Any:
    """The value of `value.name`. Raises FunctionError for anything but an array."""
    if not isinstance(value, Array):
        hint = series_hint(value) and "xs[0] is the first of them."
        raise FunctionError(f"`.{name}` is for arrays, not {described(value)}", hint=hint)
    return value.dtype.name if name == "dtype" else getattr(value, name)
