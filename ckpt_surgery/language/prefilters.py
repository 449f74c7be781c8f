"""Facts about a regular expression that save matches: what every match contains, and how long one can take.

Both come from the tree that Python's own parser makes of the pattern. For a part of the tree that is unknown
here nothing is assumed, and the pattern is matched under a time limit.
"""

import functools
import itertools
import math
import re
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import regex

MOST_TEXTS = 16
"""Limit on the alternatives of a text that are kept apart."""
MOST_STEPS = 10**6
"""A match of fewer steps takes only milliseconds, and needs no time limit."""

Texts = tuple[str, ...]
"""Alternatives, of which at least one applies."""
ANYTHING: Texts = ("",)
"""Nothing is known."""


@dataclass(frozen=True)
class Literals:
    """Texts that every match contains, for cheap tests before matching."""

    prefixes: Texts = ANYTHING
    """Every match begins with one of these."""
    inner: Texts = ANYTHING
    """Every match contains one of these, apart from its beginning and end."""
    suffixes: Texts = ANYTHING
    """Every match ends with one of these."""

    @property
    def best(self) -> Texts:
        """The most selective of the three: what the fewest keys are likely to contain."""
        return max((self.prefixes, self.inner, self.suffixes), key=_worth)

    def fit(self, text: str) -> bool:
        """Whether the text can match."""
        ends_fit = text.startswith(self.prefixes) and text.endswith(self.suffixes)
        return ends_fit and any(part in text for part in self.inner)


@functools.lru_cache(maxsize=1024)
def literals(pattern: regex.Pattern[str]) -> Literals:
    """The texts that every match of a pattern contains."""
    if pattern.flags & regex.IGNORECASE:
        return Literals()
    return _of_sequence(syntax_tree(pattern)).literals


@functools.lru_cache(maxsize=1024)
def quick_length(pattern: regex.Pattern[str]) -> int:
    """The length up to which a match takes less than MOST_STEPS steps; 0 if that is unknown.

    k repeats that are not nested end at k of n positions, in at most n^k / k! ways. Every alternative and
    every optional part at most doubles these. Alternatives are counted in the pattern's text, because the
    parser makes a character class of `a|a`.
    """
    alternatives = pattern.pattern.count("|")
    if alternatives and (pattern.flags & regex.VERBOSE or _REPEATED_GROUP.search(pattern.pattern)):
        return 0
    try:
        repeats, absent = _choices(syntax_tree(pattern))
    except _Unbounded:
        return 0
    ways = MOST_STEPS * math.factorial(repeats) >> alternatives + absent
    return int(ways ** (1 / max(1, repeats)))


def syntax_tree(pattern: regex.Pattern[str]) -> Sequence[Any]:
    tree: Sequence[Any] = parser.parse(pattern.pattern)
    return tree


# --- texts ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """Facts about the texts that a part of a pattern matches."""

    literals: Literals
    exact: Texts | None = None
    """All texts that the part matches, if they are few."""


_UNKNOWN = _Known(Literals())


def _exactly(texts: Iterable[str]) -> _Known:
    """The facts about a part that matches exactly these texts. If they are many, nothing is kept."""
    found = tuple(dict.fromkeys(texts))
    return _Known(Literals(found, ANYTHING, found), found) if 0 < len(found) <= MOST_TEXTS else _UNKNOWN


def _of_sequence(items: Iterable[Any]) -> _Known:
    return functools.reduce(_followed, map(_of_item, items), _exactly(ANYTHING))


def _followed(left: _Known, right: _Known) -> _Known:
    """The facts about one part followed by another."""
    if left.exact and right.exact and len(left.exact) * len(right.exact) <= MOST_TEXTS:
        return _exactly(_joined(left.exact, right.exact))
    first, last = left.literals, right.literals
    prefixes = _joined(left.exact, last.prefixes) if left.exact else first.prefixes
    suffixes = _joined(first.suffixes, right.exact) if right.exact else last.suffixes
    # If one side is known exactly, the text where both meet is already in the prefixes or suffixes.
    meeting = ANYTHING if left.exact or right.exact else _joined(first.suffixes, last.prefixes)
    return _Known(
        Literals(
            prefixes if len(prefixes) <= MOST_TEXTS else first.prefixes,
            max((first.inner, last.inner, meeting), key=_worth),
            suffixes if len(suffixes) <= MOST_TEXTS else last.suffixes,
        )
    )


def _joined(left: Texts, right: Texts) -> Texts:
    return tuple(dict.fromkeys(a + b for a, b in itertools.product(left, right)))


def _worth(texts: Texts) -> tuple[bool, int, int]:
    """A rank by selectivity: the longer the shortest alternative, the fewer keys contain it by chance."""
    return len(texts) <= MOST_TEXTS, min(map(len, texts)), -len(texts)


def _of_item(item: Any) -> _Known:
    kind, value = item
    known = _KNOWN.get(kind)
    return _UNKNOWN if known is None else known(value)


def _of_class(items: Sequence[Any]) -> _Known:
    """The facts about a character class such as `[qkv]`."""
    if any(kind is not kinds.LITERAL for kind, _ in items):
        return _UNKNOWN
    return _exactly(chr(code) for _, code in items)


def _of_group(value: tuple[Any, ...]) -> _Known:
    *_, added, _, inside = value
    return _UNKNOWN if added & regex.IGNORECASE else _of_sequence(inside)


def _of_branches(value: tuple[Any, Sequence[Any]]) -> _Known:
    branches = [_of_sequence(branch) for branch in value[1]]
    exact = [branch.exact for branch in branches]
    if None not in exact:
        return _exactly(text for texts in exact if texts for text in texts)
    found = [branch.literals for branch in branches]
    return _Known(
        Literals(
            _either(one.prefixes for one in found),
            _either(one.best for one in found),
            _either(one.suffixes for one in found),
        )
    )


def _either(several: Iterable[Texts]) -> Texts:
    found = tuple(dict.fromkeys(text for texts in several for text in texts))
    return found if len(found) <= MOST_TEXTS and "" not in found else ANYTHING


def _of_repeat(value: tuple[int, int, Sequence[Any]]) -> _Known:
    least, most, inside = value
    once = _of_sequence(inside)
    if (least, most) == (0, 1) and once.exact:
        return _exactly(("", *once.exact))
    if least == most == 1:
        return once
    return _Known(once.literals) if least else _UNKNOWN


_KNOWN: dict[Any, Callable[[Any], _Known]] = {
    kinds.LITERAL: lambda code: _exactly(chr(code)),
    kinds.IN: _of_class,
    kinds.SUBPATTERN: _of_group,
    kinds.ATOMIC_GROUP: _of_sequence,
    kinds.BRANCH: _of_branches,
    kinds.MAX_REPEAT: _of_repeat,
    kinds.MIN_REPEAT: _of_repeat,
    kinds.POSSESSIVE_REPEAT: _of_repeat,
    # These test a position and consume no text.
    kinds.AT: lambda _: _exactly(ANYTHING),
    kinds.ASSERT: lambda _: _exactly(ANYTHING),
    kinds.ASSERT_NOT: lambda _: _exactly(ANYTHING),
}


# --- steps ------------------------------------------------------------------------------------------


class _Unbounded(Exception):
    """Counting repeats gives no bound on the number of steps."""


_REPEATED_GROUP = re.compile(r"\)[*+{]")
_CHARACTERS = {kinds.LITERAL, kinds.NOT_LITERAL, kinds.IN, kinds.ANY, kinds.AT}
_REPEATS = {kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT}


def _choices(items: Iterable[Any]) -> tuple[int, int]:
    """The number of repeats, and of optional parts."""
    found = [_choices_of(kind, value) for kind, value in items if kind not in _CHARACTERS]
    return sum(repeats for repeats, _ in found), sum(absent for _, absent in found)


def _choices_of(kind: Any, value: Any) -> tuple[int, int]:
    if kind is kinds.SUBPATTERN:
        return _choices(value[-1])
    if kind is kinds.ATOMIC_GROUP:
        return _choices(value)
    if kind is kinds.BRANCH:
        branches = [_choices(branch) for branch in value[1]]
        return max(repeats for repeats, _ in branches), max(absent for _, absent in branches)
    if kind not in _REPEATS:
        raise _Unbounded
    least, most, inside = value
    repeats, absent = _choices(inside)
    if most == 1:
        return repeats, absent + 1 - least
    if repeats or absent:
        raise _Unbounded
    return int(least < most), 0
