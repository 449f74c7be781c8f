"""The functions that expressions can call, and the messages for wrong calls."""

from collections.abc import Sequence

from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.functions.signatures import call_problem as problem_of_call
from ckpt_surgery.functions.signatures import usage
from ckpt_surgery.language.expressions.other_libraries import written_here

BUILT_IN = {
    "has": "`has(source['a/b'])`: whether that source, or the target, has a leaf of this key. "
    "`has(config['a']['b'])`: whether there is such an entry, and no entry on its path is null.",
    "get": "`get(config['a'], default)`: the entry, or the default where `has` would be false. "
    "`get(source['a/b'], default)`: the same for a leaf.",
    "kind": "`kind(source['a/b'])`: what that leaf is: `'array'`, `'scalar'`, `'string'`, `'prng_key'` or "
    "`'empty'`. Only the first two have a value that expressions can use.",
    "sub": "`sub(text, 'regex', 'replacement')`: the text, in which every part that the regular expression "
    "matches is replaced. `\\1` and `\\g<name>` in the replacement are groups of the match.",
    "count": "`count('regex')`: how many keys of the first source match the regular expression.",
}
"""Functions that need the scope, and so are not in the registry, with their documentation."""


def function_names() -> frozenset[str]:
    """The names of all functions that expressions can call."""
    return frozenset((*registry(), *BUILT_IN))


def usages() -> dict[str, str]:
    """How each function of the registry is called, by name: `pad(x, axis, to, value=…)`."""
    return {name: usage(function, "{}=…") for name, function in registry().items()}


def call_problem(name: str, positional: int, keywords: Sequence[str]) -> str | None:
    """The message for a call that does not fit the function's signature, or None."""
    if name in BUILT_IN:
        return None  # the compiler has checked their arguments
    function = registry().get(name)
    if function is None:
        return f"unknown function `{name}`{written_here(name) or did_you_mean(name, function_names())}"
    return problem_of_call(function, positional, tuple(keywords))
