"""What `fill` rules give for the keys of the target: the first rule that matches a key wins."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.scope import Unavailable
from ckpt_surgery.planner.entries import Entry, Tree
from ckpt_surgery.planner.evaluator import Evaluator, Names, x_of
from ckpt_surgery.planner.problems import OPTIONAL
from ckpt_surgery.planner.target import Target

MISSING = "missing"
"""Value of `fallback` by which the target's own value is the last resort."""


@dataclass(frozen=True)
class Filling:
    """A leaf of the target that a `fill` rule has claimed."""

    entry: Entry | None
    """The entry that the rule gives; None if there is a problem, which is noted."""


def filled(rules: Sequence[Rule], evaluator: Evaluator, target: Target) -> dict[str, Entry]:
    """The entries that `fill` rules give, by target key, but for those with `fallback: missing`.

    Problems are added to the evaluator's.
    """
    given: dict[str, Entry] = {}
    fill_rules = [
        FillRule(i, rule, evaluator, target)
        for i, rule in enumerate(rules)
        if rule.fill is not None and rule.fallback != MISSING
    ]
    used: set[int] = set()
    for text, leaf in target.leaves.items():
        for rule in fill_rules:
            filling = rule.claim(leaf)
            if filling is not None:
                used.add(rule.index)
                if filling.entry is not None:
                    given[text] = filling.entry
                break
    for rule in fill_rules:
        if rule.index not in used:
            rule.note_unused(given)
    return given


def last_resorts(
    rules: Sequence[Rule],
    evaluator: Evaluator,
    target: Target,
    given: Collection[str],
    unclaimed: Mapping[str, Tree],
) -> dict[str, Entry]:
    """The entries that rules with `fallback: missing` give: where nothing else gives a leaf of the target.

    `given`: keys that other rules give. `unclaimed`: leaves of each source that no rule claims. Problems are
    added to the evaluator's.
    """
    entries: dict[str, Entry] = {}
    for index, rule in enumerate(rules):
        if rule.fill is None or rule.fallback != MISSING:
            continue
        fill_rule = FillRule(index, rule, evaluator, target, unclaimed)
        matching = [leaf for text, leaf in target.leaves.items() if fill_rule.matches(text)]
        if not matching:
            fill_rule.note_unused(given)
        for leaf in matching:
            if leaf.key.text not in given and leaf.key.text not in entries:
                filling = fill_rule.claim(leaf)
                if filling is not None and filling.entry is not None:
                    entries[leaf.key.text] = filling.entry
    return entries


class FillRule:
    """One `fill` rule, and the entries that it gives for leaves of the target."""

    def __init__(
        self,
        index: int,
        rule: Rule,
        evaluator: Evaluator,
        target: Target,
        unclaimed: Mapping[str, Tree] | None = None,
    ):
        """`index`: the number of the rule in its pass. `rule` has a `fill`.

        `unclaimed`, of the last resorts alone: see there.
        """
        assert rule.fill is not None
        self.index = index
        self._rule = rule
        self._pattern = rule.fill
        self._evaluator = evaluator
        self._target = target
        named = evaluator.trees if unclaimed is None or rule.from_ is not None else unclaimed
        self._trees = [named[name] for name in evaluator.sources_of(rule)]
        self._own = {} if unclaimed is None else unclaimed[evaluator.first]

    def matches(self, text: str) -> bool:
        """Whether the pattern matches a key of the target."""
        return self._evaluator.match(self.index, ("fill",), self._pattern, text) is not None

    def claim(self, leaf: Leaf) -> Filling | None:
        """The rule's claim of a target leaf; None if it does not match, or if its `when` is false."""
        rule, evaluator, text = self._rule, self._evaluator, leaf.key.text
        match = evaluator.match(self.index, ("fill",), self._pattern, text)
        if match is None:
            return None
        names = evaluator.names_at(match, text)
        wanted = text
        if rule.from_ is not None:
            spelled = evaluator.spell(self.index, ("from",), rule.from_, match, names, text)
            if spelled is None:
                return Filling(None)
            wanted = spelled.text
        offered = self._offered(wanted) or self._own.get(text)
        missing = Unavailable(f"no source leaf is called `{wanted}`", code=Code.NO_ENTRY)
        names["x"] = missing if offered is None else x_of(offered)
        if rule.when is not None:
            holds = evaluator.condition(self.index, rule.when, names, text)
            if not holds:
                return Filling(None) if holds is None else None
        return Filling(self._entry(leaf, offered, wanted, names))

    def _offered(self, text: str) -> Entry | None:
        """The entry with this key in the first of the rule's sources that has one."""
        found = (tree.get(text) for tree in self._trees)
        return next((entry for entry in found if entry is not None), None)

    def _entry(self, leaf: Leaf, offered: Entry | None, wanted: str, names: Names) -> Entry | None:
        """The entry for a target leaf; `offered` is the source leaf called `wanted`, if there is one."""
        rule, evaluator, text = self._rule, self._evaluator, leaf.key.text
        problems = evaluator.problems
        always = rule.fallback is True and self._target.policy.prefer == "source"
        if always or (rule.fallback == MISSING and offered is None):
            if not self._target.has_value(leaf) and text not in self._target.placeholders:
                message = "the target has no value for it" if self._target.has_values else self._target.lack
                error = PlanError(message, code=Code.NO_TARGET)
                problems.at(self.index, ("fallback",), error, text)
                return None
            return self._with_rule(self._target.own_value(leaf), [])
        if rule.value is not None:
            model = None if offered is None else offered.leaf
            claimed = [] if offered is None else [offered]
            return evaluator.made(
                self.index, ("value",), rule.value, names, leaf.key, model, text, leaf, claimed
            )
        if offered is None:
            guess = did_you_mean(wanted, evaluator.trees[evaluator.first])
            field = "fill" if rule.from_ is None else "from"
            error = PlanError(f"no source leaf is called `{wanted}`{guess}", code=Code.NO_ENTRY)
            problems.at(self.index, (field,), error, text)
            return None
        return self._with_rule(replace(offered, key=leaf.key), [offered])

    def _with_rule(self, entry: Entry, claimed: Sequence[Entry]) -> Entry:
        """The entry as this rule made it of `claimed` entries."""
        ref = self._evaluator.problems.ref(self.index)
        effects = self._evaluator.effects.after(ref, entry.key, entry.value, claimed)
        return replace(entry, effects=effects)

    def note_unused(self, given: Collection[str]) -> None:
        """Note that the rule claims nothing, unless it is optional. `given`: keys that fill rules give."""
        if not self._rule.optional:
            why = f"the rule claims nothing: {self._why_unused(given)}"
            error = PlanError(why, hint=OPTIONAL, code=Code.CLAIMS_NOTHING)
            self._evaluator.problems.at(self.index, ("fill",), error)

    def _why_unused(self, given: Collection[str]) -> str:
        keys, match = self._target.leaves, self._evaluator.match
        fits = [text for text in keys if match(self.index, ("fill",), self._pattern, text)]
        refused = [text for text in fits if text not in given]
        if not fits:
            return f"no key of the target matches{did_you_mean(self._pattern.pattern, keys)}"
        if refused and self._rule.when is not None:
            return f"`when` is false for {few_keys(refused)}"
        which = "the one key" if len(fits) == 1 else f"all {len(fits)} keys"
        return f"earlier rules claimed {which} that it matches"
