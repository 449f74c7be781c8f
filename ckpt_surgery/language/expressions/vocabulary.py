"""The functions that expressions can call, their calls, and the messages for wrong ones."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.functions.base import Number, Plain, expression_name
from ckpt_surgery.functions.binding import call
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.functions.signatures import call_problem as problem_of_call
from ckpt_surgery.functions.signatures import usage
from ckpt_surgery.language.expressions.other_libraries import INSTEAD
from ckpt_surgery.language.expressions.scope import Lookup, Scope
from ckpt_surgery.language.expressions.values import bounded, told

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
    """Signatures of the registry's functions, by name: `pad(x, axis, to, value=…)`."""
    return {name: usage(function, "{}=…") for name, function in registry().items()}


def call_problem(name: str, positional: int, keywords: Sequence[str]) -> str | None:
    """The message for a call that does not fit the function's signature, or None."""
    function = registry().get(name)
    if function is None:
        instead = f"; {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, function_names())
        return f"unknown function `{name}`{instead}"
    return problem_of_call(function, positional, tuple(keywords))


def called(function: Plain, arguments: Sequence[Any], keywords: Mapping[str, Any], scope: Scope) -> Any:
    """The value of a call: a lazy array, a list of them, or a plain value.

    Raises SurgeryError for arguments that the function does not take.
    """
    given = list(map(_argument, arguments))
    named = {name: _argument(value) for name, value in keywords.items()}
    result = call(function, given, named, scope.leaf_key)
    if isinstance(result, Array | Number | str | list | tuple | range):
        return bounded(result)
    name = expression_name(function)
    raise FunctionError(f"`{name}` gave a {type(result).__name__}, and no array, number or text")


_PLAIN = frozenset([str, int, float, bool, type(None)])
"""Types of what functions take as it is. Lists of these, of up to a million, are looked at at once."""


def _argument(value: Any) -> Any:
    """The value as functions take it: `xs` in a list becomes a list of arrays.

    Raises FunctionError for values that no function takes, such as a source.
    """
    if isinstance(value, list | tuple):
        if _PLAIN.issuperset(map(type, value)):
            return value
        items = (list(require_no_gaps(v)) if isinstance(v, Series) else _argument(v) for v in value)
        return type(value)(items)
    if isinstance(value, Array | Series | Number | str | range) or value is None:
        return value
    if isinstance(value, Lookup) and isinstance(value, Sized):
        return value  # a part of a config, for `len`
    raise FunctionError(f"{told(value)} cannot be an argument")
