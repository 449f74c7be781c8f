"""`has`, `kind` and `get`: they look something up that may not be there."""

from collections.abc import Callable, Mapping
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.language.configs import MISSING, Config, Configs, Entries, reached
from ckpt_surgery.language.scope import Leaves, kind_of
from ckpt_surgery.language.subscripts import key_text, subscripted
from ckpt_surgery.language.values import told


def has(name: str, holder: Any, key: Any) -> bool:
    """Whether there is such a leaf, or such an entry that is not null. `name`: what `holder` is called."""
    if isinstance(holder, Leaves):
        return key_text(name, key) in holder.keys()  # noqa: SIM118 - not a mapping
    return _found(holder, key, "has") is not MISSING


def kind(name: str, holder: Any, key: Any) -> str:
    """What a leaf is."""
    if not isinstance(holder, Leaves):
        raise FunctionError(f"`kind` looks into a source or the target, not {told(holder)}")
    return kind_of(name, holder, key_text(name, key))


def get(name: str, holder: Any, key: Any, default: Any) -> Any:
    """The leaf's value, or the entry; the default where there is none, or null."""
    if isinstance(holder, Leaves):
        return subscripted(holder, key, name) if has(name, holder, key) else default
    found = _found(holder, key, "get")
    return default if found is MISSING else found


def within(holder: Any, key: Any) -> Any:
    """What `holder[key]` is to be looked into for; MISSING where there is nothing."""
    found = _found(holder, key, "has")
    return found if isinstance(found, _HOLDERS) else MISSING


_HOLDERS = (Config, Configs, Entries, list)


def _found(holder: Any, key: Any, function: str) -> Any:
    if holder is MISSING or isinstance(holder, _HOLDERS):
        return reached(holder, key)
    raise FunctionError(f"`{function}` looks into a source, the target or a config, not {told(holder)}")


LOOKUPS: Mapping[str, Callable[..., Any]] = {"has": has, "kind": kind, "get": get}
"""Functions whose first argument is a look-up, `source['a/b']`, and is not evaluated like others."""
