"""Folds keys that differ in indices only into one exact line: `params/layers_{0..47}/mlp/kernel`.

Sentences about such leaves are one sentence, too (`merged`).

The notation: a slot `{0..47}`, `{0,2,5}` or `{00..11}` (as wide as its first number) stands for each of these
numbers, and several slots in one key stand for every combination. A source beside the key has the same slots
in the same order, and corresponding numbers belong together: `a_{0..3}` from `b_{1..4}` takes `a_0` from
`b_1`. Where this is ambiguous, slots have letters, and slots with equal letters belong together:
`a_{i:0..3}/b_{j:0..3}` from `b_{j}/a_{i}`. A source slot without a letter then means "all of these".
Braces and backslashes of a key itself are escaped with a backslash, but for the `\\/` of a printed key.
"""

import functools
import itertools
import math
import operator
import re
import string
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.text import shown

Cells = tuple[str, ...]
"""The numbers in a key and then in its sources, as they are written."""

# Longer digit strings are hashes or dates rather than indices; Python also refuses to parse very long ones.
_MOST_DIGITS = 18
_NUMBER = re.compile(rf"(?<![0-9])([0-9]{{1,{_MOST_DIGITS}}})(?![0-9])")
_DIGITS = re.compile("[0-9]+")
_ZEROS = bytes(ord("0") if chr(code).isdecimal() else code for code in range(256))
"""Maps each ASCII digit to 0."""
_MOST_NUMBERS = 12
"""Limit on the numbers of a key that can become slots. Bounds the work that hostile names can cause."""
_BETWEEN = "\0"
"""Separates a key from its source in a joined text."""
_RESERVED = re.compile(r"\\(?!/)|[{}]")
_LETTERS = string.ascii_lowercase[8:]


@frozen()
class ShownKey:
    """One key to be shown."""

    key: str
    """The key as it is printed, distinct among all that are folded together."""
    sources: tuple[str, ...] = ()
    """The keys that the leaf is made from, without repeats."""
    like: Hashable = None
    """Content of the line beside the key: only keys with equal content share a line."""


@dataclass(frozen=True, slots=True)
class Fold:
    """One line: it shows exactly `count` of the keys, and no other."""

    key: str
    """Pattern, printable and escaped."""
    sources: tuple[str, ...]
    """Patterns of the sources. A pattern for several sources of one key shows these as a set."""
    count: int
    """Number of keys that the pattern stands for."""
    gathers: int
    """Number of sources of each of these keys."""
    first: int
    """Index of a key of this line among all that are folded together."""


_Pattern = tuple[tuple[str, ...], Cells]
"""Literals, which are printable, and the numbers between them: one fewer."""


class _Frame(NamedTuple):
    """The texts of a key and its sources, without the numbers. Only keys with equal frames share a line."""

    texts: tuple[tuple[str, ...], ...]
    """The literals of the key, then those of each source pattern."""
    gathers: int
    """Number of sources."""


def fold(entries: Iterable[ShownKey]) -> list[Fold]:
    """The lines that show these keys: each key is on exactly one line, and no line shows any other.

    Lines are in the order of their first keys.
    """
    groups: dict[tuple[Hashable, _Frame], dict[Cells, int]] = {}
    for index, entry in enumerate(entries):
        frame, cells = _framed(entry)
        groups.setdefault((entry.like, frame), {})[cells] = index
    lines = [line for (_, frame), rows in groups.items() for line in _lines(frame, rows)]
    return sorted(lines, key=lambda line: line.first)


def _framed(entry: ShownKey) -> tuple[_Frame, Cells]:
    """The texts of a key and its sources without their numbers, and the numbers."""
    # Nearly all keys have one source at most, and thousands differ in their digits alone.
    text = _BETWEEN.join((entry.key, *entry.sources[:1]))
    if len(entry.sources) < 2 and text.isascii():
        outline = _outline(text.encode().translate(_ZEROS), len(entry.sources))
        if outline is not None:
            return outline[0], outline[1](text)
    patterns = [_pattern(entry.key), *_gather(entry.sources)]
    return _frame(patterns, len(entry.sources)), sum([numbers for _, numbers in patterns], ())


def _frame(patterns: Sequence[_Pattern], gathers: int) -> _Frame:
    return _Frame(tuple([literals for literals, _ in patterns]), gathers)


@functools.lru_cache(maxsize=4096)
def _outline(joined: bytes, sources: int) -> tuple[_Frame, Callable[[str], Cells]] | None:
    """The frame of keys joined with their sources that differ in their digits alone, and what takes the
    numbers out of them; None if some of the digits are no numbers.
    """
    text = joined.decode("ascii")
    patterns = [_pattern(part) for part in text.split(_BETWEEN)]
    digits = list(_DIGITS.finditer(text))
    if len(patterns) != 1 + sources or len(digits) != sum(len(numbers) for _, numbers in patterns):
        return None
    return _frame(patterns, sources), _cut([slice(*match.span()) for match in digits])


def _cut(places: Sequence[Any]) -> Callable[[Any], Cells]:
    """A function that takes the pieces at these places out of a text, or of cells."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda whole: tuple([whole[place] for place in places])


def unfolded(entries: Iterable[ShownKey]) -> list[Fold]:
    """One line for each key, in order, escaped as in `fold`."""
    woven = ((entry, tuple([_woven(*pattern) for pattern in _gather(entry.sources)])) for entry in entries)
    return [Fold(escaped(e.key), told, 1, len(e.sources), i) for i, (e, told) in enumerate(woven)]


def escaped(key: str) -> str:
    """A single key in this notation: printable, its own braces and backslashes escaped."""
    return shown(_RESERVED.sub(r"\\\g<0>", key))


@functools.lru_cache(maxsize=4096)
def _printable(literals: tuple[str, ...]) -> tuple[str, ...]:
    """The literals, escaped. Cached, because thousands of keys differ in their numbers alone."""
    return tuple(map(escaped, literals))


def _pattern(key: str) -> _Pattern:
    parts = _NUMBER.split(key, maxsplit=_MOST_NUMBERS)
    return _printable(tuple(parts[::2])), tuple(parts[1::2])


def _woven(literals: Sequence[str], slots: Iterable[str]) -> str:
    """The text of a pattern with these numbers or slots between its literals."""
    return "".join(itertools.chain(*itertools.zip_longest(literals, slots, fillvalue="")))


def _gather(sources: Sequence[str]) -> tuple[_Pattern, ...]:
    """The sources of one key as patterns; sources that differ in indices only share one."""
    if len(sources) == 1:
        return (_pattern(sources[0]),)
    groups: dict[tuple[str, ...], list[Cells]] = {}
    for source in sources:
        literals, numbers = _pattern(source)
        groups.setdefault(literals, []).append(numbers)
    return tuple(
        _filled(literals, box)
        for literals, rows in groups.items()
        for box in sorted(_boxes(rows), key=lambda box: [_order(values[0]) for values in box])
    )


def _filled(literals: Sequence[str], box: Sequence[Cells]) -> _Pattern:
    """The pattern of a box; a column with several numbers becomes literal text."""
    texts, numbers = [literals[0]], []
    for values, literal in zip(box, literals[1:], strict=True):
        if len(values) > 1:
            texts[-1] += f"{{{_span(values)}}}{literal}"
        else:
            numbers.append(values[0])
            texts.append(literal)
    return tuple(texts), tuple(numbers)


def _lines(frame: _Frame, rows: Mapping[Cells, int]) -> Iterator[Fold]:
    """The lines of keys with the same frame. `rows`: the index of each key, by its numbers."""
    width = len(frame.texts[0]) - 1
    waiting = [rows]
    while waiting:
        part = waiting.pop()
        columns = list(zip(*part, strict=True))
        bases, leads, stray = _relate(columns, width)
        if stray is not None:
            parts: dict[str, dict[Cells, int]] = defaultdict(dict)
            for cells, index in part.items():
                parts[cells[stray]][cells] = index
            waiting += parts.values()
            continue
        # Every column is constant, free, or in step with a free one.
        steps = {c: dict(zip(columns[b], columns[c], strict=True)) for c, b in leads.items()}
        of_bases = _cut(bases)
        members = part if len(bases) == len(columns) else {of_bases(cells): i for cells, i in part.items()}
        for box in _boxes(list(members)):
            chosen = dict(zip(bases, box, strict=True))
            values = {c: (column[0],) for c, column in enumerate(columns)} | chosen
            values |= {c: tuple([steps[c][v] for v in chosen[b]]) for c, b in leads.items()}
            yield _line(frame, values, leads, members[tuple([v[0] for v in box])])


def _relate(columns: Sequence[Cells], width: int) -> tuple[list[int], dict[int, int], int | None]:
    """The free columns, the columns in step with a free one, and the first column that is neither.

    The first `width` columns are the key's. Two of these are in step only if they are equal; a column of a
    source must be in step with one of the key's.
    """
    bases: list[int] = []
    leads: dict[int, int] = {}
    for c, column in enumerate(columns):
        if column.count(column[0]) == len(column):
            continue
        lead = next((b for b in bases if columns[b] == column), None)
        if lead is None and c >= width:
            lead = next((b for b in bases if _in_step(columns[b], column)), None)
            if lead is None:
                return bases, leads, c
        if lead is None:
            bases.append(c)
        else:
            leads[c] = lead
    return bases, leads, None


def _in_step(lead: Cells, column: Cells) -> bool:
    """Whether equal numbers in `lead` have equal ones beside them in `column`, and both rise together."""
    pairs = sorted(set(zip(lead, column, strict=True)), key=lambda pair: _order(pair[0]))
    once = len({a for a, _ in pairs}) == len(pairs)
    return once and all(int(a) < int(b) for (_, a), (_, b) in itertools.pairwise(pairs))


def _boxes(rows: Sequence[Cells]) -> list[tuple[Cells, ...]]:
    """Disjoint boxes, with a tuple of ascending numbers for each column, whose union is exactly `rows`."""
    distinct = [tuple(sorted(set(column), key=_order)) for column in zip(*rows, strict=True)]
    if math.prod(map(len, distinct)) == len(rows):
        return [tuple(distinct)]
    choices = ((c, _classes(rows, c)) for c, values in enumerate(distinct) if len(values) > 1)
    best, classes = min(choices, key=lambda choice: len(choice[1]))
    boxes = ((tuple(sorted(values, key=_order)), box) for values, rest in classes for box in _boxes(rest))
    return [(*box[:best], values, *box[best:]) for values, box in boxes]


def _classes(rows: Sequence[Cells], column: int) -> list[tuple[list[str], list[Cells]]]:
    """The numbers of one column, grouped if the rest of their rows is the same, with that rest."""
    others: dict[str, list[Cells]] = {}
    for cells in rows:
        others.setdefault(cells[column], []).append(cells[:column] + cells[column + 1 :])
    classes: dict[frozenset[Cells], tuple[list[str], list[Cells]]] = {}
    for value, rest in others.items():
        classes.setdefault(frozenset(rest), ([], rest))[0].append(value)
    return list(classes.values())


def _line(frame: _Frame, values: Mapping[int, Cells], leads: Mapping[int, int], first: int) -> Fold:
    """One line. `values`: the numbers of each column, ascending, or in the order of the column of the key
    that it is in step with, which `leads` has.
    """
    ends = list(itertools.accumulate((len(text) - 1 for text in frame.texts), initial=0))
    columns = [range(start, stop) for start, stop in itertools.pairwise(ends)]
    varying, *others = ([c for c in some if len(values[c]) > 1] for some in columns)
    free = [c for c in varying if c not in leads]
    steps = [[leads[c] for c in source] for source in others]
    has_sets = frame.gathers > len(others)
    letters: dict[int, str] = {}
    if free and (varying != free or has_sets or any(step not in ([], free) for step in steps)):
        letters = dict(zip(free, _LETTERS, strict=False))  # a key has fewer numbers

    def slot(column: int) -> str:
        lead = leads.get(column)
        letter = letters.get(column if lead is None else lead)
        if len(values[column]) == 1:
            return values[column][0]
        if letter is None:
            return f"{{{_span(values[column])}}}"
        same = lead is not None and values[lead] == values[column]
        return f"{{{letter}}}" if same else f"{{{letter}:{_span(values[column])}}}"

    key, *sources = (_woven(text, map(slot, some)) for text, some in zip(frame.texts, columns, strict=True))
    return Fold(key, tuple(sources), math.prod(len(values[c]) for c in free), frame.gathers, first)


@functools.lru_cache(maxsize=64)
def _span(values: Cells) -> str:
    """`0..3,7`: runs of three and more with two dots, zero-padded like their first number."""
    runs: list[list[str]] = []
    for value in values:
        if runs and value == str(int(runs[-1][0]) + len(runs[-1])).zfill(len(runs[-1][0])):
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs)


def _order(number: str) -> tuple[int, int]:
    return int(number), len(number)


FEW = 3
"""Number of keys that a message names; the others are counted."""


@frozen()
class Notice:
    """A sentence about one leaf, in parts; without a key it is about something else."""

    before: str
    key: str | None = None
    after: str = ""
    other: str | None = None
    """A second key, at the end of the sentence."""
    about: Any = None
    """Further facts for the caller; hashable. Only notices with equal ones share a sentence."""


@frozen()
class MergedNotice:
    """A sentence about all leaves that share it."""

    sentence: str
    first: Notice
    """The notice about the first of the leaves."""
    count: int
    """Number of leaves."""


def merged(notices: Iterable[Notice]) -> Iterator[MergedNotice]:
    """The sentences, each once, in the order of their first leaves."""
    listed = list(notices)
    for line in fold([_as_key(notice) for notice in listed]):
        first = listed[line.first]
        many = f" ({line.count:,} leaves)" if line.count > 1 else ""
        named = "" if first.key is None else f"`{line.key}`{many}"
        other = "".join(f"`{key}`" for key in line.sources)
        yield MergedNotice(f"{first.before}{named}{first.after}{other}", first, line.count)


def _as_key(notice: Notice) -> ShownKey:
    others = () if notice.other is None else (notice.other,)
    return ShownKey(notice.key or "", others, (notice.before, notice.key is None, notice.after, notice.about))


def sentences(notices: Iterable[Notice]) -> list[str]:
    """The merged sentences as text."""
    return [notice.sentence for notice in merged(notices)]


def few_keys(keys: Iterable[str], most: int = FEW) -> str:
    """The first keys in backticks, those that differ in indices as one, and the number of the others."""
    known = list(dict.fromkeys(keys))
    lines = fold([ShownKey(key) for key in known])
    left = len(known) - sum(line.count for line in lines[:most])
    more = f", and {left:,} more" if left else ""
    return ", ".join(f"`{line.key}`" for line in lines[:most]) + more
