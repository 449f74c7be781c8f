r"""T5X's ways of changing checkpoints as recipes: assignment maps, and translators of its importer.

T5X applies a map with `apply_assignment_map` (google-research/t5x, t5x/state_utils.py). Its patterns match
whole keys of the new state, and the first one that matches wins. The replacement, with groups as
`re.Match.expand` takes them, is the key in the checkpoint; None leaves the key to the new state. Keys that no
pattern matches come from the checkpoint under their own name. A pattern that matches nothing is an error
unless `require_all_rules_match` is false.

Translators are rules in Python that give each leaf of a flat dict a new key and value. The semantics are
those of `CheckpointTranslator` in t5x/checkpoint_importer.py: `re.match` with `$` behind the pattern, and the
first rule that matches wins. What T5X does silently is refused: that two leaves get one name. Keys without
a rule, which it refuses after all functions have run, are refused before the first.
"""

import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ckpt_surgery.core.errors import Code, PlanError, Problem, UsageError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.live.lazy_arrays import introduce_to_t5x
from ckpt_surgery.migration.key_templates import check_pattern, template_of
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.replacing import replaced

FUNCTION = "apply_assignment_map"
"""Name of T5X's function for such maps."""
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
    rules = [_entry_rule(number, entry, optional) for number, entry in enumerate(assignment_map)]
    # Nodes without arrays, which T5X's maps never see.
    empty = {"fill": ".*", "when": "kind(target[key]) == 'empty'", "fallback": True, "optional": True}
    before = [empty] if any("from" in rule for rule in rules) else []
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
    said = f"`{shown(name)}` is code, and only the maps of `{FUNCTION}` are data"
    if name == FUNCTION:
        said = f"`{FUNCTION}` is given without its map, or with more than its options"
    raise UsageError(
        said,
        hint="Give the map itself, a sequence of pairs, or a `functools.partial` of that function with its "
        "map and options; or give `restore` a function of the tree that calls it.",
    )


def _entry_rule(number: int, entry: Any, optional: bool) -> dict[str, Any]:
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


Translation = Callable[..., Any]
"""A function of options, key, value and groups. It returns a new key, None to drop the leaf, and a value."""
F = TypeVar("F", bound=Translation)
Rule = tuple[re.Pattern[str], Translation]


class CheckpointTranslator:
    """Rules that give each leaf of a flat checkpoint a new key and value, as T5X's importer has them."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        """Patterns and functions, in the order in which they are tried."""

    def add(self, pattern: str) -> Callable[[F], F]:
        """Make a decorator that adds a function as the rule for keys that a regular expression matches.

        The expression is that of `re`; it has to match the whole key. The function is called with a dict of
        the options of `apply`, the key, the value, and the text of each group, and returns the new key, or
        None to drop the leaf, and the new value. The decorator returns the function itself.

        Raises UsageError for what is not a regular expression.
        """
        compiled = _compiled(pattern, f"rule {len(self.rules)}")

        def register(function: F) -> F:
            self.rules.append((compiled, function))
            return function

        return register

    def apply(self, flat: Mapping[str, Any], /, **options: Any) -> dict[str, Any]:
        """Translate a flat dict, or a Checkpoint, whose arrays are then lazy; `options` go to each function.

        Values may be anything; functions of T5X that ask for its LazyArray see ours as one.

        Raises PlanError, with all keys, for keys that no rule matches, before a function is called, and for
        several keys with one new name; UsageError for a function that does not return a key and a value.
        What a function raises is passed on.
        """
        return translate(self.rules, flat, options)


def rules_of(translator: Any) -> Sequence[Rule]:
    """Rules of a translator: T5X's, ours, or any object with such pairs. Raises UsageError for others."""
    rules = getattr(translator, "rules", None)
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        hint = "Give a `CheckpointTranslator` of `ckpt_surgery.t5x` or of T5X."
        raise UsageError(f"{shown(abridged(translator))} is not a translator: it has no `rules`", hint=hint)
    return [_rule(rule, number) for number, rule in enumerate(rules)]


class TranslatorFunction:
    """A translator with its options as a function of a flat dict, for callers that name functions."""

    def __init__(self, translator: Any, options: Mapping[str, Any]):
        """Raises UsageError for what is not a translator."""
        self.rules, self.options = rules_of(translator), options
        self.__qualname__ = type(translator).__name__
        first = inspect.unwrap(self.rules[0][1]) if self.rules else None
        self.__code__ = getattr(first, "__code__", None)  # messages name the line where the rules begin

    def __call__(self, flat: Mapping[str, Any], /) -> dict[str, Any]:
        functions = [function for _, function in self.rules]
        with replaced(*functions):
            return translate(self.rules, flat, self.options)


def translate(rules: Sequence[Rule], flat: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Give each leaf the key and value of the first rule that matches. Raises PlanError and UsageError."""
    introduce_to_t5x()

    def first_match(key: str) -> tuple[re.Match[str], Translation] | None:
        return next(((match, f) for pattern, f in rules if (match := pattern.match(key)) is not None), None)

    matched = {key: first_match(key) for key in flat}
    if unmatched := [key for key, rule in matched.items() if rule is None]:
        raise PlanError(
            f"no rule of the translator matches {_keys(unmatched)}",
            hint="Add rules for these; one whose function returns `None` as the key drops a leaf.",
            code=Code.UNCLAIMED,
        )
    translated: dict[str, Any] = {}
    shared = dict(options)  # one dict for all functions, as in T5X
    origins = defaultdict[str, list[str]](list)
    for key, rule in matched.items():
        assert rule is not None
        match, function = rule
        result = function(shared, key, flat[key], *match.groups())
        if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[0], str | None):
            name = getattr(function, "__qualname__", type(function).__name__)
            raise UsageError(
                f"`{shown(name)}` of the translator returns {shown(abridged(result))} for `{shown(key)}`",
                hint="It has to return the new key, or None, and the value.",
            )
        new, value = result
        if new is not None:
            translated[new] = value
            origins[new].append(key)
    if problems := [
        Problem(
            f"{len(keys)} leaves would be called `{shown(new)}`: {_keys(keys)}",
            hint="Make the new keys distinct, or drop all leaves but one by `None` as their key.",
        )
        for new, keys in origins.items()
        if len(keys) > 1
    ]:
        raise PlanError(*problems, code=Code.SAME_KEY)
    return translated


def _rule(rule: Any, number: int) -> Rule:
    pattern, function = rule if isinstance(rule, tuple | list) and len(rule) == 2 else (None, None)
    if isinstance(pattern, str):
        pattern = _compiled(pattern, f"rules[{number}]")
    if not isinstance(pattern, re.Pattern) or not callable(function):
        raise UsageError(
            f"rules[{number}] of the translator is {shown(abridged(rule))}, not a pattern and a function",
            hint="Make rules with `@translator.add(pattern)`.",
        )
    return pattern, function


def _compiled(pattern: str, which: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise UsageError(f"{which} of the translator: {shown(abridged(pattern))} is not a text")
    try:
        return re.compile(pattern + "$")
    except re.error as error:
        raise UsageError(f"{which} of the translator: `{shown(pattern)}`: {error}") from None


def _keys(keys: Sequence[str]) -> str:
    return few_keys(map(shown, keys), most=len(keys))
