r"""Translate assignment maps of T5X to recipes: each entry becomes a `fill` rule, in the same order.

T5X applies a map with `apply_assignment_map` (google-research/t5x, t5x/state_utils.py). Its patterns match
whole keys of the new state, and the first one that matches wins. The replacement, with groups as
`re.Match.expand` takes them, is the key in the checkpoint; None leaves the key to the new state. Keys that no
pattern matches come from the checkpoint under their own name. A pattern that matches nothing is an error
unless `require_all_rules_match` is false.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.migration.key_templates import check_pattern, template_of
from ckpt_surgery.migration.recipes import MigratedRecipe

FUNCTION = "apply_assignment_map"
"""Name of T5X's function for such maps."""
_EMPTY_NODES = {"fill": ".*", "when": "kind(target[key]) == 'empty'", "fallback": True, "optional": True}
"""Rule for nodes without arrays, which T5X's maps never see."""
_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x", re.ASCII: "a"}

Entry = tuple[str | re.Pattern[str], str | None]
"""A pattern over keys of the new state, and the key in the checkpoint, or None."""


def from_t5x_assignment_map(
    assignment_map: Sequence[Entry] | functools.partial[Any], *, require_all_rules_match: bool = True
) -> MigratedRecipe:
    """Make the recipe that does what T5X does with an assignment map. It needs a target: the new state.

    `assignment_map` is a sequence of pairs, as `RestoreCheckpointConfig.assignment_map` takes it, or one of
    its `state_transformation_fns`: a `functools.partial` of `apply_assignment_map`, whose own
    `require_all_rules_match` counts. With `is_resuming=True` the recipe has no rules, as T5X then changes
    nothing.

    A key that neither the map nor the checkpoint gives is an error, as in T5X without `fallback_to_scratch`;
    with it, add `target: {missing: fallback}`. In one case T5X ignores its map: if the checkpoint has a
    leaf of a key that the map fills, and the map takes this leaf to no other key, T5X restores that leaf. The
    recipe follows the map.

    Raises UsageError for other functions, which are code, and for patterns and replacements that `re` or a
    recipe does not take, with the number of the entry.
    """
    options: dict[str, Any] = {}
    if callable(assignment_map):
        options = _of_partial(assignment_map)
        assignment_map = options.pop("assignment_map")
    if options.get("is_resuming"):
        return MigratedRecipe({"version": 1})
    if isinstance(assignment_map, str | bytes) or not isinstance(assignment_map, Sequence):
        raise UsageError(
            f"an assignment map is a sequence of pairs, not {type(assignment_map).__name__}",
            hint="Give pairs of a pattern over the new state's keys and a key of the checkpoint or None.",
        )
    optional = not options.get("require_all_rules_match", require_all_rules_match)
    rules = [_rule(number, entry, optional) for number, entry in enumerate(assignment_map)]
    before = [_EMPTY_NODES] if any("from" in rule for rule in rules) else []
    names = {len(before) + number: f"assignment_map[{number}]" for number in range(len(rules))}
    return MigratedRecipe({"version": 1, "rules": [*before, *rules]}, rules=names)


def _of_partial(function: Any) -> dict[str, Any]:
    """Read the arguments bound to a transformation function of T5X. Raises UsageError for code."""
    is_partial = isinstance(function, functools.partial) and not function.args
    inner, arguments = (function.func, dict(function.keywords)) if is_partial else (function, {})
    name = getattr(inner, "__name__", type(inner).__name__)
    known = {"assignment_map", "require_all_rules_match", "is_resuming"}
    if name == FUNCTION and "assignment_map" in arguments and arguments.keys() <= known:
        return arguments
    raise UsageError(
        f"`{shown(name)}` is code, and only the maps of `{FUNCTION}` are data, in a `functools.partial`",
        hint="Give the map itself, a sequence of pairs; or give `restore` a function of the tree that calls "
        "it.",
    )


def _rule(number: int, entry: Any, optional: bool) -> dict[str, Any]:
    """Make the rule of one entry. `number`: its place in the map, for messages."""
    where = f"assignment_map[{number}]"
    pattern, replacement = entry if isinstance(entry, list | tuple) and len(entry) == 2 else (None, None)
    if isinstance(pattern, re.Pattern):
        pattern = _with_flags(pattern)
    if not isinstance(pattern, str) or not isinstance(replacement, str | None):
        raise UsageError(
            f"{where} is {shown(abridged(entry))}, not a pair of a pattern and a replacement",
            hint="Both are texts; the replacement can be None. Functions of T5X are given one at a time.",
        )
    check_pattern(pattern, f"{where}: `{shown(pattern)}`")
    outcome: dict[str, Any] = {"fallback": True}
    if replacement is not None:
        outcome = {"from": template_of(replacement, pattern, f"{where}: `{shown(replacement)}`")}
    return {"fill": pattern, **outcome, **({"optional": True} if optional else {})}


def _with_flags(pattern: re.Pattern[Any]) -> Any:
    """Write a compiled pattern as a text with inline flags."""
    if not isinstance(pattern.pattern, str):
        return None
    try:
        within = re.compile(pattern.pattern).flags
    except re.error:  # only in verbose mode
        within = 0
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & ~within & flag)
    return f"(?{letters}){pattern.pattern}" if letters else pattern.pattern
