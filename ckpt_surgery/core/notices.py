"""Sentences about leaves. Leaves whose keys differ in indices only share one sentence."""

from collections.abc import Iterable, Iterator
from typing import Any

from ckpt_surgery.core.folding import ShownKey, fold
from ckpt_surgery.core.frozen import frozen

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
