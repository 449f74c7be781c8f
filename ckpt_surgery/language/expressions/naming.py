"""Names of functions and values in expressions: those that are allowed, and messages for unknown ones."""

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.text import did_you_mean, shortened
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.other_libraries import INSTEAD
from ckpt_surgery.language.expressions.scope import CONFIG, CONFIGS, HOOKS, SOURCES

SOURCE = "source"
"""Name of the only source of a recipe that names none."""
_OF_SOURCES = re.compile(r"(?:source|src)(?:_?[0-9]+)?")

TARGET = "target"
EVERYWHERE = (TARGET, SOURCES, CONFIG, CONFIGS)
"""Names that all expressions can use."""

MEANINGS: Mapping[str, str] = {
    "x": "`x` is the leaf that a `match` or `fill` rule claimed, and no leaf is claimed here",
    "xs": "`xs` is the list of leaves that share one `to`; only values of a `match` rule with `to` have it",
    "key": "`key` is the key that a rule claimed, and no leaf is claimed here",
    "g": "`g` holds the groups of a regular expression, and this place has none",
}
"""Names that depend on the rule, with the message for a place where they have no value."""


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


def unknown_function(name: str) -> str:
    """The message for a call of a function that is not there."""
    instead = f"; {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, function_names())
    return f"unknown function `{name}`{instead}"


def name_problem(name: str, owners: Mapping[str, str], subscripted: bool = False) -> str | None:
    """The message if a name is not allowed or is taken, or None.

    `owners` says what each name that is taken stands for. `subscripted`: the name is only used with a
    subscript, as those of sources are, and so can be that of a function, which is only called.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        return f"`{name}` is not a valid name; use letters, digits and `_`, and no Python keyword"
    if name in function_names() and not subscripted:
        return f"`{name}` is a function; choose another name"
    if name in MEANINGS or name in (*EVERYWHERE, HOOKS):
        return f"`{name}` has a meaning of its own in recipes; choose another name"
    return f"`{name}` is already {owners[name]}; choose another name" if name in owners else None


def unknown_name(name: str, known: Iterable[str], sources: Sequence[str] = ()) -> str:
    """The message for a name that is none of the `known` ones. `sources`: names of the recipe's sources."""
    if name in MEANINGS:
        return MEANINGS[name]
    if sources and _OF_SOURCES.fullmatch(name):
        more = "; others need names under `sources:`" if list(sources) == [SOURCE] else ""
        return f"unknown name `{name}`; sources here: {', '.join(f'`{source}`' for source in sources)}{more}"
    if name in function_names():
        return f"`{name}` is a function; call it: {name}(…)"
    if name == HOOKS:
        return "`hooks` needs a line `hooks: FILE.py` in the recipe"
    if name in DTYPES:
        return f"unknown name `{name}`; a type is written as text: '{name}'"
    return f"unknown name `{shortened(name, 60)}`{did_you_mean(name, known)}"
