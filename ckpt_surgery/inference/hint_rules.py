"""What would decide the leaves that are not decided: rules for the command line, one or a few per candidate.

Leaves of one family that are open for one reason are told, and decided, together.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.drafts.bundle_rules import drafts_of
from ckpt_surgery.inference.drafts.key_patterns import NUMBER, Universe, escaped, numbered
from ckpt_surgery.inference.drafts.parts import Kind
from ckpt_surgery.inference.drafts.rule_drafts import RuleDraft
from ckpt_surgery.inference.drafts.subtree_rules import part_of, plain_parts
from ckpt_surgery.inference.drafts.tables import Tables
from ckpt_surgery.inference.drafts.writing import rule_of, template
from ckpt_surgery.inference.expressions.formations import Candidate, Formation, Undecided, X
from ckpt_surgery.inference.keys.grids import (
    Grid,
    KeyTemplate,
    Numbers,
    Places,
    alike,
    members,
    places_of,
    varying,
)
from ckpt_surgery.inference.names.by_names import candidates_of
from ckpt_surgery.inference.names.leftovers import MAYBE, MOST_CANDIDATES
from ckpt_surgery.inference.names.matches import matches
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.sides import Side
from ckpt_surgery.language.one_liners import one_liner_of

_NUMBER = re.compile(r"\d+")
MOST_DRAFTED = 20_000
"""Leaves for which rules that groups alone do not make are drafted at most: that takes a while."""
MOST_RULES = 8
"""Rules that decide for one candidate at most."""


def with_rules(undecided: Sequence[Undecided], source: Side, target: Side, compared: bool) -> list[Undecided]:
    """What is not decided, by families, each candidate with the rules that decide for it.

    `compared`: whether the target has numbers of the source, so that a candidate with others is refused, and
    the target's own value is one.
    """
    if not undecided:
        return []
    rules = _Rules(source, target, Universe(source.leaves), compared)
    told = undecided if compared else [each for one in undecided for each in _by_size(one, source, target)]
    return [rules.decide(one) for one in _by_family(told)]


# --- families ---------------------------------------------------------------------------------------------


def _by_family(undecided: Iterable[Undecided]) -> Iterator[Undecided]:
    """Leaves that are open for one reason, and differ in numbers as their candidates do, as one."""
    groups: dict[object, list[Undecided]] = {}
    for one in undecided:
        groups.setdefault(_likeness(one), []).append(one)
    for several in groups.values():
        yield from [_joined(several)] if _apart(several) else several


def _likeness(one: Undecided) -> object:
    """What is the same of leaves that are open together."""
    ways = tuple((each.how, _outlines(each.sources), _text(each)) for each in one.candidates)
    return one.why, _outlines(one.targets), ways


def _outlines(keys: Iterable[str]) -> tuple[str, ...]:
    """Keys without their numbers, each once."""
    return tuple(dict.fromkeys(_NUMBER.sub("{}", key) for key in keys))


def _text(one: Candidate) -> str:
    return next((each.value.text for each in one.formations), one.value)


def _apart(several: Sequence[Undecided]) -> bool:
    """Whether no source is the same candidate of two of them."""
    columns = zip(*([each.sources for each in one.candidates] for one in several), strict=True)
    return all(len(set().union(*column)) == sum(map(len, column)) for column in columns)


def _joined(several: Sequence[Undecided]) -> Undecided:
    first = several[0]
    candidates = [_together(each) for each in zip(*(one.candidates for one in several), strict=True)]
    return replace(
        first,
        targets=tuple(dict.fromkeys(key for one in several for key in one.targets)),
        candidates=tuple(candidates),
    )


def _together(several: Sequence[Candidate]) -> Candidate:
    return replace(
        several[0],
        sources=tuple(dict.fromkeys(key for one in several for key in one.sources)),
        score=min(one.score for one in several),
        makers=tuple(maker for one in several for maker in one.makers),
    )


# --- leaves that only sizes relate ------------------------------------------------------------------------


def _by_size(one: Undecided, source: Side, target: Side) -> Iterator[Undecided]:
    """Leaves with candidates by size alone: these as families, with the ways in which they fit."""
    if one.why != MAYBE:
        yield one
        return
    keys = dict.fromkeys(key for candidate in one.candidates for key in candidate.sources)
    given: Sequence[Grid] = alike([source.leaves[key] for key in keys], source.grids)
    wanted = alike([target.leaves[key] for key in one.targets], target.grids)
    given = _numbered(given)
    for part in _numbered(wanted):
        found = list(_ways(given, part))
        if found:
            yield Undecided(part.keys, one.why, tuple(found[:MOST_CANDIDATES]))
            continue
        for member in members([part]):
            alone = [each.alone for each in members(given)]
            found = list(_ways(alone, member.alone)) or list(one.candidates)
            yield Undecided(member.alone.keys, one.why, tuple(found[:MOST_CANDIDATES]))


def _numbered(some: Iterable[Grid]) -> Sequence[Grid]:
    """The same, but those as one whose keys differ in numbers alone, though these may be parts of names."""
    groups: dict[object, list[Grid]] = {}
    for one in some:
        likeness = _NUMBER.sub("{}", one.text), one.kind, one.shape, one.dtype
        groups.setdefault(likeness, []).append(one)
    return [group[0] if len(group) == 1 else _as_one(group) for group in groups.values()]


def _as_one(several: Sequence[Grid]) -> Grid:
    first = several[0]
    template, numbered = _by_numbers([key for one in several for key in one.keys])
    return varying(template, numbered, (first.kind, first.shape, first.dtype))


def _by_numbers(keys: Sequence[str]) -> tuple[KeyTemplate, dict[Numbers, str]]:
    """Keys that differ in numbers alone, by all their numbers."""
    return KeyTemplate(tuple(_NUMBER.split(keys[0]))), {tuple(_NUMBER.findall(key)): key for key in keys}


def _ways(given: Iterable[Grid], wanted: Grid) -> Iterator[Candidate]:
    for one in given:
        for way in matches(one, wanted):
            yield from candidates_of(way, way.layouts, 0.0)


# --- rules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    """Makes the rules for candidates."""

    source: Side
    target: Side
    universe: Universe
    compared: bool
    drafted: list[int] = field(default_factory=list)
    """Numbers of leaves for which rules were drafted so far."""
    columns: dict[tuple[str, ...], "_Columns | None"] = field(default_factory=dict)
    claims: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def decide(self, one: Undecided) -> Undecided:
        """What is not decided, with the rules that decide it in each way."""
        candidates = tuple(self._decide(each, one) for each in one.candidates)
        return replace(one, candidates=candidates, own_value=self._own_value(one))

    def _own_value(self, one: Undecided) -> tuple[str, ...]:
        """The rules that drop the candidates, where the target has values and may keep its own."""
        known = self.source.read is not None and self.target.read is not None
        fits = any(each.how for each in one.candidates) and len(one.candidates) < MOST_CANDIDATES
        refused = self.compared and not any(self._holds(each) for each in one.candidates)
        if not known or not fits or not (refused or one.why == MAYBE):
            return ()
        sources = dict.fromkeys(key for each in one.candidates for key in each.sources)
        parts = plain_parts(Kind.DROPPED, sources, list(self.source.leaves))
        return _texts(drafts_of(parts, self.universe, Tables()), ())

    def _holds(self, candidate: Candidate) -> bool:
        """Whether the target has what a candidate makes."""
        return bool(candidate.makers) and all(
            _sums_agree(one, self.source, self.target) and equal_elements(one, self.source, self.target)
            for one in candidate.formations
        )

    def _decide(self, candidate: Candidate, undecided: Undecided) -> Candidate:
        """The candidate, with the rules that make what it says of the leaves that are open, if any can."""
        open_keys = set(undecided.targets)
        wanted = [one for one in candidate.formations if one.target in open_keys]
        if not wanted or (self.compared and not self._holds(candidate)):
            return candidate
        return replace(candidate, rules=self._texts(wanted))

    def _texts(self, wanted: Sequence[Formation]) -> tuple[str, ...]:
        text = self._by_groups(wanted)
        if text is not None:
            return (text,)
        self.drafted.append(len(wanted))
        if sum(self.drafted) > MOST_DRAFTED:
            return ()
        together = _texts(self._drafts(wanted), wanted)
        if together or len(wanted) > MOST_RULES:
            return together
        several = [_texts(self._drafts([one]), [one]) for one in wanted]
        return tuple(text for texts in several for text in texts) if all(several) else ()

    def _drafts(self, wanted: Sequence[Formation]) -> list[RuleDraft]:
        parts = [part_of(one, False, *self.places) for one in wanted]
        return drafts_of(parts, self.universe, Tables())

    @cached_property
    def places(self) -> tuple[Places, Places]:
        """Where the keys of both sides stand."""
        return places_of(self.source.grids), places_of(self.target.grids)

    def _by_groups(self, wanted: Sequence[Formation]) -> str | None:
        """One rule with a group for each number of the targets' keys; None where there is none."""
        sources = tuple(key for one in wanted for key in one.sources)
        value = wanted[0].value
        mine, theirs = self._columns(sources), self._columns(tuple(one.target for one in wanted))
        if mine is None or theirs is None or value.numbers or any(one.value != value for one in wanted):
            return None
        if not _natural(wanted) or not self._claims_just(mine.texts, sources):
            return None
        repeated = [
            tuple(number for number, one in zip(column, wanted, strict=True) for _ in one.sources)
            for column in theirs.numbers
        ]
        if not set(repeated) <= set(mine.numbers):
            return None
        slots = [mine.numbers.index(column) for column in repeated]
        used = sorted(set(slots))
        pattern, to = escaped(mine.texts[0]), template(theirs.texts[:1])
        for slot, text in enumerate(mine.texts[1:]):
            pattern += (rf"({NUMBER})" if slot in used else NUMBER) + escaped(text)
        for slot, text in zip(slots, theirs.texts[1:], strict=True):
            group = used.index(slot) + 1
            to += (rf"\g<{group}>" if text[:1].isdigit() else rf"\{group}") + template([text])
        rule = {"match": pattern, "to": to} | ({} if value == X else {"value": str(value)})
        return one_liner_of(rule)

    def _columns(self, keys: tuple[str, ...]) -> "_Columns | None":
        if keys not in self.columns:
            self.columns[keys] = _columns(keys)
        return self.columns[keys]

    def _claims_just(self, texts: Sequence[str], keys: tuple[str, ...]) -> bool:
        """Whether the pattern with these texts matches these keys, each once, and no others."""
        if keys not in self.claims:
            found = self.universe.matched(numbered([(text,) for text in texts], False))
            self.claims[keys] = len(set(keys)) == len(keys) and found.keys() == set(keys)
        return self.claims[keys]


@frozen()
class _Columns:
    """Keys that differ in numbers alone."""

    texts: tuple[str, ...]
    """What stands between the numbers that differ."""
    numbers: tuple[tuple[str, ...], ...]
    """For each place of these, the number of every key."""


def _columns(keys: Sequence[str]) -> _Columns | None:
    """Where keys differ, if it is in numbers alone."""
    texts, *others = {tuple(_NUMBER.split(key)) for key in keys}
    if others:
        return None
    found, columns = [texts[0]], []
    for column, text in zip(zip(*map(_NUMBER.findall, keys), strict=True), texts[1:], strict=True):
        if len(set(column)) > 1:
            columns.append(column)
            found.append(text)
        else:
            found[-1] += column[0] + text
    return _Columns(tuple(found), tuple(columns))


def _natural(wanted: Iterable[Formation]) -> bool:
    """Whether the sources are in the order that they have without `by`."""
    return all(
        len(one.sources) == 1 or list(one.sources) == sorted(one.sources, key=natural_order) for one in wanted
    )


def _sums_agree(one: Formation, source: Side, target: Side) -> bool:
    """False where sums tell that a leaf as it is, or turned, is another one; reads nothing."""
    if len(one.sources) > 1 or one.target not in target.fingerprints:
        return True
    dtype, known = target.dtype_of(one.target), source.fingerprints.get(one.sources[0], {})
    wanted = target.fingerprints[one.target][dtype]
    return dtype not in known or known[dtype].size != wanted.size or known[dtype].total == wanted.total


def _texts(drafts: Sequence[RuleDraft], wanted: Sequence[Formation]) -> tuple[str, ...]:
    """Rules as they are given on the command line; none where one of them cannot be."""
    rules = [rule_of(draft) for draft in drafts]
    if _natural(wanted):
        rules = [{name: value for name, value in rule.items() if name != "by"} for rule in rules]
    texts = [one_liner_of(rule) for rule in rules]
    told = tuple(text for text in texts if text is not None)
    return told if len(told) == len(texts) <= MOST_RULES else ()
