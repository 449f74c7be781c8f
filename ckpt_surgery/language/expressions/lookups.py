"""Functions outside of the registry: look-ups of what may be missing, and those of regular expressions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import regex

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.language.expressions.configs import MISSING, Config, Configs, Entries, reached
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import Leaves, Scope, looked_up
from ckpt_surgery.language.expressions.subscripts import key_text, subscripted
from ckpt_surgery.language.expressions.values import bounded, told


def has(holder: Any, key: Any) -> bool:
    """Whether there is such a leaf, or such an entry that is not null."""
    if isinstance(holder, Leaves):
        return key_text(holder, key) in holder.keys()  # noqa: SIM118 - not a mapping
    return _entry(holder, key, "has") is not MISSING


def kind(holder: Any, key: Any) -> str:
    """The kind of a leaf. Raises FunctionError if there is no such leaf."""
    if not isinstance(holder, Leaves):
        raise FunctionError(f"`kind` looks into a source or the target, not {told(holder)}")
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


_HOLDERS = (Config, Configs, Entries, list)


def _entry(holder: Any, key: Any, function: str) -> Any:
    if holder is MISSING or isinstance(holder, _HOLDERS):
        return reached(holder, key)
    raise FunctionError(f"`{function}` looks into a source, the target or a config, not {told(holder)}")


LOOKUPS: Mapping[str, Callable[..., Any]] = {"has": has, "kind": kind, "get": get}
"""Functions whose first argument is a look-up, `source['a/b']`, which is not evaluated before the call."""


def counted(scope: Scope, pattern: Any) -> int:
    """The value of `count('regex')`."""
    if not isinstance(pattern, str):
        raise FunctionError(f"`count` takes a regular expression as text, not {told(pattern)}")
    if scope.count is None:
        raise FunctionError("`count` has no keys to count here")
    return scope.count(pattern)


def substitution() -> Callable[[Scope, Any, Any, Any], str]:
    """What `sub(text, 'regex', 'replacement')` does at one place of a recipe, whose matches share a limit."""
    budget = MatchBudget()

    def substituted(scope: Scope, text: Any, pattern: Any, replacement: Any) -> str:
        for value in (text, pattern, replacement):
            if not isinstance(value, str):
                raise FunctionError(f"`sub` takes three texts, not {told(value)}")
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
