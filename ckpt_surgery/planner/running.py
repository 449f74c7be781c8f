"""One pass while it runs, and its rules: what they evaluate, and what they have decided so far."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, TypeVar

import regex

from ckpt_surgery.core.errors import Code, PlanError, SurgeryError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key, list_paths
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Apply
from ckpt_surgery.language.expressions.naming import TARGET
from ckpt_surgery.language.expressions.operators import truth
from ckpt_surgery.language.expressions.parsing import Expression, LetNames
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import Groups, LetError, Scope, Unavailable
from ckpt_surgery.language.patterns.templates import Template
from ckpt_surgery.language.schema.field_types import Unmatched
from ckpt_surgery.language.schema.fields import Pass
from ckpt_surgery.planner.entries import (
    Drop,
    EffectLog,
    Entry,
    RuleRef,
    SourceLeaves,
    Tree,
    computed,
    key_of,
    names_of_sources,
    x_of,
)
from ckpt_surgery.planner.limits import MOST_COUNTED, PlanLimits
from ckpt_surgery.planner.problems import Field, Problems

T = TypeVar("T")

Names = Mapping[str, Any]
"""Names that an expression sees."""

Ranges = Mapping[str, Sequence[Any]]
"""The values of the `for` variables of a rule."""


class Failed:
    """The result of an evaluation that failed; its problem has been noted."""


FAILED: Final = Failed()
FAILED_RANGES: Final[Ranges] = {"": ()}
"""Values of the `for` variables, one of which could not be found; its problem has been noted."""


@frozen()
class Mirror:
    """A subtree that is matched as though it lay elsewhere: an optimizer's slots, like the parameters."""

    params: str
    """The path that rules see, such as `params`."""
    slot: str
    """The path under which the leaves lie, such as `opt_state/0/mu`."""

    def seen(self, text: str) -> str | None:
        """The key that rules see for a key under the slot; None for any other key."""
        return self.params + text[len(self.slot) :] if text.startswith(f"{self.slot}/") else None


@frozen(eq=False)
class Claim:
    """A leaf that a rule has claimed."""

    entry: Entry
    match: regex.Match[str]
    mirror: Mirror | None = None
    """The mirror through which the rule saw the leaf; None if the rule matched the leaf's own key."""


@frozen(eq=False)
class RuleOutput:
    """A leaf that a rule is about to make: its key, and what the expression of its value sees."""

    key: Key
    value: Expression | None
    names: Names


@frozen(eq=False)
class Contribution(RuleOutput):
    """One leaf's part in an output, and what the expression sees at this leaf."""

    claim: Claim


def count_of(pattern: str, tree: Tree, matching: MatchBudget) -> int:
    """`count('regex')`: how many keys of a tree the pattern matches."""
    compiled = compile_pattern(pattern)
    return sum(matching.fullmatch(compiled, text) is not None for text in tree)


def combinations_of(ranges: Ranges) -> Iterator[dict[str, Any]]:
    """The values of the `for` variables, in every combination; none if there are no values."""
    return (dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values()))


class PassRun:
    """One pass while it runs; what it and its rules decide ends up here."""

    def __init__(
        self,
        pass_: Pass,
        trees: Mapping[str, Tree],
        target: "SourceLeaves | Unavailable",
        problems: Problems,
        limits: PlanLimits,
        decided_ids: Set[int] = frozenset(),
        keeps_outputs: bool = False,
    ):
        """Prepare the names that expressions see.

        `trees`: the entries of each source, by source name; the pass transforms the first tree. `target`:
        what the name `target` stands for. `limits`: what the passes before have made. `decided_ids`: those
        that the passes before have left. `keeps_outputs`: whether to record what outputs are made of.
        """
        self.pass_ = pass_
        self.trees = trees
        """The entries of each source before the pass."""
        self.problems = problems
        self.limits = limits
        self.first = next(iter(trees))
        """The name of the source whose tree the pass transforms."""
        self.mirrors = [Mirror(params, slot) for params, slots in pass_.mirror.items() for slot in slots]
        self.policy: Unmatched = pass_.unmatched or problems.loaded.recipe.unmatched
        """Fate of leaves that no rule claims."""
        self.lists = list_paths(entry.key for entry in trees[self.first].values())
        """The paths of all lists in the first tree."""
        self.lists_meant = self.lists if problems.loaded.function is None else frozenset()
        """Those in which numbers in templates are indices; a function says itself where it returns lists."""
        self.effects = EffectLog(trees)
        sources = names_of_sources(trees)
        self._leaves = {name: sources[name] for name in trees}
        self.names: Names = {**problems.loaded.names, **sources, TARGET: target}
        """Names that expressions see everywhere."""
        self._counts: dict[str, int] = {}
        self.given = {id(e.value) for tree in trees.values() for e in tree.values() if type(e.value) is Apply}
        """The identities of the functions that the passes before have made."""
        self.rules: Sequence[RuleRun] = ()
        self.tree: Tree = {}
        """The first source's tree after the pass."""
        self.drops: list[Drop] = []
        """The entries that are left out, by rules or by policies."""
        self.unused: list[Drop] = []
        """Leaves that are dropped unless an output uses them."""
        self.claimed: set[int] = set()
        """The identities of all entries that rules have claimed."""
        self.decided_ids = decided_ids
        """The identities of the entries that this pass or one before it has claimed or looked up."""
        self.output_count = 0
        """Number of outputs that rules have made so far, or are about to make."""
        self.failed: set[str] = set()
        """Texts of the keys whose values could not be made."""
        self._keeps_outputs = keeps_outputs
        self.outputs: dict[tuple[RuleRef, str], Sequence[RuleOutput]] = {}
        """Inputs of the pass's entries, by rule and key, if that is kept."""

    def keep(self, rule: RuleRef, entry: Entry, outputs: Sequence[RuleOutput]) -> None:
        """Record what a rule made an entry of, if the pass keeps that."""
        if self._keeps_outputs:
            self.outputs[rule, entry.key.text] = outputs

    def looked_up(self) -> set[int]:
        """The identities of all entries that expressions have looked up so far."""
        seen = ((tree, self._leaves[name].seen) for name, tree in self.trees.items())
        return {id(tree[text]) for tree, texts in seen for text in texts & tree.keys()}

    def count(self, pattern: str) -> int:
        """The number of keys that a pattern matches. Kept, because a condition may ask at every leaf."""
        if pattern not in self._counts:
            if len(self._counts) == MOST_COUNTED:
                why = f"`count` is asked for more than {MOST_COUNTED} different patterns"
                raise SurgeryError(why, code=Code.TOO_MUCH)
            self._counts[pattern] = count_of(pattern, self.trees[self.first], self.limits.matching)
        return self._counts[pattern]


class RuleRun:
    """One rule of a pass that runs. A method that returns FAILED has noted a problem of the rule."""

    def __init__(self, pass_run: PassRun, index: int):
        """`index`: the number of the rule in its pass."""
        self.pass_run = pass_run
        self.index = index
        self.rule = pass_run.pass_.rules[index]
        self.ref = pass_run.problems.ref(index)
        wanted = pass_run.trees if self.rule.source == "*" else self.rule.source or pass_run.first
        names = [wanted] if isinstance(wanted, str) else wanted
        self.sources = [name for name in names if name in pass_run.trees]
        """The sources whose leaves the rule reads, in the order in which it names them."""
        self._let = self.rule.let or {}
        self._let_sees_target = any(TARGET in entry.names for entry in self._let.values())
        self.claims: list[Claim] = []
        """The leaves that a `match` rule has claimed, in the order of the sources' leaves."""

    def wrong(self, field: Field, error: SurgeryError, key: str | None = None, at_key: bool = False) -> None:
        """Note a problem in a field, found at one key; `at_key`: point at the field's name.

        One of an entry of `let` is noted there, whatever field uses it.
        """
        if isinstance(error, LetError):
            field, at_key = ("let", error.entry), False
        self.pass_run.problems.at(self.index, field, error, key, at_key)

    def noted(
        self, field: Field, key: str | None, action: Callable[..., T], *given: Any, at_key: bool = False
    ) -> "T | Failed":
        """Result of an action; if it raises SurgeryError, that is a problem of the rule."""
        try:
            return action(*given)
        except SurgeryError as error:
            self.wrong(field, error, key, at_key)
            return FAILED

    def bounded(self, field: Field, key: str | None, action: Callable[..., T], *given: Any) -> T:
        """Result of an action that ends planning at once if it raises: for what grows without bound."""
        try:
            return action(*given)
        except SurgeryError as error:
            self.wrong(field, error, key)
            self.pass_run.problems.raise_all()
            raise

    def match(self, text: str) -> regex.Match[str] | None:
        """The match of a whole key. A pattern that takes too long would do so on every other key."""
        pattern = self.rule.match or self.rule.fill
        field = ("fill",) if self.rule.match is None else ("match",)
        return self.bounded(field, None, self.pass_run.limits.matching.fullmatch, pattern, text)

    def names_at(self, match: regex.Match[str], key: str) -> dict[str, Any]:
        """Names at a matched key: groups (`''` where one took no part), `g` for all groups, and `key`."""
        groups = {name: text or "" for name, text in match.groupdict().items()}
        return {**self.pass_run.names, **groups, "g": Groups(match), "key": key}

    def names_of(self, claim: Claim) -> Names:
        """Names that expressions see at a leaf that the rule claims."""
        return {**self.names_at(claim.match, claim.entry.key.text), "x": x_of(claim.entry)}

    def value(self, field: Field, expression: Expression, names: Names, key: str) -> Any:
        """The value of an expression at a key."""
        return self.noted(field, key, self._evaluated, expression, names)

    def _evaluated(self, expression: Expression, names: Names, leaf_key: str = "") -> Any:
        """`leaf_key`: the key of the output that the value is for."""
        value = expression.evaluate(Scope(names, leaf_key, self.pass_run.count))
        target = self.pass_run.names[TARGET]
        sees_target = TARGET in expression.names or self._let_sees_target
        if sees_target and isinstance(target, SourceLeaves):
            target.require_values(value)
        return value

    def holds(self, names: Names, key: str) -> "bool | Failed":
        """Whether the rule's `when` is true; a rule without one always applies."""
        when = self.rule.when
        return when is None or self.noted(("when",), key, lambda: truth(self._evaluated(when, names)))

    def ranges(self, names: Names, key: str) -> Ranges:
        """The values of each `for` variable at a key; FAILED_RANGES where a problem has been noted."""
        ranges: dict[str, Sequence[Any]] = {}
        count = 1
        for name, expression in (self.rule.for_ or {}).items():
            values = self.value(("for", name), expression, names, key)
            if isinstance(values, str) or not isinstance(values, Sequence | Failed):
                unfit = PlanError("`for` needs a list or a `range(n)`", code=Code.ORDER)
                self.wrong(("for", name), unfit, key)
                values = FAILED
            if isinstance(values, Failed):
                return FAILED_RANGES
            count *= len(values) or 1
            self.bounded(("for", name), None, self.pass_run.limits.check_growth, count)
            ranges[name] = values
        return ranges

    def count_outputs(self, field: Field, count: int) -> None:
        """Count outputs before they are made. Ends planning if the pass makes more than a plan can have."""
        self.pass_run.output_count += count
        self.bounded(field, None, self.pass_run.limits.check_growth, self.pass_run.output_count)

    def spelled(
        self, template: Template, match: regex.Match[str] | None, names: Names, origin: Key | None = None
    ) -> Key:
        """The key that a template gives for the matched key `origin`. Raises SurgeryError."""
        components = template.expand(match, Scope(names, "", self.pass_run.count))
        return key_of(components, origin, self.pass_run.lists_meant)

    def compute_output(
        self, field: Field, output: RuleOutput, text: str, claimed: Sequence[Entry], old: Leaf | None = None
    ) -> "Entry | Failed":
        """Evaluate the `value` of an output and make its leaf.

        `text`: the key that a problem names. `claimed`: the entries that it is made of; it inherits metadata
        of the first. `old`: the leaf whose shape and dtype a mere number takes.
        """
        run, expression, key, names = self.pass_run, output.value, output.key, output.names
        model = claimed[0].leaf if claimed else None
        assert expression is not None
        if self._let:
            names = LetNames(Scope(names, key.text, run.count), self._let)

        def compute() -> Entry:
            return computed(self._evaluated(expression, names, key.text), model, key, old)

        entry = self.noted(field, text, compute)
        if isinstance(entry, Failed):
            run.failed.add(key.text)
            return FAILED
        self.bounded(field, text, run.limits.add_functions, entry.value, run.given)
        return self.attribute(entry, claimed, output)

    def attribute(self, entry: Entry, claimed: Sequence[Entry], output: RuleOutput) -> Entry:
        """The entry with the effects of this rule, which makes it of entries that it claimed."""
        self.pass_run.keep(self.ref, entry, [output])
        effects = self.pass_run.effects.after(self.ref, entry.key, entry.value, claimed)
        return Entry(entry.key, entry.leaf, entry.value, effects)
