"""Evaluates the patterns, expressions and templates of one pass; what fails is a problem of its rule."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.graph.nodes import Array
from ckpt_surgery.language.expressions import Expression
from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.operators import truth
from ckpt_surgery.language.patterns import Watch, compile_pattern
from ckpt_surgery.language.prefilters import literals
from ckpt_surgery.language.scope import SOURCES, Groups, Leaves, Scope, Unavailable
from ckpt_surgery.language.templates import Component, Template
from ckpt_surgery.planner.entries import Entry, Tree, array_of, computed, container_paths, key_of
from ckpt_surgery.planner.problems import Field, Problems

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
        entry = self.tree.get(text)
        self.seen.add(text)
        return None if entry is None else array_of(entry)

    def kind(self, text: str) -> str | None:
        entry = self.tree.get(text)
        return None if entry is None else str(entry.leaf.kind)

    def keys(self) -> Collection[str]:
        return self.tree.keys()


def names_of_sources(trees: Mapping[str, Tree]) -> dict[str, Any]:
    """The sources as expressions see them: each by its name, and the list `sources` of all names."""
    return {**{name: SourceLeaves(name, tree) for name, tree in trees.items()}, SOURCES: tuple(trees)}


def count_of(pattern: str, tree: Tree) -> int:
    """`count('regex')`: how many keys of a tree the pattern matches."""
    compiled, watch = compile_pattern(pattern), Watch()
    known = literals(compiled)
    return sum(known.fit(text) and watch.fullmatch(compiled, text) is not None for text in tree)


def x_of(entry: Entry) -> Array | Unavailable:
    """What `x` stands for: the entry's array; if it is no array, the error that using `x` raises."""
    try:
        return array_of(entry)
    except SurgeryError as error:
        return Unavailable(error.problems[0].message, error.problems[0].hint)


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
    ):
        """Prepare the names that expressions see.

        `constants`: params, tables, configs and hooks by name. `trees`: the entries of each source, by source
        name; the pass transforms the first tree. `target`: what the name `target` stands for.
        """
        self.trees = trees
        self.first = next(iter(trees))
        """The name of the source whose tree the pass transforms."""
        self.lists = container_paths([trees[self.first]])
        """The paths of all lists in that tree."""
        self.problems = problems
        sources = names_of_sources(trees)
        self._leaves = {name: sources[name] for name in trees}
        self.names: Names = {**constants, **sources, "target": target}
        self._watches: dict[int, Watch] = defaultdict(Watch)
        self._counts: dict[str, int] = {}

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
            self.problems.at(rule, field, error)
            self.problems.raise_all()  # it would take as long on every other key
            raise

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

    def combinations(self, index: int, rule: Rule, names: Names, key: str) -> list[dict[str, Any]] | None:
        """The values of the `for` variables, in every combination."""
        ranges = []
        for name, expression in (rule.for_ or {}).items():
            values = self.evaluate(index, ("for", name), expression, names, key)
            if values is FAILED:
                return None
            if not isinstance(values, Sequence) or isinstance(values, str):
                self.problems.at(index, ("for", name), "`for` needs a list or a `range(n)`", key)
                return None
            ranges.append([(name, value) for value in values])
        return [dict(combination) for combination in itertools.product(*ranges)]

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
            return key_of(self.expanded(template, match, names), None, self.lists)
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
    ) -> Entry | None:
        """The entry `key` whose value an expression gives.

        `model`: the leaf whose metadata the entry inherits. `text`: the key that a problem names.
        """
        value = self.evaluate(rule, field, expression, names, text, key.text)
        if value is FAILED:
            return None
        try:
            return computed(value, model, key, self.problems.ref(rule))
        except SurgeryError as error:
            self.problems.at(rule, field, error, text)
            return None

    def _count(self, pattern: str) -> int:
        """The number of keys that a pattern matches. Kept, because a condition may ask at every leaf."""
        if pattern not in self._counts:
            self._counts[pattern] = count_of(pattern, self.trees[self.first])
        return self._counts[pattern]
