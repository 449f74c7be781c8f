"""What would decide the leaves that are not decided: rules for the command line, one or a few per candidate.

Leaves of one family that are open for one reason are told, and decided, together.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.drafts.indices import expression_of
from ckpt_surgery.inference.drafts.key_patterns import NUMBER, NUMBER_NAMES, escaped
from ckpt_surgery.inference.drafts.writing import template
from ckpt_surgery.inference.expressions.formations import Candidate, Formation, Undecided, Value
from ckpt_surgery.inference.names.by_names import MOST_CANDIDATES
from ckpt_surgery.inference.names.leftovers import MAYBE
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.reading import Side
from ckpt_surgery.language.one_liners import one_liner_of

_NUMBER = re.compile(r"\d+")
MOST_RULES = 8
"""Rules that decide for one candidate at most."""


def with_rules(undecided: Sequence[Undecided], source: Side, target: Side, compared: bool) -> list[Undecided]:
    """What is not decided, by families, each candidate with the rules that decide for it.

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
    """What is the same of leaves that are open together."""
    texts = [next((made.value.text for made in each.formations), each.value) for each in one.candidates]
    ways = [(each.how, *_by_outline(each.sources)) for each in one.candidates]
    return one.why, tuple(_by_outline(one.targets)), tuple(ways), tuple(texts)


def _apart(several: Sequence[Undecided]) -> bool:
    """Whether no source is the same candidate of two of them."""
    columns = zip(*([each.sources for each in one.candidates] for one in several), strict=True)
    return all(len(set().union(*column)) == sum(map(len, column)) for column in columns)


def _joined(several: Sequence[Undecided]) -> Undecided:
    candidates = [
        replace(
            ways[0],
            sources=tuple(dict.fromkeys(key for one in ways for key in one.sources)),
            score=min(one.score for one in ways),
            makers=tuple(maker for one in ways for maker in one.makers),
        )
        for ways in zip(*(one.candidates for one in several), strict=True)
    ]
    targets = dict.fromkeys(key for one in several for key in one.targets)
    return replace(several[0], targets=tuple(targets), candidates=tuple(candidates))


# --- rules ------------------------------------------------------------------------------------------------


@frozen()
class _Columns:
    """Keys that differ in numbers alone."""

    texts: tuple[str, ...]
    """What stands between the numbers that differ."""
    numbers: tuple[tuple[str, ...], ...]
    """For each place of these, the number of every key."""


@dataclass(frozen=True)
class _Rules:
    """Makes the rules for candidates."""

    source: Side
    target: Side
    compared: bool
    columns: dict[tuple[str, ...], _Columns | None] = field(default_factory=dict)
    patterns: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    """The keys that each pattern with these texts matches."""

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
        rules = []
        for keys in map(tuple, _by_outline(sources).values()):
            columns = self._columns(keys)
            together = columns is not None and self._matched(columns.texts) == set(keys)
            patterns = [_pattern(columns.texts)] if columns and together else map(escaped, keys)
            rules += [one_liner_of({"match": pattern, "drop": True}) for pattern in patterns]
        texts = tuple(rule for rule in rules if rule is not None)
        return texts if len(texts) == len(rules) <= MOST_RULES else ()

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
        together = self._rule(wanted)
        if together is None and len(wanted) > MOST_RULES:
            return candidate
        rules = [self._rule([one]) for one in wanted] if together is None else [together]
        texts = tuple(rule for rule in rules if rule is not None)
        sources = {one.sources for one in wanted}
        complete = len(texts) == len(rules) and (together is not None or len(sources) == len(wanted))
        return replace(candidate, rules=texts if complete else ())

    def _rule(self, wanted: Sequence[Formation]) -> str | None:
        """One rule with a group for each number of the targets' keys; None where there is none.

        Of what is taken apart, one number is a variable instead: that of the slice.
        """
        sources = tuple(key for one in wanted for key in one.sources)
        mine, theirs = self._columns(sources), self._columns(tuple(one.target for one in wanted))
        natural = all(list(one.sources) == sorted(one.sources, key=natural_order) for one in wanted)
        if mine is None or theirs is None or not natural:  # it would take `by`
            return None
        if self._matched(mine.texts) != set(sources):
            return None
        repeated = [
            tuple(number for number, one in zip(column, wanted, strict=True) for _ in one.sources)
            for column in theirs.numbers
        ]
        numbers = dict(zip(NUMBER_NAMES, mine.numbers, strict=False))
        follow = [_follows(column, numbers) for column in repeated]
        loops = [at for at, one in enumerate(follow) if one is None]
        count = len(wanted) // len({one.sources for one in wanted})
        if len(loops) != int(count > 1) or (count == 1 and len(set(sources)) < len(sources)):
            return None
        made = _value([one.value for one in wanted], count)
        if made is None or bool(made[1]) != bool(loops):
            return None
        value, slices = made
        loop = _follows(theirs.numbers[loops[0]], {"i": tuple(map(str, slices))}) if loops else ""
        if loop is None:
            return None
        computed = any(one and one not in numbers for one in follow)
        used = [name for name in numbers if computed or name in follow]
        to = template(theirs.texts[:1])
        for one, text in zip(follow, theirs.texts[1:], strict=True):
            inserted = f"${{{one or loop}}}"
            if one and not computed:
                number = used.index(one) + 1
                inserted = rf"\g<{number}>" if text[:1].isdigit() else rf"\{number}"
            to += inserted + template([text])
        groups = [("" if not computed else f"?P<{name}>") if name in used else None for name in numbers]
        rule = {"match": _pattern(mine.texts, groups), "to": to} | ({} if value == "x" else {"value": value})
        return one_liner_of(rule | ({"for": {"i": f"range({count})"}} if loops else {}))

    def _columns(self, keys: tuple[str, ...]) -> _Columns | None:
        """Where keys differ, if it is in numbers alone."""
        if keys not in self.columns:
            self.columns[keys] = _columns(keys)
        return self.columns[keys]

    def _matched(self, texts: tuple[str, ...]) -> frozenset[str]:
        """The keys of the source that the pattern with these texts matches."""
        if texts not in self.patterns:
            pattern, outline = re.compile(_pattern(texts)), _NUMBER.sub("{}", "{}".join(texts))
            self.patterns[texts] = frozenset(filter(pattern.fullmatch, self._outlines.get(outline, ())))
        return self.patterns[texts]

    @cached_property
    def _outlines(self) -> dict[str, list[str]]:
        """The keys of the source by their texts without numbers."""
        return _by_outline(self.source.leaves)


def _by_outline(keys: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(_NUMBER.sub("{}", key), []).append(key)
    return found


def _columns(keys: Sequence[str]) -> _Columns | None:
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


def _follows(column: Sequence[str], numbers: Mapping[str, Sequence[str]]) -> str | None:
    """How numbers follow from those of the source's keys: their name, or an expression; None if not."""
    same = next((name for name, other in numbers.items() if tuple(other) == tuple(column)), None)
    if same is not None:
        return same
    known = {"i" if name == "i" else f"int({name})": list(map(int, other)) for name, other in numbers.items()}
    found = expression_of(list(map(int, column)), known)
    widths = {len(text) for text in column}
    if found is None or all(text == str(int(text)) for text in column):
        return found
    return f"f'{{{found}:0{widths.pop()}d}}'" if len(widths) == 1 else None


def _pattern(texts: Sequence[str], groups: Sequence[str | None] = ()) -> str:
    """The regular expression of keys with these texts between numbers.

    `groups`: how the group of each number begins; None for those that have none.
    """
    numbers = [NUMBER if group is None else f"({group}{NUMBER})" for group in groups or [None] * len(texts)]
    return escaped(texts[0]) + "".join(a + escaped(b) for a, b in zip(numbers, texts[1:], strict=False))


def _value(values: Sequence[Value], count: int) -> tuple[str, Sequence[int]] | None:
    """The expression of all these values, in which `i` is the number that differs, and these numbers.

    They are those of the slices that a leaf is taken apart into; None where something else differs.
    """
    first = values[0]
    if all(value == first for value in values):
        return str(first), ()
    if any(value.text != first.text for value in values):
        return None
    holes, slices = [], []
    for numbers, end in zip(zip(*(value.numbers for value in values), strict=True), first.ends, strict=True):
        if len(set(numbers)) == 1:
            holes.append("" if numbers[0] == end else str(numbers[0]))
        elif end is None and set(numbers) == set(range(count)):
            holes.append("i")
            slices.append(numbers)
        else:
            return None
    return (first.text.format(*holes), slices[0]) if len(set(slices)) == 1 else None


def _sums_agree(one: Formation, source: Side, target: Side) -> bool:
    """False where sums tell that a leaf as it is, or turned, is another one; reads nothing."""
    if len(one.sources) > 1 or one.target not in target.fingerprints:
        return True
    dtype, known = target.dtype_of(one.target), source.fingerprints.get(one.sources[0], {})
    wanted = target.fingerprints[one.target][dtype]
    return dtype not in known or known[dtype].size != wanted.size or known[dtype].total == wanted.total
