"""Which rule claims which leaf: the first one that matches the leaf's key and whose `when` is true."""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.naming import TARGET
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.patterns import MatchBudget, alternation, compile_pattern, safe_length
from ckpt_surgery.language.scope import Unavailable
from ckpt_surgery.planner.entries import Entry
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
            longest = safe_length(pattern)
            found_by = alternation([pattern for _, pattern in batch]) if longest else pattern
            yield Batch(batch, found_by, longest, slowest)


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
    return heapq.merge(*seen, key=_order)


def _order(match: RuleMatch) -> tuple[int, bool]:
    """A rule with `mirror_value` sees a mirrored leaf as such, even if it also matches the leaf's own key."""
    rule, _, mirror = match
    return rule.index, mirror is None and rule.rule.mirror_value is not None


def _matches_of_view(text: str, mirror: Mirror | None, batches: Sequence[Batch]) -> Iterator[RuleMatch]:
    """The rules that match a key as it is seen in a mirror, in order."""
    for batch in batches:
        rules, longest = batch.rules, batch.longest
        if len(text) <= longest:
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


def _matched_beginning(rule: RuleRun, pattern: regex.Pattern[str], entries: Sequence[Entry]) -> str | None:
    """A key of which the pattern matches the first components and not the rest; None if there is none.

    A pattern with an open end, such as `a/(.*)`, is about something else.
    """
    if pattern.pattern.endswith(OPEN_ENDS):
        return None
    heads: dict[str, str] = {}
    for entry in entries:
        parts = entry.key.text.split("/")
        for end in range(1, len(parts)):
            heads.setdefault("/".join(parts[:end]), entry.key.text)
    found = (key for head, key in heads.items() if rule.match(head))
    return next(found, None)


def _matched_in_target(rule: RuleRun) -> str | None:
    """A key of the target that the rule matches; None where there is none, or no target."""
    target = rule.pass_run.names[TARGET]
    keys = () if isinstance(target, Unavailable) else target.keys()
    return next(filter(rule.match, keys), None)


def _matched_part(pattern: regex.Pattern[str], keys: Sequence[str]) -> str | None:
    """What the pattern matches within a key that it does not match as a whole, as a clause."""
    anywhere = compile_pattern(f"(?s:.*?)(?P<part_of_key>{pattern.pattern})(?s:.*)")
    budget = MatchBudget()
    try:
        matches = (budget.fullmatch(anywhere, key) for key in keys)
        found = next((match for match in matches if match and match["part_of_key"]), None)
    except SurgeryError:  # a pattern this slow is no help
        return None
    if found is None:
        return None
    return f"it matches only a part, `{shown(found['part_of_key'])}`, of keys such as `{shown(found[0])}`"


def _meant(pattern: regex.Pattern[str], keys: Sequence[str]) -> str | None:
    """The pattern without its backslashes before signs, if that matches keys: `-e` takes a key literally."""
    bare = _ESCAPED.sub(r"\1", pattern.pattern)
    try:
        matches = bare != pattern.pattern and any(
            map(partial(MatchBudget().fullmatch, compile_pattern(bare)), keys)
        )
    except SurgeryError:
        return None
    return bare if matches else None


def made_for_others(recipe: str, entries: Sequence[Entry]) -> str | None:
    """What to do where a packaged recipe finds no key that it looks for; None for a recipe of the user's."""
    if not recipe.startswith(PREFIX):
        return None
    others = few_keys(entry.key.printed for entry in entries)
    return (
        f"`{recipe}` looks for other names than {others}, which this "
        f"checkpoint has. `ckpt-surgery recipes {recipe}` says what it looks for, and which params it takes."
    )


def why_unused(rule: RuleRun) -> SurgeryError:
    """Why a `match` rule claimed nothing, from a second look at the keys."""
    run, pattern = rule.pass_run, rule.rule.match
    assert pattern is not None
    entries = [entry for name in rule.sources for entry in run.trees[name].values()]
    fits = [
        entry for entry in entries if any(rule.match(view) for view, _ in views(entry.key.text, run.mirrors))
    ]
    others = made_for_others(run.problems.loaded.path, entries)
    if not fits:
        keys = [entry.key.text for entry in entries]
        meant_target = _matched_in_target(rule)
        if meant_target is not None:
            why = f"it matches `{shown(meant_target)}` of the target, and no key of the source"
            return SurgeryError(f"the rule claims nothing: {why}", hint=EXCHANGED, code=Code.CLAIMS_NOTHING)
        guess = did_you_mean(pattern.pattern, keys)
        begun = _matched_beginning(rule, pattern, entries)
        if begun is not None:
            why = f"it matches only the beginning of keys such as `{shown(begun)}`"
            hint = "For all that is below, add `/.*`: a pattern has to match the whole key."
            return SurgeryError(f"the rule claims nothing: {why}", hint=hint, code=Code.CLAIMS_NOTHING)
        meant = None if others else _meant(pattern, keys)
        if meant is not None:
            hint = f"For all keys that the regular expression matches, write a recipe: `match: '{meant}'`."
            why = f"no key is called `{shown(meant)}`"
            return SurgeryError(f"the rule claims nothing: {why}", hint=hint, code=Code.CLAIMS_NOTHING)
        part = None if others or guess else _matched_part(pattern, keys)
        if part is not None:
            hint = (
                "A pattern has to match the whole key: write what stands before and after the part, or `.*`."
            )
            return SurgeryError(f"the rule claims nothing: {part}", hint=hint, code=Code.CLAIMS_NOTHING)
        message = f"the rule claims nothing: no key matches{guess}"
        return SurgeryError(message, hint=others or OPTIONAL, code=Code.CLAIMS_NOTHING)
    refused = [entry.key.text for entry in fits if id(entry) not in run.claimed]
    if refused:
        why = f"`when` is false for {few_keys(refused)}"
        hint = others or OPTIONAL
        return SurgeryError(f"the rule claims nothing: {why}", hint=hint, code=Code.CLAIMS_NOTHING)
    all_keys = "the one key" if len(fits) == 1 else f"all {len(fits)} keys"
    return SurgeryError(
        f"the rule claims nothing: earlier rules claimed {all_keys} that it matches",
        hint="The first rule that matches wins: put the narrower rule above the wider one.",
        code=Code.CLAIMS_NOTHING,
    )
