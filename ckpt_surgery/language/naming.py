"""Names that expressions know everywhere, and why a name cannot be given to something else."""

import keyword
from collections.abc import Mapping

from ckpt_surgery.language.scope import CONFIG, CONFIGS, HOOKS, SOURCES
from ckpt_surgery.language.vocabulary import function_names

TARGET = "target"
EVERYWHERE = (TARGET, SOURCES, CONFIG, CONFIGS)
"""Names that every expression knows."""


MEANINGS: Mapping[str, str] = {
    "x": "`x` is the leaf that a `match` or `fill` rule claimed; there is none here",
    "xs": "`xs` is the list of leaves that share one `to`: it is for the values of a `match` rule with `to`",
    "key": "`key` is the key that a rule claimed; there is none here",
    "g": "`g` holds the groups of a regular expression; there is none here",
}
"""Names that stand for what a rule works on."""


def name_problem(name: str, owners: Mapping[str, str]) -> str | None:
    """Why a name cannot be given, or None. `owners` says what names are taken for."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        return f"`{name}` is not a name: letters, digits and `_`, and no word of Python's"
    if name in function_names():
        return f"`{name}` is a function; choose another name"
    if name in MEANINGS or name in (*EVERYWHERE, HOOKS):
        return f"`{name}` has a meaning of its own in recipes; choose another name"
    return f"`{name}` is {owners[name]} already; choose another name" if name in owners else None
