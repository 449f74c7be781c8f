"""Evaluates the patterns, expressions and templates of one pass; what fails is a problem of its rule."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

import regex

from ckpt_surgery.core.errors import PlanError, SurgeryError
from ckpt_surgery.core.keys import Key, text_of
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.functions.arrays import Apply, Array
from ckpt_surgery.language.expressions import Expression
from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.operators import truth
from ckpt_surgery.language.patterns import MatchingTime, Watch, compile_pattern
from ckpt_surgery.language.prefilters import literals
from ckpt_surgery.language.scope import SOURCES, Groups, Leaves, Scope, Unavailable
from ckpt_surgery.language.templates import Component, Template
from ckpt_surgery.planner.effects import EffectLog
from ckpt_surgery.planner.entries import Entry, Tree, array_of, computed, container_paths, key_of
from ckpt_surgery.planner.limits import MOST_COUNTED, Limits, check_leaves
from ckpt_surgery.planner.problems import Field, Problems

Ranges = list[tuple[str, Sequence[Any]]]
"""The `for` variables of a rule, each with its values."""

Names = Mapping[str, Any]
"""What an expression sees by name."""


class Failed:
    """The result of an evaluation that failed; its problem has been noted."""


FAILED: Final = Failed()


class SourceLeaves(Leaves):
    """The entries of one tree as expressions see them: `source['a/b']`."""

    def __init__(self, name: str, tree: Tree):
        self.name = name
        self.tree = tree
        self.seen: set[str] = set()
        """The keys that were looked up. A leaf counts as used even if only its shape was asked for."""

    def lookup(self, text: str) -> Array | None:
        key = text if text in self.tree else text_of(text)
        self.seen.add(key)
        entry = self.tree.get(key)
        return None if entry is None else array_of(entry)

    def kind(self, text: str) -> str | None:
        entry = self.tree.get(text) or self.tree.get(text_of(text))
        return None if entry is None else str(entry.leaf.kind)

    def keys(self) -> Collection[str]:
        return self.tree.keys()


def names_of_sources(trees: Mapping[str, Tree]) -> dict[str, Any]:
    """The sources as expressions see them: each by its name, and the list `sources` of all names."""
    return {**{name: SourceLeaves(name, tree) for name, tree in trees.items()}, SOURCES: tuple(trees)}


def count_of(pattern: str, tree: Tree, matching: MatchingTime) -> int:
    """`count('regex')`: how many keys of a tree the pattern matches."""
    compiled, watch = compile_pattern(pattern), Watch(matching)
    known = literals(compiled)
    return sum(known.fit(text) and watch.fullmatch(compiled, text) is not None for text in tree)


def x_of(entry: Entry) -> Array | Unavailable:
    """What `x` stands for: the entry's array; if it is no array, the error that using `x` raises."""
    try:
        return array_of(entry)
    except SurgeryError as error:
        return Unavailable(error.problems[0].message, error.problems[0].hint, code=Code.NOT_AN_ARRAY)


def combinations_of(ranges: Ranges) -> Iterator[dict[str, Any]]:
    """The values of the `for` variables, in every combination."""
    named = [[(name, value) for value in values] for name, values in ranges]
    return map(dict, itertools.product(*named))


class Evaluator:
    """Evaluates what the rules of one pass say about the trees of the sources.

    Rules are given by their number in the pass. A method that returns None or FAILED has noted a problem.
    """

    def __init__(
        self,
        constants: Names,
        trees: Mapping[str, Tree],
        target: "SourceLeaves | Unavailable",
        problems: Problems,
        limits: Limits,
    ):
        """Prepare the names that expressions see.

        `constants`: params, tables, configs and hooks by name. `trees`: the entries of each source, by source
        name; the pass transforms the first tree. `target`: what the name `target` stands for. `limits`: what
        the passes before have made.
        """
        self.trees = trees
        self.limits = limits
        self.first = next(iter(trees))
        """The name of the source whose tree the pass transforms."""
        self.lists = container_paths([trees[self.first]])
        """The paths of all lists in that tree."""
        self.lists_meant = self.lists if problems.loaded.function is None else frozenset()
        """Those in which numbers in templates are indices; a function says itself where it returns lists."""
        self.problems = problems
        self.effects = EffectLog(trees)
        sources = names_of_sources(trees)
        self._leaves = {name: sources[name] for name in trees}
        self.names: Names = {**constants, **sources, "target": target}
        self._watches: dict[int, Watch] = defaultdict(lambda: Watch(limits.matching))
        self.failed: set[str] = set()
        """Texts of the keys whose values could not be made."""
        self._counts: dict[str, int] = {}
        self._ranges: dict[tuple[int, int], Ranges | None] = {}
        self._given = {
            id(e.value) for tree in trees.values() for e in tree.values() if type(e.value) is Apply
        }
        """The identities of the functions that the passes before have made."""

    def sources_of(self, rule: Rule) -> list[str]:
        """The sources whose leaves a rule reads, in the order in which it names them."""
        wanted = rule.source or self.first
        if wanted == "*":
            return list(self.trees)
        return [name for name in ([wanted] if isinstance(wanted, str) else wanted) if name in self.trees]

    def looked_up(self) -> set[int]:
        """The identities of all entries that expressions have looked up so far."""
        return {
            id(tree[text])
            for name, tree in self.trees.items()
            for text in self._leaves[name].seen & tree.keys()
        }

    def match(
        self, rule: int, field: Field, pattern: regex.Pattern[str], text: str
    ) -> regex.Match[str] | None:
        """The match of a whole key. Raises PlanError at once for a pattern that takes too long."""
        try:
            return self._watches[rule].fullmatch(pattern, text)
        except SurgeryError as error:
            self.stop(rule, field, error)  # it would take as long on every other key

    def stop(self, rule: int, field: Field, error: SurgeryError, key: str | None = None) -> NoReturn:
        """End planning at once, with this problem and all that were noted: for what grows without bound."""
        self.problems.at(rule, field, error, key)
        self.problems.raise_all()
        raise error

    def names_at(self, match: regex.Match[str], key: str) -> dict[str, Any]:
        """What expressions see at a key that a rule matches: the named groups, `g` for all groups, and `key`.

        A group that did not take part in the match is `''`.
        """
        groups = {name: text or "" for name, text in match.groupdict().items()}
        return {**self.names, **groups, "g": Groups(match), "key": key}

    def evaluate(
        self, rule: int, field: Field, expression: Expression, names: Names, key: str, leaf_key: str = ""
    ) -> Any:
        """The value of an expression at a key; `leaf_key` is the key of the output that it is for."""
        try:
            return expression.evaluate(Scope(names, leaf_key, self._count))
        except SurgeryError as error:
            self.problems.at(rule, field, error, key)
            return FAILED

    def condition(self, rule: int, when: Expression, names: Names, key: str) -> bool | None:
        """Whether a rule's `when` holds."""
        value = self.evaluate(rule, ("when",), when, names, key)
        try:
            return None if value is FAILED else truth(value)
        except SurgeryError as error:
            self.problems.at(rule, ("when",), error, key)
            return None

    def ranges(self, index: int, rule: Rule, names: Names, key: str, owner: object) -> Ranges | None:
        """The values of each `for` variable, for one claim or one rule, the `owner`. They are kept."""
        known = (index, id(owner))
        if known not in self._ranges:
            self._ranges[known] = self._evaluated_ranges(index, rule, names, key)
        return self._ranges[known]

    def _evaluated_ranges(self, index: int, rule: Rule, names: Names, key: str) -> Ranges | None:
        ranges: Ranges = []
        count = 1
        for name, expression in (rule.for_ or {}).items():
            values = self.evaluate(index, ("for", name), expression, names, key)
            if values is FAILED:
                return None
            if not isinstance(values, Sequence) or isinstance(values, str):
                error = PlanError("`for` needs a list or a `range(n)`", code=Code.ORDER)
                self.problems.at(index, ("for", name), error, key)
                return None
            count *= len(values) or 1
            self.check_made(index, ("for", name), count)
            ranges.append((name, values))
        return [(name, ()) for name, _ in ranges] if any(not values for _, values in ranges) else ranges

    def check_made(self, rule: int, field: Field, count: int) -> None:
        """End planning if this many outputs are more than a plan can have."""
        try:
            check_leaves(count, "the rules of this pass up to here make")
            self.limits.check_growth(count)
        except SurgeryError as error:
            self.stop(rule, field, error)

    def check_key(self, rule: int, field: Field, key: Key) -> None:
        """End planning if a key that a rule makes is one too many."""
        try:
            self.limits.add_key(key.text)
        except SurgeryError as error:
            self.stop(rule, field, error)

    def expanded(
        self, template: Template, match: regex.Match[str] | None, names: Names
    ) -> tuple[Component, ...]:
        """The components of the key that a template gives. Raises SurgeryError, and notes nothing."""
        return template.expand(match, Scope(names, "", self._count))

    def spell(
        self,
        rule: int,
        field: Field,
        template: Template,
        match: regex.Match[str] | None,
        names: Names,
        key: str,
    ) -> Key | None:
        """The key that a template gives."""
        try:
            return key_of(self.expanded(template, match, names), None, self.lists_meant)
        except SurgeryError as error:
            self.problems.at(rule, field, error, key)
            return None

    def made(
        self,
        rule: int,
        field: Field,
        expression: Expression,
        names: Names,
        key: Key,
        model: Leaf | None,
        text: str,
        replaced: Leaf | None = None,
        claimed: Sequence[Entry] = (),
    ) -> Entry | None:
        """The entry `key` whose value an expression gives.

        `model`: the leaf whose metadata the entry inherits. `text`: the key that a problem names. `replaced`:
        the leaf whose shape and dtype a mere number takes. `claimed`: the entries that it is made of.
        """
        value = self.evaluate(rule, field, expression, names, text, key.text)
        if value is FAILED:
            self.failed.add(key.text)
            return None
        try:
            made = computed(value, model, key, replaced)
        except SurgeryError as error:
            self.failed.add(key.text)
            self.problems.at(rule, field, error, text)
            return None
        try:
            self.limits.add_functions(made.value, self._given)
        except SurgeryError as error:
            self.stop(rule, field, error, text)
        effects = self.effects.after(self.problems.ref(rule), key, made.value, claimed)
        return replace(made, effects=effects)

    def _count(self, pattern: str) -> int:
        """The number of keys that a pattern matches. Kept, because a condition may ask at every leaf."""
        if pattern not in self._counts:
            if len(self._counts) == MOST_COUNTED:
                raise SurgeryError(
                    f"`count` is asked for more than {MOST_COUNTED} different patterns", code=Code.TOO_MUCH
                )
            self._counts[pattern] = count_of(pattern, self.trees[self.first], self.limits.matching)
        return self._counts[pattern]
