"""Patterns of keys: text with named places, written as regular expressions, and the keys they match."""

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from ckpt_surgery.core.frozen import frozen

LONGEST = 1500
"""Maximum length of a regular expression: more is unreadable, and recipes refuse 2,000 characters."""
NUMBER = r"\d+"
_NUMBER_NAMES, _WORD_NAMES = "nmkpqrst", ("word", "part", "item", *(f"word{n}" for n in range(2, 99)))
"""Names of the groups of numbers and of words, in the order of a key; further ones have a number."""
_NUMBER = re.compile(r"([0-9]+)")
_TOKENS = re.compile(r"[/.]|[^/.]+")
_SPECIAL = re.compile(r"([.^$*+?{}\[\]\\|()])")


@frozen()
class NamedGroup:
    """A named place of a pattern."""

    name: str
    inner: str
    """Regular expression of the text there."""


BELOW = NamedGroup("rest", ".*")
"""The place of everything below a prefix."""
Matched = dict[str, str]
"""The text at each place of a pattern, by name."""


def escaped(text: str) -> str:
    """Escape a text for a regular expression; only special characters get a backslash."""
    return _SPECIAL.sub(r"\\\1", text).replace("\n", r"\n")


def alternation(texts: Iterable[str]) -> str:
    """The regular expression that matches any of these texts."""
    return "|".join(map(escaped, texts))


@frozen()
class KeyPattern:
    """Pattern of the keys that one rule claims or makes: constant texts with named places between them."""

    texts: tuple[str, ...]
    """Texts before, between and behind the places: one more than there are places."""
    groups: tuple[NamedGroup, ...] = field(default=(), hash=False)

    def regex(self, named: Collection[str] | None = None) -> str:
        """The regular expression. `named`: the groups that get their names; None for all."""
        written = escaped(self.texts[0])
        for group, text in zip(self.groups, self.texts[1:], strict=True):
            if named is None or group.name in named:
                written += f"(?P<{group.name}>{group.inner})"
            else:
                written += f"(?:{group.inner})" if "|" in group.inner else group.inner
            written += escaped(text)
        return written


@functools.lru_cache(maxsize=4096)
def numbered(texts: tuple[str, ...], groups: tuple[NamedGroup | None, ...] = ()) -> KeyPattern:
    """The pattern of keys with these texts, and with numbers, or these groups, between them."""
    names = itertools.chain(_NUMBER_NAMES, (f"n{count}" for count in itertools.count(2)))
    known = groups or (None,) * (len(texts) - 1)
    return KeyPattern(texts, tuple(group or NamedGroup(next(names), NUMBER) for group in known))


# --- texts that differ in one place -----------------------------------------------------------------------


def tokens(text: str) -> list[str]:
    """The components of a text, and the separators `/` and `.` between them."""
    return _TOKENS.findall(text)


def split_around(texts: Iterable[str]) -> tuple[str, tuple[str, ...], str] | None:
    """Split texts into a common beginning, the whole components in which they differ, and a common end.

    None if nothing would be left between a beginning and an end of whole components.
    """
    split = list(map(tokens, texts))
    start = _common(split)
    end = _common([parts[start:][::-1] for parts in split])
    while True:
        words = tuple("".join(parts[start : len(parts) - end]) for parts in split)
        if all(word and word.strip("/.") == word for word in words):
            return "".join(split[0][:start]), words, "".join(split[0][len(split[0]) - end :])
        if start + end < 2:
            return None
        start, end = (start, end - 1) if end else (start - 1, end)


def _common(several: Sequence[Sequence[str]]) -> int:
    """Number of tokens that all of these begin with."""
    alike = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*several, strict=False))
    return sum(1 for _ in alike)


# --- keys -------------------------------------------------------------------------------------------------


@frozen()
class KeyPlace:
    """A key, or all keys below a prefix, as a pattern and the texts at its places."""

    pattern: KeyPattern
    values: tuple[str, ...] = ()
    """Empty at the place of everything below a prefix."""

    @property
    def text(self) -> str:
        """The key, or the prefix of the keys."""
        texts = self.pattern.texts
        return texts[0] + "".join(a + b for a, b in zip(self.values, texts[1:], strict=True))

    @property
    def matched(self) -> Matched:
        """The text at each place, by name, without the place below a prefix."""
        named = zip(self.pattern.groups, self.values, strict=True)
        return {group.name: value for group, value in named if group != BELOW}


def place_of(key: str) -> KeyPlace:
    """A key, with a place for each number."""
    texts = _NUMBER.split(key)
    return KeyPlace(numbered(tuple(texts[::2])), tuple(texts[1::2]))


def prefix_of(prefix: str, suffix: str = "") -> KeyPlace:
    """All keys that begin and end with these texts."""
    texts = _NUMBER.split(prefix)
    pattern = numbered((*texts[::2], suffix), (*(None,) * (len(texts) // 2), BELOW))
    return KeyPlace(pattern, (*texts[1::2], ""))


def in_common(places: Iterable[KeyPlace]) -> Callable[[KeyPlace], KeyPlace] | None:
    """Function that expresses each of these places in one pattern; None if more than one text differs.

    If one text differs, a place for words replaces it. Constant places become text.
    """
    known = list(places)
    patterns = list(dict.fromkeys(place.pattern for place in known))
    if not patterns:
        return lambda place: place
    texts, groups = patterns[0].texts, patterns[0].groups
    at = 0
    words: dict[KeyPattern, tuple[str, ...]] = dict.fromkeys(patterns, ())
    if len(patterns) > 1:
        columns = zip(*(pattern.texts for pattern in patterns), strict=False)
        differing = [number for number, column in enumerate(columns) if len({*column}) > 1]
        if len({pattern.groups for pattern in patterns}) > 1 or len(differing) != 1:
            return None
        (at,) = differing
        split = split_around(pattern.texts[at] for pattern in patterns)
        if split is None:
            return None
        before, differing_words, after = split
        inner = alternation(dict.fromkeys(differing_words))
        if len(inner) > LONGEST:
            return None
        taken = {group.name for group in groups}
        group = NamedGroup(next(name for name in _WORD_NAMES if name not in taken), inner)
        texts = (*texts[:at], before, after, *texts[at + 1 :])
        groups = (*groups[:at], group, *groups[at:])
        words = {pattern: (word,) for pattern, word in zip(patterns, differing_words, strict=True)}

    def values(place: KeyPlace) -> tuple[str, ...]:
        return (*place.values[:at], *words[place.pattern], *place.values[at:])

    merged, kept = [texts[0]], []
    columns = zip(*map(values, known), strict=True)
    for group, column, text in zip(groups, columns, texts[1:], strict=True):
        kept.append(group == BELOW or len(set(column)) > 1)
        if kept[-1]:
            merged.append(text)
        else:
            merged[-1] += column[0] + text
    named = [None if group.inner == NUMBER else group for group in itertools.compress(groups, kept)]
    pattern = numbered(tuple(merged), tuple(named))
    return lambda place: KeyPlace(pattern, tuple(itertools.compress(values(place), kept)))


# --- what patterns match ----------------------------------------------------------------------------------


class Universe:
    """All keys of one checkpoint, among which patterns are matched."""

    def __init__(self, keys: Iterable[str]):
        self._sorted: Sequence[str] = sorted(set(keys))
        self._all = frozenset(self._sorted)

    def below(self, prefix: str) -> Sequence[str]:
        """The keys that begin with this text."""
        if not prefix:
            return self._sorted
        start = bisect.bisect_left(self._sorted, prefix)
        end = bisect.bisect_left(self._sorted, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return self._sorted[start:end]

    def matched(self, pattern: KeyPattern) -> Mapping[str, Matched]:
        """The keys that a pattern matches, with the texts at its places."""
        first = pattern.texts[0]
        if not pattern.groups:
            return {first: {}} if first in self._all else {}
        fullmatch = re.compile(pattern.regex()).fullmatch
        matches = ((key, fullmatch(key)) for key in self.below(first))
        return {key: match.groupdict() for key, match in matches if match is not None}
