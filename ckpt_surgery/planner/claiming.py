"""Assign leaves to rules: the first one that matches the leaf's key and whose `when` is true."""

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal, NamedTuple

import regex

from ckpt_surgery.core.errors import Code, PlanError, SurgeryError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import did_you_mean, number_of, shown
from ckpt_surgery.language.expressions.naming import TARGET
from ckpt_surgery.language.expressions.regexes import MatchBudget, alternation, compile_pattern, safe_length
from ckpt_surgery.language.expressions.scope import Unavailable
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.planner.entries import Entry, Tree, x_of
from ckpt_surgery.planner.problems import EXCHANGED, OPTIONAL
from ckpt_surgery.planner.running import FAILED, Claim, Failed, Mirror, PassRun, RuleOutput, RuleRun
from ckpt_surgery.planner.target import Target

CLAIMS_NOTHING = "the rule claims nothing"
OPEN_ENDS = (")", "*", "+", "?")
"""Ends of patterns that match whatever follows: that one matches the beginning of a key says nothing."""
_ESCAPED = re.compile(r"\\([.^$*+?{}\[\]|()])")
"""A sign that stands for itself in a pattern."""
MISSING = "missing"
"""Value of `fallback` by which the target's own value is the last resort."""
MOST_IN_BATCH = 32
"""Limit on the rules of a batch, which are tried one by one after a `when` that is false."""


RulePattern = tuple[RuleRun, regex.Pattern[str]]
"""A `match` rule and its pattern."""


@frozen(eq=False)
class Batch:
    """Rules that follow each other; an alternation tells the first of them that matches a short key."""

    rules: Sequence[RulePattern]
    alternation: regex.Pattern[str]
    longest: int
    """Length of the longest keys for which the alternation is safe."""
    slowest: RuleRun
    """The rule because of which it is not safe for longer ones."""


def _batches(rules: Iterable[RulePattern]) -> Iterator[Batch]:
    """The rules in order; those without a safe length are apart, and tried one by one."""
    for _, group in groupby(rules, lambda rule: safe_length(rule[1]) > 0):
        several = list(group)
        for start in range(0, len(several), MOST_IN_BATCH):
            batch = several[start : start + MOST_IN_BATCH]
            slowest, pattern = min(batch, key=lambda rule: safe_length(rule[1]))
            longest = safe_length(pattern) if len(batch) > 1 else 0
            finder = alternation([pattern for _, pattern in batch]) if longest else pattern
            yield Batch(batch, finder, longest, slowest)


def claim(run: PassRun) -> None:
    """Try every leaf of every source on the `match` rules that read from it."""
    rules = [(rule, rule.rule.match) for rule in run.rules if rule.rule.match is not None]
    for name, tree in run.trees.items():
        batches = list(_batches((rule, pattern) for rule, pattern in rules if name in rule.sources))
        for entry in tree.values():
            for rule, match, mirror in _matches(entry.key.text, batches, run.mirrors):
                claimed = Claim(entry, match, mirror)
                # A `when` that failed is a problem already; an unclaimed leaf would mislead.
                if rule.rule.when is None or rule.holds(rule.names_of(claimed), entry.key.text) is not False:
                    rule.claims.append(claimed)
                    run.claimed.add(id(entry))
                    break


RuleMatch = tuple[RuleRun, regex.Match[str], Mirror | None]
"""A rule, its match of a key, and the mirror in which it sees that key."""


def _matches(key: str, batches: Sequence[Batch], mirrors: Sequence[Mirror]) -> Iterable[RuleMatch]:
    """The rules that match a key, in order."""
    if not mirrors:
        return _matches_of_view(key, None, batches)
    seen = (_matches_of_view(text, mirror, batches) for text, mirror in views(key, mirrors))
    # A rule with `mirror_value` sees a mirrored leaf as such, even if it also matches the leaf's own key.
    return heapq.merge(*seen, key=lambda m: (m[0].index, m[2] is None and m[0].rule.mirror_value is not None))


def _matches_of_view(text: str, mirror: Mirror | None, batches: Sequence[Batch]) -> Iterator[RuleMatch]:
    """The rules that match a key as it is seen in a mirror, in order."""
    for batch in batches:
        rules, longest = batch.rules, batch.longest
        if longest and len(text) <= longest:
            matching = batch.slowest.pass_run.limits.matching
            first = batch.slowest.bounded(
                ("match",), None, matching.fullmatch, batch.alternation, text, longest
            )
            if first is None:
                continue
            number = int(first.lastgroup[1:])
            rule, pattern = rules[number]
            yield rule, pattern.fullmatch(text), mirror
            rules = rules[number + 1 :]
        for rule, _ in rules:
            match = rule.match(text)
            if match is not None:
                yield rule, match, mirror


def views(text: str, mirrors: Sequence[Mirror]) -> list[tuple[str, Mirror | None]]:
    """The key itself, then the keys that it stands for in mirrored trees."""
    mirrored = ((mirror.seen(text), mirror) for mirror in mirrors)
    return [(text, None), *((seen, mirror) for seen, mirror in mirrored if seen is not None)]


class NearMiss(NamedTuple):
    """A key of which a pattern matches only a part."""

    where: Literal["beginning", "end", "part"]
    """Whether that are its first or its last components, or anything else."""
    part: str
    key: str


def near_miss(pattern: regex.Pattern[str], keys: Iterable[str], matching: MatchBudget) -> NearMiss | None:
    """The first key of which a pattern, which matches none, matches the beginning or else another part.

    None, too, once `matching` is used up. Beginnings say nothing of patterns with an open end: `a/(.*)`.
    """
    cuts = {key: [i for i, sign in enumerate(key) if sign == SEPARATOR] for key in keys}
    heads: dict[str, str] = {}
    if not pattern.pattern.endswith(OPEN_ENDS):
        for key, ends in cuts.items():
            heads.update({key[:end]: key for end in reversed(ends) if key[:end] not in heads})
    try:
        for head, key in heads.items():
            if matching.fullmatch(pattern, head):
                return NearMiss("beginning", head, key)
        for key, ends in cuts.items():
            part = matching.limited(pattern.search, key)
            if part is not None and part[0]:
                tails = (key[end + 1 :] for end in ends)
                tail = next((tail for tail in tails if matching.fullmatch(pattern, tail)), None)
                return NearMiss("part", part[0], key) if tail is None else NearMiss("end", tail, key)
    except SurgeryError:
        return None  # a pattern this slow is no help
    return None


def why_unused(rule: RuleRun) -> SurgeryError:
    """Reason why a `match` rule claimed nothing, from a second look at the keys."""
    run = rule.pass_run
    entries = [entry for name in rule.sources for entry in run.trees[name].values()]
    fits = [e for e in entries if any(rule.match(view) for view, _ in views(e.key.text, run.mirrors))]
    target = run.names[TARGET]
    wanted = () if fits or isinstance(target, Unavailable) else filter(rule.match, target.keys())
    for text in wanted:
        why = f"it matches `{shown(text)}` of the target, and no key of the source"
        return SurgeryError(f"{CLAIMS_NOTHING}: {why}", hint=EXCHANGED, code=Code.CLAIMS_NOTHING)
    refused = [entry.key.text for entry in fits if id(entry) not in run.claimed]
    recipe, others = run.problems.loaded.path, None
    if recipe.startswith(PREFIX):
        known = few_keys(entry.key.printed for entry in entries)
        others = f"`{recipe}` looks for other names than {known}, which this checkpoint has. "
        others += f"`ckpt-surgery recipes {recipe}` says what it looks for, and which params it takes."
    return claims_nothing(rule, [entry.key.text for entry in entries], len(fits), refused, others)


def claims_nothing(
    rule: RuleRun, keys: Sequence[str], fits: int, refused: Sequence[str], others: str | None = None
) -> SurgeryError:
    """The error for a rule that claims none of these keys. `fits`: number of keys that it matches.

    `refused`: those for which its `when` is false. `others`: advice if the recipe is made for other keys.
    """
    if refused:
        why, hint = f"`when` is false for {few_keys(refused)}", others or OPTIONAL
    elif fits:
        why = f"earlier rules claimed all that it matches, {number_of(fits, 'key')}"
        hint = "The first rule that matches wins: put the narrower rule above the wider one."
    else:
        pattern, matching = rule.rule.match or rule.rule.fill, rule.pass_run.limits.second_looks
        assert pattern is not None
        guess = did_you_mean(pattern.pattern, keys)
        where, part, key = near_miss(pattern, keys, matching) or ("", "", "")
        meant = None if others or rule.rule.match is None else _meant(pattern, keys, matching)
        if where == "beginning":
            why = f"it matches only the beginning of keys such as `{shown(key)}`"
            hint = "For all that is below, add `/.*`: a pattern has to match the whole key."
        elif meant is not None:
            why = f"no key is called `{shown(meant)}`"
            hint = f"For all keys that the regular expression matches, write a recipe: `match: '{meant}'`."
        elif where and not others and not guess:
            why = f"it matches only a part, `{shown(part)}`, of keys such as `{shown(key)}`"
            hint = "A pattern has to match the whole key: write what stands around the part, or `.*`."
        else:
            whose = " of the target" if rule.rule.fill else ""
            why, hint = f"no key{whose} matches{guess}", others or OPTIONAL
    return SurgeryError(f"{CLAIMS_NOTHING}: {why}", hint=hint, code=Code.CLAIMS_NOTHING)


def _meant(pattern: regex.Pattern[str], keys: Iterable[str], matching: MatchBudget) -> str | None:
    """The pattern without its backslashes before signs, if that matches keys: `-e` takes a key literally."""
    bare = _ESCAPED.sub(r"\1", pattern.pattern)
    try:
        compiled = compile_pattern(bare)
        matches = bare != pattern.pattern and any(matching.fullmatch(compiled, key) for key in keys)
    except SurgeryError:
        return None
    return bare if matches else None


def filled(
    run: PassRun, target: Target, taken: Collection[str] = (), unclaimed: Mapping[str, Tree] | None = None
) -> dict[str, Entry]:
    """The entries that `fill` rules give, by target key, but for those with `fallback: missing`.

    With `unclaimed`, the leaves of each source that no rule claims, these alone: they are the last resorts
    for keys that are not `taken`.
    """
    is_last = unclaimed is not None
    rules = [r for r in run.rules if isinstance(r, Fill) and (r.rule.fallback == MISSING) is is_last]
    given: dict[str, Entry] = {}
    used: set[int] = set()
    for text, leaf in target.leaves.items():
        for rule in rules:
            entry = None if text in taken else rule.claim(leaf, unclaimed)
            if entry is not None or (is_last and rule.match(text)):
                used.add(rule.index)
            if isinstance(entry, Entry):
                given[text] = entry
            if entry is not None:
                break
    for rule in rules:
        if rule.index not in used and not rule.rule.optional:
            keys = list(target.leaves)
            fits = [text for text in keys if rule.match(text)]
            refused = [] if rule.rule.when is None else [text for text in fits if text not in given]
            rule.wrong(("fill",), claims_nothing(rule, keys, len(fits), refused))
    return given


class Fill(RuleRun):
    """A `fill` rule, and the entries that it gives for leaves of the target."""

    def __init__(self, pass_run: PassRun, index: int, target: Target):
        super().__init__(pass_run, index)
        self._target = target

    def claim(self, leaf: Leaf, unclaimed: Mapping[str, Tree] | None = None) -> Entry | Failed | None:
        """Value that the rule gives for a target leaf; None if it does not match, or if its `when` is false.

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
        if (rule.fallback is True and target.policy.prefer == "source") or (
            rule.fallback == MISSING and offered is None
        ):
            if not target.has_value(leaf) and text not in target.placeholders:
                why = f"the target has no value for it{target.lack}"
                self.wrong(("fallback",), PlanError(why, code=Code.NO_TARGET), text)
                return FAILED
            return self.attribute(target.own_value(leaf), [], output)
        if rule.value is not None:
            return self.compute_output(("value",), output, text, claimed, leaf)
        if offered is None:
            guess = did_you_mean(wanted, self.pass_run.trees[self.pass_run.first])
            error = PlanError(f"no source leaf is called `{wanted}`{guess}", code=Code.NO_ENTRY)
            self.wrong(("fill" if rule.from_ is None else "from",), error, text)
            return FAILED
        return self.attribute(replace(offered, key=leaf.key), claimed, output)
