"""Patterns of keys: text with named places, as a regular expression, and what it matches in a checkpoint."""

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from ckpt_surgery.core.frozen import frozen

LONGEST = 1500
"""Characters up to which a regular expression is written: more is unreadable, and 2,000 are refused."""
NUMBER = r"\d+"
REST = ".*"
NUMBER_NAMES = "nmkpqrst"
"""Names of the groups of numbers, in the order of a key."""
NAMES = ("word", "part", "item", "piece", "element", "member", *(f"word{number}" for number in range(2, 50)))
"""Names of the groups of words; few rules need more than two."""
_NUMBER = re.compile(r"([0-9]+)")
_TOKENS = re.compile(r"[/.]|[^/.]+")
_SPECIAL = re.compile(r"([.^$*+?{}\[\]\\|()])")


@frozen()
class NamedGroup:
    """A named place of a pattern."""

    name: str
    inner: str
    """The regular expression of what stands there."""


BELOW = NamedGroup("rest", REST)
"""The place of all that is below a prefix."""
Matched = dict[str, str]
"""What stands at each place of a pattern, by name."""


def escaped(text: str) -> str:
    """The regular expression of a text; only characters with a meaning get a backslash."""
    return _SPECIAL.sub(r"\\\1", text).replace("\n", r"\n")


def alternation(texts: Iterable[str]) -> str:
    """The regular expression of any one of several texts."""
    return "|".join(map(escaped, texts))


@frozen()
class KeyPattern:
    """What the keys that one rule claims, or makes, have in common."""

    texts: tuple[str, ...]
    """What stands before, between and behind the places: one text more than there are places."""
    groups: tuple[NamedGroup, ...] = field(default=(), hash=False)

    def regex(self, named: Collection[str] | None = None) -> str:
        """The regular expression. `named`: the groups that get their names; None for all."""
        groups = (_written(group, named) for group in self.groups)
        return escaped(self.texts[0]) + "".join(
            group + escaped(text) for group, text in zip(groups, self.texts[1:], strict=True)
        )


def _written(group: NamedGroup, named: Collection[str] | None) -> str:
    if named is None or group.name in named:
        return f"(?P<{group.name}>{group.inner})"
    return f"(?:{group.inner})" if "|" in group.inner else group.inner


@functools.lru_cache(maxsize=4096)
def numbered(texts: tuple[str, ...], groups: tuple[NamedGroup | None, ...] = ()) -> KeyPattern:
    """The pattern of keys with these texts, and with numbers, or these groups, between them."""
    names = map(number_name, itertools.count())
    known = groups or (None,) * (len(texts) - 1)
    return KeyPattern(texts, tuple(group or NamedGroup(next(names), NUMBER) for group in known))


def number_name(place: int) -> str:
    """The name of a number of a pattern, counted from 0."""
    names = NUMBER_NAMES
    return names[place] if place < len(names) else f"{names[place % len(names)]}{place // len(names)}"


# --- texts that differ in one place -----------------------------------------------------------------------


@frozen()
class Span:
    """What several texts have in common around the place where they differ."""

    before: str
    words: tuple[str, ...]
    """What stands at this place, text by text."""
    after: str


def tokens(text: str) -> list[str]:
    """The components of a text, and the separators `/` and `.` between them."""
    return _TOKENS.findall(text)


def span_of(texts: Sequence[str]) -> Span:
    """Where these texts differ: whole components."""
    split = [tokens(text) for text in texts]
    before = _common(split)
    shortest = min(map(len, split))
    after = _common([one[::-1] for one in split])
    after = min(after, shortest - before)
    words = tuple("".join(one[before : len(one) - after]) for one in split)
    return Span("".join(split[0][:before]), words, "".join(split[0][len(split[0]) - after :]))


def _common(several: Sequence[Sequence[str]]) -> int:
    """How many tokens all of these begin with."""
    count = 0
    for column in zip(*several, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


# --- keys -------------------------------------------------------------------------------------------------


@frozen()
class KeyPlace:
    """A key, or all keys below a prefix, as a pattern and what stands at its places."""

    pattern: KeyPattern
    values: tuple[str, ...] = ()
    """Nothing for all that is below a prefix."""

    @property
    def text(self) -> str:
        """The key, or what the keys begin with."""
        texts = self.pattern.texts
        return texts[0] + "".join(a + b for a, b in zip(self.values, texts[1:], strict=True))

    @property
    def matched(self) -> Matched:
        """What stands at the places, by name; what is below a prefix is left out."""
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


def in_common(places: Iterable[KeyPlace], word: str = "") -> Callable[[KeyPlace], KeyPlace] | None:
    """How one pattern sees each of these places; None if their patterns differ in more than one text.

    Where they differ in one, there is a place for words, named `word`. What stands everywhere is no place.
    """
    known = list(places)
    patterns = list(dict.fromkeys(place.pattern for place in known))
    if not patterns:
        return lambda place: place
    texts, groups = patterns[0].texts, patterns[0].groups
    at = 0
    words: dict[KeyPattern, tuple[str, ...]] = dict.fromkeys(patterns, ())
    if len(patterns) > 1:
        differing = differing_texts(patterns)
        if len({pattern.groups for pattern in patterns}) > 1 or len(differing) != 1:
            return None
        (at,) = differing
        span = _whole_components([pattern.texts[at] for pattern in patterns])
        inner = alternation(dict.fromkeys(span.words)) if span else ""
        if span is None or len(inner) > LONGEST:
            return None
        taken = {group.name for group in groups}
        group = NamedGroup(word or next(name for name in NAMES if name not in taken), inner)
        texts, groups = (
            (*texts[:at], span.before, span.after, *texts[at + 1 :]),
            (*groups[:at], group, *groups[at:]),
        )
        words = {pattern: (one,) for pattern, one in zip(patterns, span.words, strict=True)}

    def values(place: KeyPlace) -> tuple[str, ...]:
        return (*place.values[:at], *words[place.pattern], *place.values[at:])

    columns = zip(*map(values, known), strict=True)
    kept = [group == BELOW or len(set(column)) > 1 for group, column in zip(groups, columns, strict=True)]
    pattern = _without_constants(texts, groups, values(known[0]), kept)
    return lambda place: KeyPlace(pattern, tuple(itertools.compress(values(place), kept)))


def _without_constants(
    texts: Sequence[str], groups: Sequence[NamedGroup], values: Sequence[str], kept: Sequence[bool]
) -> KeyPattern:
    """A pattern with these groups, and with what stands at the others as text; numbers are named anew."""
    if all(kept):
        return KeyPattern(tuple(texts), tuple(groups))
    found = [texts[0]]
    for keeps, value, text in zip(kept, values, texts[1:], strict=True):
        if keeps:
            found.append(text)
        else:
            found[-1] += value + text
    named = [None if group.inner == NUMBER else group for group in itertools.compress(groups, kept)]
    return numbered(tuple(found), tuple(named))


def _whole_components(texts: Sequence[str]) -> Span | None:
    """Where texts differ, each word without a separator at its ends; None where that is all of them."""
    span = span_of(texts)
    while not all(word.strip("/.") == word != "" for word in span.words):
        first, *after = tokens(span.after) or [""]
        *before, last = tokens(span.before) or [""]
        if first:
            span = Span(span.before, tuple(word + first for word in span.words), "".join(after))
        else:
            span = Span("".join(before), tuple(last + word for word in span.words), "")
        if not span.before and not span.after:
            return None
    return span


def differing_texts(patterns: Sequence[KeyPattern]) -> list[int]:
    """Which texts of these patterns, all with as many, are not the same."""
    columns = zip(*(pattern.texts for pattern in patterns), strict=False)
    return [at for at, texts in enumerate(columns) if len({*texts}) > 1]


# --- what patterns match ----------------------------------------------------------------------------------


class Universe:
    """All keys of one checkpoint: what a pattern claims is looked up among them."""

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
        """The keys that a pattern matches, with what stands at its places."""
        first = pattern.texts[0]
        if not pattern.groups:
            return {first: {}} if first in self._all else {}
        match = re.compile(pattern.regex()).fullmatch
        found = ((key, match(key)) for key in self.below(first))
        return {key: one.groupdict() for key, one in found if one is not None}
