"""Sentences about leaves: those that say the same of leaves whose keys differ in indices only are one."""

from collections.abc import Iterable, Iterator
from typing import Any

from ckpt_surgery.core.folding import ShownKey, fold
from ckpt_surgery.core.frozen import frozen

FEW = 3
"""How many keys a message names before it counts the rest."""


@frozen()
class Notice:
    """What is to be said of one leaf, or without a key of something else."""

    before: str
    key: str | None = None
    after: str = ""
    other: str | None = None
    """A key that the sentence ends with."""
    about: Any = None
    """Hashable. Notices are told together only where this is equal, and the words before and after are."""


@frozen()
class MergedNotice:
    """A sentence about all leaves of which the same is to be said."""

    sentence: str
    first: Notice
    """Of the first of the leaves."""
    count: int
    """Number of leaves."""


def merged(notices: Iterable[Notice]) -> Iterator[MergedNotice]:
    """What there is to say, each thing once, in the order of the first leaf of each."""
    listed = list(notices)
    for line in fold([_entry(notice) for notice in listed]):
        first = listed[line.first]
        many = f" ({line.count:,} leaves)" if line.count > 1 else ""
        named = "" if first.key is None else f"`{line.key}`{many}"
        other = "".join(f"`{key}`" for key in line.sources)
        yield MergedNotice(f"{first.before}{named}{first.after}{other}", first, line.count)


def _entry(notice: Notice) -> ShownKey:
    others = () if notice.other is None else (notice.other,)
    return ShownKey(notice.key or "", others, (notice.before, notice.key is None, notice.after, notice.about))


def sentences(notices: Iterable[Notice]) -> list[str]:
    """The sentences alone."""
    return [one.sentence for one in merged(notices)]


def few_keys(keys: Iterable[str], most: int = FEW) -> str:
    """The first keys in backticks, folded, and how many more there are."""
    known = list(dict.fromkeys(keys))
    lines = fold([ShownKey(key) for key in known])
    left = len(known) - sum(line.count for line in lines[:most])
    more = f", and {left:,} more" if left else ""
    return ", ".join(f"`{line.key}`" for line in lines[:most]) + more
