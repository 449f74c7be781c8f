"""Every name that expressions can call, and what is wrong with a name or a call that does not fit."""

from collections.abc import Iterable, Sequence

from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.functions.signatures import signature_problem
from ckpt_surgery.language.scope import (
    HOOKS,
)

BUILT_IN = {
    "has": "`has(source['a/b'])`: whether that source, or the target, has a leaf of this key. "
    "`has(config['a']['b'])`: whether there is such an entry, and it is not null; nor is any before it.",
    "get": "`get(config['a'], default)`: the entry, or the default where `has` would be false. "
    "`get(source['a/b'], default)`: the same of a leaf.",
    "kind": "`kind(source['a/b'])`: what that leaf is: `'array'`, `'scalar'`, `'string'`, `'prng_key'` or "
    "`'empty'`. Only the first two have a value that expressions can use.",
    "count": "`count('regex')`: how many keys of the first source match the regular expression.",
}


def function_names() -> frozenset[str]:
    """All names that an expression can call."""
    return frozenset((*registry(), *BUILT_IN))


def unknown_name(name: str, known: Iterable[str]) -> str:
    if name in function_names():
        return f"`{name}` is a function; call it: {name}(…)"
    if name == HOOKS:
        return "`hooks` needs a line `hooks: FILE.py` in the recipe"
    return f"unknown name `{name}`{did_you_mean(name, known)}"


def call_problem(name: str, positional: int, keywords: Sequence[str]) -> str | None:
    if name in BUILT_IN:
        return None  # they are checked while parsing
    function = registry().get(name)
    if function is None:
        return f"unknown function `{name}`{did_you_mean(name, function_names())}"
    return signature_problem(function, positional, keywords)
