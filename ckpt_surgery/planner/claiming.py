"""Which rule claims which leaf: the first one that matches the leaf's key and whose `when` is true."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.models import Pass, Rule
from ckpt_surgery.language.naming import TARGET
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.patterns import Watch, compile_pattern
from ckpt_surgery.language.prefilters import Literals, Texts, literals
from ckpt_surgery.language.scope import Unavailable
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.evaluator import Evaluator, Names, x_of
from ckpt_surgery.planner.problems import EXCHANGED, OPTIONAL

OPEN_ENDS = (")", "*", "+", "?")
"""Ends of patterns that match whatever follows: that one matches the beginning of a key says nothing."""


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


def mirrors_of(pass_: Pass) -> list[Mirror]:
    """The mirrored subtrees of a pass."""
    return [Mirror(params, slot) for params, slots in pass_.mirror.items() for slot in slots]


@frozen(eq=False)
class Claim:
    """A leaf that a rule has claimed."""

    entry: Entry
    match: regex.Match[str]
    mirror: Mirror | None
    """The mirror through which the rule saw the leaf; None if the rule matched the leaf's own key."""

    def names(self, evaluator: Evaluator) -> Names:
        """What the rule's expressions see at this leaf."""
        return {**evaluator.names_at(self.match, self.entry.key.text), "x": x_of(self.entry)}


@dataclass(frozen=True)
class Claims:
    """The leaves that rules have claimed."""

    by_rule: Mapping[int, Sequence[Claim]]
    """The claims of each rule, by its number in the pass, in the order of the sources' leaves."""
    entries: Set[int]
    """The identities of all claimed entries."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule that may claim a leaf."""

    index: int
    rule: Rule
    pattern: regex.Pattern[str]
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


def claim(rules: Sequence[Rule], mirrors: Sequence[Mirror], evaluator: Evaluator) -> Claims:
    """Try every leaf of every source on the `match` rules that read from it."""
    by_rule: dict[int, list[Claim]] = defaultdict(list)
    entries: set[int] = set()
    sources = [set(evaluator.sources_of(rule)) for rule in rules]
    for name, tree in evaluator.trees.items():
        candidates = Candidates(
            [
                Candidate(i, rule, rule.match, literals(rule.match))
                for i, rule in enumerate(rules)
                if rule.match is not None and name in sources[i]
            ]
        )
        for entry in tree.values():
            for candidate, text, mirror in _possible(entry.key.text, mirrors, candidates):
                found = _claimed(candidate, entry, text, mirror, evaluator)
                if found is not None:
                    by_rule[candidate.index].append(found)
                    entries.add(id(entry))
                    break
    return Claims(by_rule, entries)


def _possible(key: str, mirrors: Sequence[Mirror], candidates: Candidates) -> list[Possible]:
    """The rules that may match a key, in order."""
    if not mirrors:
        return candidates.of(key, None)
    found = [one for text, mirror in views(key, mirrors) for one in candidates.of(text, mirror)]
    # A rule with `mirror_value` sees a mirrored leaf as such, even if it also matches the leaf's own key.
    return sorted(
        found, key=lambda one: (one[0].index, one[2] is None and one[0].rule.mirror_value is not None)
    )


def views(text: str, mirrors: Sequence[Mirror]) -> list[tuple[str, Mirror | None]]:
    """The key itself, then the keys that it stands for in mirrored trees."""
    views: list[tuple[str, Mirror | None]] = [(text, None)]
    for mirror in mirrors:
        seen = mirror.seen(text)
        if seen is not None:
            views.append((seen, mirror))
    return views


def _claimed(
    candidate: Candidate, entry: Entry, text: str, mirror: Mirror | None, evaluator: Evaluator
) -> Claim | None:
    """The claim of an entry whose key the rule sees as `text`; None if the rule does not claim it."""
    match = evaluator.match(candidate.index, ("match",), candidate.pattern, text)
    if match is None:
        return None
    found = Claim(entry, match, mirror)
    when = candidate.rule.when
    if when is None:
        return found
    # A `when` that failed is a problem already; an unclaimed leaf would be a second, misleading one.
    result = evaluator.condition(candidate.index, when, found.names(evaluator), entry.key.text)
    return None if result is False else found


def _matched_beginning(
    index: int, pattern: regex.Pattern[str], entries: Sequence[Entry], evaluator: Evaluator
) -> str | None:
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
    found = (key for head, key in heads.items() if evaluator.match(index, ("match",), pattern, head))
    return next(found, None)


def _matched_in_target(index: int, pattern: regex.Pattern[str], evaluator: Evaluator) -> str | None:
    """A key of the target that the pattern matches; None where there is none, or no target."""
    target = evaluator.names[TARGET]
    leaves = target.listed if isinstance(target, Unavailable) else target
    keys = () if leaves is None else leaves.keys()
    return next((key for key in keys if evaluator.match(index, ("match",), pattern, key)), None)


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


def why_unused(
    index: int, rule: Rule, claimed: Set[int], mirrors: Sequence[Mirror], evaluator: Evaluator
) -> SurgeryError:
    """Why a `match` rule claimed nothing, from a second look at the keys.

    `claimed`: the identities of the entries that other rules have claimed.
    """
    pattern = rule.match
    assert pattern is not None
    known = literals(pattern)
    entries = [entry for name in evaluator.sources_of(rule) for entry in evaluator.trees[name].values()]
    fits = [
        entry
        for entry in entries
        if any(
            known.fit(view) and evaluator.match(index, ("match",), pattern, view)
            for view, _ in views(entry.key.text, mirrors)
        )
    ]
    others = made_for_others(evaluator.problems.loaded.path, entries)
    if not fits:
        keys = [entry.key.text for entry in entries]
        meant_target = _matched_in_target(index, pattern, evaluator)
        if meant_target is not None:
            why = f"it matches `{shown(meant_target)}` of the target, and no key of the source"
            return SurgeryError(f"the rule claims nothing: {why}", hint=EXCHANGED, code=Code.CLAIMS_NOTHING)
        guess = did_you_mean(pattern.pattern, keys)
        begun = _matched_beginning(index, pattern, entries, evaluator)
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
    refused = [entry.key.text for entry in fits if id(entry) not in claimed]
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
