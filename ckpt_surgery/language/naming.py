"""Names with a meaning of their own in recipes, and the check that no other name is the same."""

import keyword
from collections.abc import Mapping

from ckpt_surgery.language.scope import CONFIG, CONFIGS, HOOKS, SOURCES
from ckpt_surgery.language.vocabulary import function_names

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
