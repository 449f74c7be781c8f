"""What would decide the leaves that are not decided: rules for the command line, one or a few per candidate.

Leaves of one family that are open for one reason are told, and decided, together.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.bundle_rules import drafts_of
from ckpt_surgery.inference.by_names import candidates_of
from ckpt_surgery.inference.comparing import equal_elements
from ckpt_surgery.inference.covering import part_of, plain_parts
from ckpt_surgery.inference.formations import Candidate, Formation, Undecided
from ckpt_surgery.inference.grids import Grid, Numbers, Places, Template, alike, members, places_of, varying
from ckpt_surgery.inference.key_patterns import Universe
from ckpt_surgery.inference.leftovers import MAYBE, MOST_CANDIDATES
from ckpt_surgery.inference.matches import matches
from ckpt_surgery.inference.parts import Kind
from ckpt_surgery.inference.rule_drafts import RuleDraft
from ckpt_surgery.inference.sides import Side
from ckpt_surgery.inference.tables import Tables
from ckpt_surgery.inference.writing import rule_of
from ckpt_surgery.language.one_liners import one_liner_of

_NUMBER = re.compile(r"\d+")
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
    return [
        replace(one, candidates=tuple(rules.decide(each, one) for each in rules.candidates(one)))
        for one in _by_family(told)
    ]


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
    return one.formations[0].value.text if one.formations else one.value


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
        formations=tuple(formation for one in several for formation in one.formations),
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


def _by_numbers(keys: Sequence[str]) -> tuple[Template, dict[Numbers, str]]:
    """Keys that differ in numbers alone, by all their numbers."""
    return Template(tuple(_NUMBER.split(keys[0]))), {tuple(_NUMBER.findall(key)): key for key in keys}


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

    def candidates(self, one: Undecided) -> Sequence[Candidate]:
        """The candidates, and the target's own value where it has one and may keep it."""
        sources = tuple(dict.fromkeys(key for each in one.candidates for key in each.sources))
        known = self.source.read is not None and self.target.read is not None
        fits = any(each.how for each in one.candidates) and len(one.candidates) < MOST_CANDIDATES
        refused = self.compared and not any(self._holds(each) for each in one.candidates)
        if known and fits and (refused or one.why == MAYBE):
            return [*one.candidates, Candidate(sources, "", 0.0, "drop")]
        return one.candidates

    def _holds(self, candidate: Candidate) -> bool:
        """Whether the target has what a candidate makes."""
        return bool(candidate.formations) and all(
            _sums_agree(one, self.source, self.target) and equal_elements(one, self.source, self.target)
            for one in candidate.formations
        )

    def decide(self, candidate: Candidate, undecided: Undecided) -> Candidate:
        """The candidate, with the rules that make what it says of the leaves that are open, if any can."""
        if candidate.how == "drop":
            parts = plain_parts(Kind.DROPPED, candidate.sources, list(self.source.leaves))
            return replace(candidate, rules=_texts(drafts_of(parts, self.universe, Tables()), ()))
        open_keys = set(undecided.targets)
        wanted = [one for one in candidate.formations if one.target in open_keys]
        if not wanted or (self.compared and not self._holds(candidate)):
            return candidate
        return replace(candidate, rules=self._texts(wanted))

    def _texts(self, wanted: Sequence[Formation]) -> tuple[str, ...]:
        places = places_of(self.source.grids), places_of(self.target.grids)
        numbered = _places(one.sources for one in wanted), _places([one.target] for one in wanted)
        ways = [_texts(self._drafts(wanted, each), wanted) for each in (places, numbered)]
        if any(ways) or len(wanted) > MOST_RULES:
            return min(filter(None, ways), key=len, default=())
        several = [_texts(self._drafts([one], places), [one]) for one in wanted]
        return tuple(text for texts in several for text in texts) if all(several) else ()

    def _drafts(self, wanted: Sequence[Formation], places: tuple[Places, Places]) -> list[RuleDraft]:
        parts = [part_of(one, False, *places) for one in wanted]
        return drafts_of(parts, self.universe, Tables())


def _sums_agree(one: Formation, source: Side, target: Side) -> bool:
    """False where sums tell that a leaf as it is, or turned, is another one; reads nothing."""
    if len(one.sources) > 1 or one.target not in target.fingerprints:
        return True
    dtype, known = target.dtype_of(one.target), source.fingerprints.get(one.sources[0], {})
    wanted = target.fingerprints[one.target][dtype]
    return dtype not in known or known[dtype].size != wanted.size or known[dtype].total == wanted.total


def _places(several: Iterable[Iterable[str]]) -> Places:
    """Where every key stands, if any number may be an index."""
    groups: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for keys in several for key in keys):
        groups.setdefault(_NUMBER.sub("{}", key), []).append(key)
    likeness = ("", (), None)
    return places_of(varying(*_by_numbers(keys), likeness) for keys in groups.values())


def _texts(drafts: Sequence[RuleDraft], wanted: Sequence[Formation]) -> tuple[str, ...]:
    """Rules as they are given on the command line; none where one of them cannot be."""
    natural = all(list(one.sources) == sorted(one.sources, key=natural_order) for one in wanted)
    rules = [rule_of(draft) for draft in drafts]
    if natural:
        rules = [{name: value for name, value in rule.items() if name != "by"} for rule in rules]
    texts = [one_liner_of(rule) for rule in rules]
    told = tuple(text for text in texts if text is not None)
    return told if len(told) == len(texts) <= MOST_RULES else ()
