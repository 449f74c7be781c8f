"""Rules for the command line that would decide open leaves, one or a few per candidate.

Leaves of one family that are open for one reason are reported, and decided, together.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ckpt_surgery.inference.drafts.joining import draft_rules
from ckpt_surgery.inference.drafts.key_patterns import Universe, place_of
from ckpt_surgery.inference.drafts.parts import Inserted, Kind, RuleDraft, RulePart, Tables, part_of, template
from ckpt_surgery.inference.drafts.single_rules import is_natural
from ckpt_surgery.inference.expressions.formations import Candidate, Formation, Undecided
from ckpt_surgery.inference.names.by_names import MOST_CANDIDATES
from ckpt_surgery.inference.names.leftovers import MAYBE
from ckpt_surgery.inference.names.names import outline
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.reading import Side
from ckpt_surgery.language.written import one_liner_of

MOST_RULES = 8
"""Maximum number of rules for one candidate."""


def with_rules(undecided: Sequence[Undecided], source: Side, target: Side, compared: bool) -> list[Undecided]:
    """Join undecided leaves to families, and add to each candidate the rules that decide for it.

    And rules that drop the candidates, where the target has values and may keep its own. `compared`: whether
    the target has numbers of the source, so that a candidate with others is refused.
    """
    outlines = _by_outline(source.leaves)

    def holds(one: Formation) -> bool:
        return _sums_agree(one, source, target) and equal_elements(one, source, target)

    def decided(one: Undecided) -> Undecided:
        candidates, some_hold, open_keys = [], False, frozenset(one.targets)
        for each in one.candidates:
            formations = list(each.formations)
            right = not compared or bool(formations and all(map(holds, formations)))
            wanted = [part_of(each) for each in formations if each.target in open_keys]
            candidates.append(replace(each, rules=_rules(wanted, outlines) if right else ()))
            some_hold |= right
        own: tuple[str, ...] = ()
        known = source.read is not None and target.read is not None
        fits = any(each.how for each in one.candidates) and len(one.candidates) < MOST_CANDIDATES
        if known and fits and (one.why == MAYBE or not some_hold):
            keys = dict.fromkeys(key for each in one.candidates for key in each.sources)
            own = _rules([RulePart((place,), place) for place in map(place_of, keys)], outlines, "drop")
        return replace(one, candidates=tuple(candidates), own_value=own)

    return list(map(decided, _by_family(undecided)))


def _by_family(undecided: Iterable[Undecided]) -> Iterator[Undecided]:
    """Leaves that are open for one reason, and differ in numbers as their candidates do, as one.

    No source may be the same candidate of two of them.
    """
    groups: dict[object, list[Undecided]] = {}
    for one in undecided:
        texts = (next((f.value.text for f in each.formations), each.value) for each in one.candidates)
        ways = ((each.how, *_by_outline(each.sources)) for each in one.candidates)
        groups.setdefault((one.why, *_by_outline(one.targets), *texts, *ways), []).append(one)
    for several in groups.values():
        candidates = [_joined(ways) for ways in zip(*(one.candidates for one in several), strict=True)]
        if len(several) == 1 or any(len(set(one.sources)) < len(one.sources) for one in candidates):
            yield from several
        else:
            targets = dict.fromkeys(key for one in several for key in one.targets)
            yield replace(several[0], targets=tuple(targets), candidates=tuple(candidates))


def _joined(ways: Sequence[Candidate]) -> Candidate:
    """One candidate of several undecided leaves: the least of the scores counts."""
    sources = tuple(key for way in ways for key in way.sources)
    makers = tuple(maker for way in ways for maker in way.makers)
    return replace(ways[0], sources=sources, score=min(way.score for way in ways), makers=makers)


def _rules(
    parts: Sequence[RulePart], outlines: Mapping[str, Sequence[str]], kind: Kind = "made"
) -> tuple[str, ...]:
    """The rules that do what these parts say; none where the command line has none for one of them.

    `outlines`: the keys of the source by their texts without numbers. `kind`: another fate of the leaves.
    """
    alike = dict.fromkeys(outline(place.text) for part in parts for place in part.sources)
    tables = Tables()
    drafts = draft_rules(parts, Universe(key for text in alike for key in outlines[text]), tables)
    if all(map(is_natural, parts)):
        drafts = [replace(one, by=None) for one in drafts]
    if kind != "made":
        drafts = [one.instead(kind) for one in drafts]
    texts = [_one_liner(one) if one.words.isdisjoint(tables.tables) else None for one in drafts]
    rules = tuple(text for text in texts if text is not None)
    return rules if len(rules) == len(drafts) <= MOST_RULES else ()


def _one_liner(rule: RuleDraft) -> str | None:
    r"""The rule for the command line, with `\1` where only its key reads a group; None where none is."""
    if rule.pattern is None or len(rule.outputs) > 1:
        return None
    written, names = rule.written(), [group.name for group in rule.pattern.groups]
    pieces = [piece for output in rule.outputs for piece in output.to]
    used = {piece.expression for piece in pieces if isinstance(piece, Inserted)}
    others = replace(rule, outputs=tuple(replace(output, to=()) for output in rule.outputs))
    if used and used <= set(names) and others.words.isdisjoint(names):
        numbered = [name for name in names if name in used]
        to = ""
        for piece in reversed(pieces):
            if isinstance(piece, Inserted):
                at = numbered.index(piece.expression) + 1
                to = (rf"\g<{at}>" if to[:1].isdigit() else rf"\{at}") + to
            else:
                to = template([piece]) + to
        written |= {"match": re.sub(r"\(\?P<\w+>", "(", rule.pattern.regex(used)), "to": to}
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
