"""Select leaves by a pattern for keys, or below the key of a subtree; recipes of the command line's rules."""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR, text_of
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.inputs.opening import open_input
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.request import path_of_source
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.written import document_of, in_order, inside_keys, selection_of


def recipe_of_selection(
    src: PathLike, match: str | None, under: str | None, to: str | None, **which: Unpack[SourceOptions]
) -> dict[str, Any] | None:
    """Recipe that keeps the selected leaves of `src` and drops all others; None without a selection.

    `match`, `under`: see `matching` and `below`. `to`: the layout of a conversion, which has its own recipe.
    Raises UsageError where nothing matches or `to` is given too, SourceError where `src` cannot be read.
    """
    if match is None and under is None:
        return None
    if to is not None:
        name = "match" if under is None else "under"
        problem = f"`{name}` and a layout do not go together: the recipe for {shown(to)} chooses its leaves"
        raise UsageError(problem, hint=f"Leave out `{name}=…`, or convert to the layout first.")
    selected(open_input(path_of_source(src), **which).leaves(), match, under)
    return selection_of(match, under)


def selected(leaves: Mapping[str, Leaf], match: str | None, under: str | None) -> dict[str, Leaf]:
    """The leaves below `under` that match. Raises UsageError where there is none."""
    part = below(leaves, under)
    chosen = matching(part, match)
    check_matched(match, len(chosen), part)
    return chosen


def matching(leaves: Mapping[str, Leaf], match: str | None) -> dict[str, Leaf]:
    """The leaves whose whole keys match; all of them if `match` is None. Raises UsageError, RecipeError."""
    if match is None:
        return dict(leaves)
    try:
        pattern = compile_pattern(match)
    except ExpressionError as error:
        where = f"at character {error.start + 1} of `{shown(match)}`"
        raise UsageError(f"`match`: {error.message} ({where})") from None
    budget = MatchBudget()
    return {key: leaf for key, leaf in leaves.items() if budget.fullmatch(pattern, key)}


def below(leaves: Mapping[str, Leaf], under: str | None) -> dict[str, Leaf]:
    """The leaves of the subtree with this key, or the leaf itself; all if it is None. Raises UsageError."""
    if under is None:
        return dict(leaves)
    start = text_of(under).rstrip(SEPARATOR) + SEPARATOR
    inside = {key: leaf for key, leaf in leaves.items() if f"{key}{SEPARATOR}".startswith(start)}
    if inside or not leaves:
        return inside
    level = start.count(SEPARATOR)
    known = dict.fromkeys(SEPARATOR.join(key.split(SEPARATOR)[:level]) for key in leaves)
    guess = did_you_mean(start.rstrip(SEPARATOR), known)
    hint = "Name the first components of keys, such as `params/decoder`."
    raise UsageError(f"`under`: no key is below `{shown(under)}`{guess}", hint=hint)


def check_matched(match: str | None, count: int, searched: Mapping[str, Leaf]) -> None:
    """Refuse a regular expression that matches none of the keys that were searched. Raises UsageError."""
    if match is None or count or not searched:
        return
    wider = f".*(?:{match}).*" if "|" in match else f".*{match}.*"
    part = matching(searched, wider)
    hint = f"; `{shown(wider)}` matches {len(part):,}." if part else "."
    hint = f"The expression has to match the whole key, as in recipes{hint}"
    raise UsageError(f"`match`: `{shown(match)}` matches none of {len(searched):,} keys", hint=hint)


def recipe_of_rules(rules: Iterable[str]) -> str:
    """Text of a recipe of command-line rules, such as `s|REGEX|TEMPLATE|`. Raises UsageError for others."""
    from ckpt_surgery.language.yaml.writing import yaml_text  # imports PyYAML

    return yaml_text(document_of(tuple(rules)))


def rule_inside_keys(rules: Iterable[str], number: int) -> str | None:
    """Variant of a rule of `recipe_of_rules` that matches inside keys; None if there is no such rule."""
    return inside_keys(in_order(tuple(rules))[number])
