"""Which rule claims which leaf: the first one that matches the leaf's key and whose `when` is true."""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Literal

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.expressions.naming import TARGET
from ckpt_surgery.language.expressions.regexes import MatchBudget, alternation, compile_pattern, safe_length
from ckpt_surgery.language.expressions.scope import Unavailable
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.planner.problems import EXCHANGED, OPTIONAL
from ckpt_surgery.planner.running import Claim, Mirror, PassRun, RuleRun

OPEN_ENDS = (")", "*", "+", "?")
"""Ends of patterns that match whatever follows: that one matches the beginning of a key says nothing."""


_ESCAPED = re.compile(r"\\([.^$*+?{}\[\]|()])")
"""A sign that stands for itself in a pattern."""
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
    seen = [_matches_of_view(text, mirror, batches) for text, mirror in views(key, mirrors)]
    return heapq.merge(*seen, key=_order) if len(seen) > 1 else seen[0]


def _order(match: RuleMatch) -> tuple[int, bool]:
    """A rule with `mirror_value` sees a mirrored leaf as such, even if it also matches the leaf's own key."""
    rule, _, mirror = match
    return rule.index, mirror is None and rule.rule.mirror_value is not None


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
    views: list[tuple[str, Mirror | None]] = [(text, None)]
    for mirror in mirrors:
        seen = mirror.seen(text)
        if seen is not None:
            views.append((seen, mirror))
    return views


@frozen()
class NearMiss:
    """A key of which a pattern matches only a part."""

    where: Literal["beginning", "end", "part"]
    """Whether that are its first or its last components, or anything else."""
    part: str
    key: str


def near_miss(pattern: regex.Pattern[str], keys: Iterable[str], matching: MatchBudget) -> NearMiss | None:
    """The first key of which a pattern, which matches none, matches the beginning or else another part.

    None, too, once `matching` is used up. A pattern with an open end, such as `a/(.*)`, is about something
    else than the beginning of a key.
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
            part = matching.search(pattern, key)
            if part is not None and part[0]:
                tails = (key[end + 1 :] for end in ends)
                tail = next((tail for tail in tails if matching.fullmatch(pattern, tail)), None)
                return NearMiss("part", part[0], key) if tail is None else NearMiss("end", tail, key)
    except SurgeryError:
        return None  # a pattern this slow is no help
    return None


def why_unused(rule: RuleRun) -> SurgeryError:
    """Why a `match` rule claimed nothing, from a second look at the keys."""
    run = rule.pass_run
    entries = [entry for name in rule.sources for entry in run.trees[name].values()]
    fits = [e for e in entries if any(rule.match(view) for view, _ in views(e.key.text, run.mirrors))]
    target = run.names[TARGET]
    wanted = () if fits or isinstance(target, Unavailable) else target.keys()
    in_target = next(filter(rule.match, wanted), None)
    if in_target is not None:
        return _unused(f"it matches `{shown(in_target)}` of the target, and no key of the source", EXCHANGED)
    refused = [entry.key.text for entry in fits if id(entry) not in run.claimed]
    recipe, others = run.problems.loaded.path, None
    if recipe.startswith(PREFIX):
        known = few_keys(entry.key.printed for entry in entries)
        others = (
            f"`{recipe}` looks for other names than {known}, which this checkpoint has. "
            f"`ckpt-surgery recipes {recipe}` says what it looks for, and which params it takes."
        )
    return claims_nothing(rule, [entry.key.text for entry in entries], len(fits), refused, others=others)


def claims_nothing(
    rule: RuleRun,
    keys: Sequence[str],
    fits: int,
    refused: Sequence[str],
    whose: str = "",
    others: str | None = None,
) -> SurgeryError:
    """The error for a rule that claims none of these keys.

    `fits`: number of keys that it matches. `refused`: those of them for which its `when` is false. `whose`:
    words after "no key". `others`: what to do if the recipe is made for other keys.
    """
    if refused:
        return _unused(f"`when` is false for {few_keys(refused)}", others or OPTIONAL)
    if fits:
        all_keys = "the one key" if fits == 1 else f"all {fits} keys"
        return _unused(f"earlier rules claimed {all_keys} that it matches", _FIRST_WINS)
    pattern, matching = rule.rule.match or rule.rule.fill, rule.pass_run.limits.second_looks
    assert pattern is not None
    guess = did_you_mean(pattern.pattern, keys)
    miss = near_miss(pattern, keys, matching)
    if miss is not None and miss.where == "beginning":
        return _unused(f"it matches only the beginning of keys such as `{shown(miss.key)}`", _BELOW)
    meant = None if others or rule.rule.match is None else _meant(pattern, keys, matching)
    if meant is not None:
        hint = f"For all keys that the regular expression matches, write a recipe: `match: '{meant}'`."
        return _unused(f"no key is called `{shown(meant)}`", hint)
    if miss is not None and not others and not guess:
        part = f"a part, `{shown(miss.part)}`, of keys such as `{shown(miss.key)}`"
        return _unused(f"it matches only {part}", _WHOLE)
    return _unused(f"no key{whose} matches{guess}", others or OPTIONAL)


_FIRST_WINS = "The first rule that matches wins: put the narrower rule above the wider one."
_BELOW = "For all that is below, add `/.*`: a pattern has to match the whole key."
_WHOLE = "A pattern has to match the whole key: write what stands before and after the part, or `.*`."


def _unused(why: str, hint: str) -> SurgeryError:
    return SurgeryError(f"the rule claims nothing: {why}", hint=hint, code=Code.CLAIMS_NOTHING)


def _meant(pattern: regex.Pattern[str], keys: Iterable[str], matching: MatchBudget) -> str | None:
    """The pattern without its backslashes before signs, if that matches keys: `-e` takes a key literally."""
    bare = _ESCAPED.sub(r"\1", pattern.pattern)
    try:
        matches = bare != pattern.pattern and any(
            map(partial(matching.fullmatch, compile_pattern(bare)), keys)
        )
    except SurgeryError:
        return None
    return bare if matches else None
