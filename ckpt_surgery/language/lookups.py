"""The functions `has`, `kind` and `get`, which look up a leaf or an entry that may be missing."""

from collections.abc import Callable, Mapping
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.language.configs import MISSING, Config, Configs, Entries, reached
from ckpt_surgery.language.scope import Leaves, kind_of
from ckpt_surgery.language.subscripts import key_text, subscripted
from ckpt_surgery.language.values import told


def has(name: str, holder: Any, key: Any) -> bool:
    """Whether there is such a leaf, or such an entry that is not null.

    `name` is what the expression calls `holder`.
    """
    if isinstance(holder, Leaves):
        return key_text(name, key) in holder.keys()  # noqa: SIM118 - not a mapping
    return _found(holder, key, "has") is not MISSING


def kind(name: str, holder: Any, key: Any) -> str:
    """The kind of a leaf. Raises FunctionError if there is no such leaf."""
    if not isinstance(holder, Leaves):
        raise FunctionError(f"`kind` looks into a source or the target, not {told(holder)}")
    return kind_of(name, holder, key_text(name, key))


def get(name: str, holder: Any, key: Any, default: Any) -> Any:
    """The array of a leaf, or an entry; the default if it is missing or null."""
    if isinstance(holder, Leaves):
        return subscripted(holder, key, name) if has(name, holder, key) else default
    found = _found(holder, key, "get")
    return default if found is MISSING else found


def within(holder: Any, key: Any) -> Any:
    """The holder `holder[key]` that a further key is looked up in, or MISSING if it holds no entries."""
    found = _found(holder, key, "has")
    return found if isinstance(found, _HOLDERS) else MISSING


_HOLDERS = (Config, Configs, Entries, list)


def _found(holder: Any, key: Any, function: str) -> Any:
    if holder is MISSING or isinstance(holder, _HOLDERS):
        return reached(holder, key)
    raise FunctionError(f"`{function}` looks into a source, the target or a config, not {told(holder)}")


LOOKUPS: Mapping[str, Callable[..., Any]] = {"has": has, "kind": kind, "get": get}
"""Functions whose first argument is a look-up, `source['a/b']`, which is not evaluated before the call."""
