"""Patterns of keys: text with named places, as a regular expression, and what it matches in a checkpoint."""

import bisect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.keys.grids import Numbers

LONGEST = 1500
"""Characters up to which a regular expression is written: more is unreadable, and 2,000 are refused."""
NUMBER = r"\d+"
REST = ".*"
NUMBER_NAMES = "nmkpqrst"
"""Names of the groups of numbers, in the order of a key."""
_SPECIAL = re.compile(r"([.^$*+?{}\[\]\\|()])")


@frozen()
class NamedGroup:
    """A named place of a pattern."""

    name: str
    inner: str
    """The regular expression of what stands there."""


Piece = str | NamedGroup
"""Text that stands for itself, or a place."""
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
    """What the keys that one rule claims have in common."""

    pieces: tuple[Piece, ...]

    @staticmethod
    def of(*pieces: Piece) -> "KeyPattern":
        """The pattern of these pieces, empty texts left out."""
        return KeyPattern(tuple(piece for piece in pieces if piece != ""))

    def regex(self, named: Collection[str] | None = None) -> str:
        """The regular expression. `named`: the groups that get their names; None for all."""
        return "".join(_written(piece, named) for piece in self.pieces)

    @property
    def groups(self) -> tuple[NamedGroup, ...]:
        """The places, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, NamedGroup))


def _written(piece: Piece, named: Collection[str] | None) -> str:
    if isinstance(piece, str):
        return escaped(piece)
    if named is None or piece.name in named:
        return f"(?P<{piece.name}>{piece.inner})"
    return f"(?:{piece.inner})" if "|" in piece.inner else piece.inner


def numbered(texts: Sequence[Sequence[Piece]], rest: bool) -> KeyPattern:
    """The pattern of keys with numbers between these texts; with `rest`, of all that is below them."""
    pieces = [*texts[0]]
    for slot, text in enumerate(texts[1:]):
        pieces += [NamedGroup(number_name(slot), NUMBER), *text]
    return KeyPattern.of(*pieces, NamedGroup("rest", REST) if rest else "")


def number_name(slot: int) -> str:
    """The name of the group of a template's number."""
    names = NUMBER_NAMES
    return names[slot] if slot < len(names) else f"{names[slot % len(names)]}{slot // len(names)}"


def numbers_by_name(numbers: Numbers) -> Matched:
    """The numbers of a key by the names of their groups."""
    return {number_name(slot): number for slot, number in enumerate(numbers)}


class Universe:
    """All keys of one checkpoint: what a pattern claims is looked up among them."""

    def __init__(self, keys: Iterable[str]):
        self._sorted: Sequence[str] = sorted(set(keys))
        self._all = frozenset(self._sorted)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def below(self, prefix: str) -> Sequence[str]:
        """The keys that begin with this text."""
        if not prefix:
            return self._sorted
        start = bisect.bisect_left(self._sorted, prefix)
        end = bisect.bisect_left(self._sorted, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return self._sorted[start:end]

    def matched(self, pattern: KeyPattern) -> Mapping[str, Matched]:
        """The keys that a pattern matches, with what stands at its places."""
        pieces = pattern.pieces
        if len(pieces) == 1 and isinstance(pieces[0], str):
            return {pieces[0]: {}} if pieces[0] in self._all else {}
        first = pieces[0] if pieces and isinstance(pieces[0], str) else ""
        match = re.compile(pattern.regex()).fullmatch
        found = ((key, match(key)) for key in self.below(first))
        return {key: one.groupdict() for key, one in found if one is not None}
