"""What `fill` rules give for the keys of the target: the first rule that matches a key wins."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions.scope import Unavailable
from ckpt_surgery.planner.claiming import claims_nothing
from ckpt_surgery.planner.entries import Entry, Tree, x_of
from ckpt_surgery.planner.running import FAILED, Failed, PassRun, RuleOutput, RuleRun
from ckpt_surgery.planner.target import Target

MISSING = "missing"
"""Value of `fallback` by which the target's own value is the last resort."""


def filled(run: PassRun, target: Target) -> dict[str, Entry]:
    """The entries that `fill` rules give, by target key, but for those with `fallback: missing`."""
    given: dict[str, Entry] = {}
    rules = [rule for rule in run.rules if isinstance(rule, Fill) and rule.rule.fallback != MISSING]
    used: set[int] = set()
    for text, leaf in target.leaves.items():
        for rule in rules:
            entry = rule.claim(leaf)
            if entry is not None:
                used.add(rule.index)
                if isinstance(entry, Entry):
                    given[text] = entry
                break
    for rule in rules:
        if rule.index not in used:
            rule.note_unused(given)
    return given


def last_resorts(
    run: PassRun, target: Target, given: Collection[str], unclaimed: Mapping[str, Tree]
) -> dict[str, Entry]:
    """The entries that rules with `fallback: missing` give: where nothing else gives a leaf of the target.

    `given`: keys that other rules give. `unclaimed`: leaves of each source that no rule claims.
    """
    entries: dict[str, Entry] = {}
    for rule in run.rules:
        if not isinstance(rule, Fill) or rule.rule.fallback != MISSING:
            continue
        matching = [leaf for text, leaf in target.leaves.items() if rule.match(text) is not None]
        if not matching:
            rule.note_unused(given)
        for leaf in matching:
            if leaf.key.text not in given and leaf.key.text not in entries:
                entry = rule.claim(leaf, unclaimed)
                if isinstance(entry, Entry):
                    entries[leaf.key.text] = entry
    return entries


class Fill(RuleRun):
    """A `fill` rule, and the entries that it gives for leaves of the target."""

    def __init__(self, pass_run: PassRun, index: int, target: Target):
        super().__init__(pass_run, index)
        self._target = target

    def claim(self, leaf: Leaf, unclaimed: Mapping[str, Tree] | None = None) -> Entry | Failed | None:
        """What the rule gives for a target leaf; None if it does not match, or if its `when` is false.

        `unclaimed`, for last resorts alone: the leaves that they take, unless the rule says `from`.
        """
        rule, text = self.rule, leaf.key.text
        match = self.match(text)
        if match is None:
            return None
        names = self.names_at(match, text)
        wanted = text
        if rule.from_ is not None:
            spelled = self.noted(("from",), text, self.spelled, rule.from_, match, names)
            if isinstance(spelled, Failed):
                return FAILED
            wanted = spelled.text
        run, trees = self.pass_run, self.pass_run.trees
        own = None
        if unclaimed is not None:  # also the leaf that is called like the target's
            trees, own = trees if rule.from_ is not None else unclaimed, unclaimed[run.first].get(text)
        offered = next((trees[name][wanted] for name in self.sources if wanted in trees[name]), own)
        missing = Unavailable(f"no source leaf is called `{wanted}`", code=Code.NO_ENTRY)
        names["x"] = missing if offered is None else x_of(offered)
        holds = self.holds(names, text)
        if holds is not True:
            return holds or None
        return self._entry(leaf, offered, wanted, RuleOutput(leaf.key, rule.value, names))

    def _entry(self, leaf: Leaf, offered: Entry | None, wanted: str, output: RuleOutput) -> Entry | Failed:
        """The entry for a target leaf; `offered` is the source leaf called `wanted`, if there is one."""
        rule, target, text = self.rule, self._target, leaf.key.text
        claimed = [] if offered is None else [offered]
        always = rule.fallback is True and target.policy.prefer == "source"
        if always or (rule.fallback == MISSING and offered is None):
            if not target.has_value(leaf) and text not in target.placeholders:
                message = "the target has no value for it" if target.has_values else target.lack
                self.wrong(("fallback",), PlanError(message, code=Code.NO_TARGET), text)
                return FAILED
            return self.attribute(target.own_value(leaf), [], output)
        if rule.value is not None:
            return self.compute_output(("value",), output, text, claimed, leaf)
        if offered is None:
            guess = did_you_mean(wanted, self.pass_run.trees[self.pass_run.first])
            field = "fill" if rule.from_ is None else "from"
            error = PlanError(f"no source leaf is called `{wanted}`{guess}", code=Code.NO_ENTRY)
            self.wrong((field,), error, text)
            return FAILED
        return self.attribute(replace(offered, key=leaf.key), claimed, output)

    def note_unused(self, given: Collection[str]) -> None:
        """Note that the rule claims nothing, unless it is optional. `given`: keys that fill rules give."""
        if not self.rule.optional:
            keys = list(self._target.leaves)
            fits = [text for text in keys if self.match(text)]
            refused = [] if self.rule.when is None else [text for text in fits if text not in given]
            self.wrong(("fill",), claims_nothing(self, keys, len(fits), refused, " of the target"))
