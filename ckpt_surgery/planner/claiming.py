"""Which rule claims which leaf: the first one that matches the leaf's key and whose `when` is true."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.naming import TARGET
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.patterns import Watch, compile_pattern
from ckpt_surgery.language.prefilters import Literals, Texts, literals
from ckpt_surgery.language.scope import Unavailable
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.problems import EXCHANGED, OPTIONAL
from ckpt_surgery.planner.running import Claim, Mirror, PassRun, RuleRun

OPEN_ENDS = (")", "*", "+", "?")
"""Ends of patterns that match whatever follows: that one matches the beginning of a key says nothing."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule that may claim a leaf."""

    rule: RuleRun
    literals: Literals


_ESCAPED = re.compile(r"\\([.^$*+?{}\[\]|()])")
"""A sign that stands for itself in a pattern."""

Possible = tuple[Candidate, str, Mirror | None]
"""A rule that may match a key, the key as the rule sees it, and the mirror that it is seen in."""


class Candidates:
    """The rules that may claim leaves of one source. A key's first characters rule most of them out."""

    def __init__(self, rules: Sequence[Candidate]):
        self._rules = rules
        lengths = [min(map(len, rule.literals.prefixes)) for rule in rules]
        self._length = min(filter(None, lengths), default=0)
        self._by_head: dict[str, list[tuple[Candidate, str, Texts, Texts, Texts]]] = {}

    def of(self, text: str, mirror: Mirror | None) -> list[Possible]:
        """The rules that may match a key, in order, each with the key and its mirror."""
        head = text[: self._length]
        near = self._by_head.get(head)
        if near is None:
            near = self._by_head[head] = self._near(head)
        return [
            (rule, text, mirror)
            for rule, inner, others, prefixes, suffixes in near
            if (inner in text or (others and any(other in text for other in others)))
            and text.endswith(suffixes)
            and text.startswith(prefixes)  # few keys have the inner text, so it is looked for first
        ]

    def _near(self, head: str) -> list[tuple[Candidate, str, Texts, Texts, Texts]]:
        """The rules that may match keys with these first characters, and texts that every match has."""
        known = [(rule, rule.literals) for rule in self._rules]
        return [
            (rule, texts.inner[0], texts.inner[1:], texts.prefixes, texts.suffixes)
            for rule, texts in known
            if head.startswith(tuple([prefix[: self._length] for prefix in texts.prefixes]))
        ]


def claim(run: PassRun) -> None:
    """Try every leaf of every source on the `match` rules that read from it."""
    for name, tree in run.trees.items():
        candidates = Candidates(
            [
                Candidate(rule, literals(rule.rule.match))
                for rule in run.rules
                if rule.rule.match is not None and name in rule.sources
            ]
        )
        for entry in tree.values():
            for candidate, text, mirror in _possible(entry.key.text, run.mirrors, candidates):
                rule = candidate.rule
                found = _claimed(rule, entry, text, mirror)
                if found is not None:
                    rule.claims.append(found)
                    run.claimed.add(id(entry))
                    break


def _possible(key: str, mirrors: Sequence[Mirror], candidates: Candidates) -> list[Possible]:
    """The rules that may match a key, in order."""
    if not mirrors:
        return candidates.of(key, None)
    found = [one for text, mirror in views(key, mirrors) for one in candidates.of(text, mirror)]
    # A rule with `mirror_value` sees a mirrored leaf as such, even if it also matches the leaf's own key.
    return sorted(
        found,
        key=lambda one: (one[0].rule.index, one[2] is None and one[0].rule.rule.mirror_value is not None),
    )


def views(text: str, mirrors: Sequence[Mirror]) -> list[tuple[str, Mirror | None]]:
    """The key itself, then the keys that it stands for in mirrored trees."""
    views: list[tuple[str, Mirror | None]] = [(text, None)]
    for mirror in mirrors:
        seen = mirror.seen(text)
        if seen is not None:
            views.append((seen, mirror))
    return views


def _claimed(rule: RuleRun, entry: Entry, text: str, mirror: Mirror | None) -> Claim | None:
    """The claim of a leaf that the rule sees as `text`; None if the rule does not claim it."""
    match = rule.match(text)
    if match is None:
        return None
    found = Claim(entry, match, mirror)
    if rule.rule.when is None:
        return found
    # A `when` that failed is a problem already; an unclaimed leaf would be a second, misleading one.
    return None if rule.holds(rule.names_of(found), entry.key.text) is False else found


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
    watch = Watch()
    try:
        matches = (watch.fullmatch(anywhere, key) for key in keys)
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
            map(partial(Watch().fullmatch, compile_pattern(bare)), keys)
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
    known = literals(pattern)
    entries = [entry for name in rule.sources for entry in run.trees[name].values()]
    fits = [
        entry
        for entry in entries
        if any(known.fit(view) and rule.match(view) for view, _ in views(entry.key.text, run.mirrors))
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
