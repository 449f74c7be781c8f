r"""Translators of T5X's importer: rules in Python that give each leaf of a flat dict a new key and value.

The semantics are those of `CheckpointTranslator` in t5x/checkpoint_importer.py of google-research/t5x:
`re.match` with `$` behind the pattern, and the first rule that matches wins. What T5X does silently is
refused: that two leaves get one name. Keys without a rule, which it refuses after all functions have run, are
refused before the first.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ckpt_surgery.core.errors import PlanError, Problem, UsageError
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.live.lazy_arrays import LazyArray, introduce_to_t5x
from ckpt_surgery.migration.replacing import replaced

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
    """Rules of a translator: T5X's own, ours, or another object with pairs of a pattern and a function.

    Raises UsageError for others.
    """
    rules = getattr(translator, "rules", None)
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        raise UsageError(
            f"{shown(abridged(translator))} is not a translator: it has no `rules`",
            hint="Give a `CheckpointTranslator` of `ckpt_surgery.t5x` or of T5X.",
        )
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


def translate(rules: Iterable[Rule], flat: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Give each leaf the key and the value that the first matching rule returns.

    Raises PlanError and UsageError as `CheckpointTranslator.apply`.
    """
    introduce_to_t5x(LazyArray)
    known = list(rules)
    matched = {key: _first_match(known, key) for key in flat}
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


def _first_match(rules: Sequence[Rule], key: str) -> tuple[re.Match[str], Translation] | None:
    attempts = ((pattern.match(key), function) for pattern, function in rules)
    return next(((match, function) for match, function in attempts if match is not None), None)


def _keys(keys: Sequence[str]) -> str:
    return few_keys(map(shown, keys), most=len(keys))
