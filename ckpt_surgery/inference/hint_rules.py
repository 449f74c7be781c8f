"""Rules for the command line that would decide open leaves, one or a few per candidate.

Leaves of one family that are open for one reason are reported, and decided, together.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ckpt_surgery.inference.drafts.bundle_rules import draft_rules
from ckpt_surgery.inference.drafts.key_patterns import Universe, place_of
from ckpt_surgery.inference.drafts.parts import Inserted, Kind, RuleDraft, RulePart, Tables
from ckpt_surgery.inference.drafts.single_rules import is_natural
from ckpt_surgery.inference.drafts.subtree_rules import part_of
from ckpt_surgery.inference.drafts.writing import rule_of, template, words_of
from ckpt_surgery.inference.expressions.formations import Candidate, Formation, Undecided
from ckpt_surgery.inference.names.by_names import MOST_CANDIDATES
from ckpt_surgery.inference.names.leftovers import MAYBE
from ckpt_surgery.inference.names.names import outline
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.reading import Side
from ckpt_surgery.language.one_liners import one_liner_of

MOST_RULES = 8
"""Maximum number of rules for one candidate."""


def with_rules(undecided: Sequence[Undecided], source: Side, target: Side, compared: bool) -> list[Undecided]:
    """Join undecided leaves to families, and add to each candidate the rules that decide for it.

    `compared`: whether the target has numbers of the source, so that a candidate with others is refused, and
    the target's own value is one.
    """
    rules = _Rules(source, target, compared)
    return [rules.decide(one) for one in _by_family(undecided)]


# --- families ---------------------------------------------------------------------------------------------


def _by_family(undecided: Iterable[Undecided]) -> Iterator[Undecided]:
    """Leaves that are open for one reason, and differ in numbers as their candidates do, as one."""
    groups: dict[object, list[Undecided]] = {}
    for one in undecided:
        groups.setdefault(_likeness(one), []).append(one)
    for several in groups.values():
        yield from [_joined(several)] if _apart(several) else several


def _likeness(one: Undecided) -> object:
    """Key of the group of leaves that are open together."""
    texts = [next((first.value.text for first in each.formations), each.value) for each in one.candidates]
    ways = [(each.how, *_by_outline(each.sources)) for each in one.candidates]
    return one.why, tuple(_by_outline(one.targets)), tuple(ways), tuple(texts)


def _apart(several: Sequence[Undecided]) -> bool:
    """True if no source is the same candidate of two of them."""
    columns = zip(*([each.sources for each in one.candidates] for one in several), strict=True)
    return all(len(set().union(*column)) == sum(map(len, column)) for column in columns)


def _joined(several: Sequence[Undecided]) -> Undecided:
    candidates = [
        replace(
            ways[0],
            sources=tuple(dict.fromkeys(key for way in ways for key in way.sources)),
            score=min(way.score for way in ways),
            makers=tuple(maker for way in ways for maker in way.makers),
        )
        for ways in zip(*(one.candidates for one in several), strict=True)
    ]
    targets = dict.fromkeys(key for one in several for key in one.targets)
    return replace(several[0], targets=tuple(targets), candidates=tuple(candidates))


# --- rules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    """Makes the rules for candidates."""

    source: Side
    target: Side
    compared: bool

    def decide(self, one: Undecided) -> Undecided:
        """Add to undecided leaves the rules that decide for each candidate."""
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
        return self._rules([RulePart(Kind.DROPPED, (place_of(key),), None) for key in sources])

    def _holds(self, candidate: Candidate) -> bool:
        """True if the target has the values that a candidate makes."""
        return bool(candidate.makers) and all(
            _sums_agree(one, self.source, self.target) and equal_elements(one, self.source, self.target)
            for one in candidate.formations
        )

    def _decide(self, candidate: Candidate, undecided: Undecided) -> Candidate:
        """Add to a candidate the rules that make open leaves of its sources, if any can."""
        open_keys = frozenset(undecided.targets)
        wanted = [one for one in candidate.formations if one.target in open_keys]
        if not wanted or (self.compared and not self._holds(candidate)):
            return candidate
        return replace(candidate, rules=self._rules([part_of(one, alone=False) for one in wanted]))

    def _rules(self, parts: Sequence[RulePart]) -> tuple[str, ...]:
        """The rules that do what these parts say; none where the command line has none for one of them."""
        outlines = dict.fromkeys(outline(place.text) for part in parts for place in part.sources)
        like_these = Universe(key for text in outlines for key in self._outlines[text])
        tables = Tables()
        drafts = draft_rules(parts, like_these, tables)
        if all(map(is_natural, parts)):
            drafts = [replace(one, by=None) for one in drafts]
        if any(not words_of(one).isdisjoint(tables.tables) for one in drafts):
            return ()
        texts = [text for one in drafts if (text := _one_liner(one)) is not None]
        return tuple(texts) if len(texts) == len(drafts) <= MOST_RULES else ()

    @cached_property
    def _outlines(self) -> dict[str, list[str]]:
        """The keys of the source by their texts without numbers."""
        return _by_outline(self.source.leaves)


def _one_liner(rule: RuleDraft) -> str | None:
    r"""The rule for the command line, with `\1` where only its key reads a group; None where none is."""
    if rule.pattern is None or len(rule.outputs) > 1:
        return None
    written, names = rule_of(rule), [group.name for group in rule.pattern.groups]
    pieces = [piece for output in rule.outputs for piece in output.to]
    used = {piece.expression for piece in pieces if isinstance(piece, Inserted)}
    plain = [replace(output, to=()) for output in rule.outputs]
    if used and used <= set(names) and words_of(replace(rule, outputs=tuple(plain))).isdisjoint(names):
        number = {name: at for at, name in enumerate((name for name in names if name in used), start=1)}
        to = ""
        for piece in reversed(pieces):
            if isinstance(piece, str):
                to = template([piece]) + to
            else:
                at = number[piece.expression]
                to = (rf"\g<{at}>" if to[:1].isdigit() else rf"\{at}") + to
        match = re.sub(r"\(\?P<\w+>", "(", rule.pattern.regex(used))
        written |= {"match": match, "to": to}
    return one_liner_of(written)


def _by_outline(keys: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(outline(key), []).append(key)
    return groups


def _sums_agree(formation: Formation, source: Side, target: Side) -> bool:
    """False where sums show that a leaf as it is, or turned, is another one; reads nothing."""
    if len(formation.sources) > 1 or formation.target not in target.fingerprints:
        return True
    dtype, known = target.dtype_of(formation.target), source.fingerprints.get(formation.sources[0], {})
    wanted = target.fingerprints[formation.target][dtype]
    return dtype not in known or known[dtype].size != wanted.size or known[dtype].total == wanted.total
