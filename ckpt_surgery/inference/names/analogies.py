"""Layouts by analogy: where shapes allow several, take that of the leaves whose names end alike."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.names.matches import Match

T = TypeVar("T")


@frozen()
class _Way:
    """Order of axes in a layout, which arrays with different numbers of axes can share."""

    stacks: tuple[int, ...]
    """The axes of the result along which members are stacked; -1 for one that is joined with another."""
    blocks: tuple[int, ...]
    """The other axes of the input in the order of the result. What is cut or joined is one block; -1 stands
    for a block that is not in one piece."""


class Analogies:
    """Layouts of leaves whose shapes allow only one, to be followed by leaves with similar names."""

    def __init__(self, known: Iterable[tuple[Match, Layout]]) -> None:
        self._known: dict[tuple[object, ...], list[tuple[Names, _Way]]] = {}
        self._turned = False
        """True if any array changes the order of its axes."""
        for match, layout in known:
            way = _way(layout, len(match.lengths))
            if match.source.numeric and len(way.blocks) > 1:
                self._turned |= not _is_plain(way)
                for kind in (_kind(match, way), ()):
                    self._known.setdefault(kind, []).append((_names(match), way))

    def layout(self, match: Match) -> Layout | None:
        """Choose the layout of the known leaves that share the most last words of both names.

        None where these do not agree. Where nothing shares a word, a leaf keeps its layout if both names end
        alike and no array is turned.
        """
        names = _names(match)
        ways = [(_way(layout, len(match.lengths)), layout) for layout in match.layouts]
        alike = nearest(names, self._known.get(_kind(match, ways[0][0]), ()))
        if alike:
            return _only(layout for way, layout in ways if alike == {way})
        same = match.how == "same" and match.source.shape == match.target.shape
        kept = names[0][:1] == names[1][:1] and not self._turned and same
        if kept or {_is_plain(way) for way in nearest(names, self._known.get((), ()))} == {True}:
            return _only(layout for way, layout in ways if way.stacks == () and _is_plain(way))
        return None


Names = tuple[Sequence[str], Sequence[str]]
"""The words of the source's and the target's name, the last ones first."""


def _names(match: Match) -> Names:
    return last_words(match.source.text), last_words(match.target.text)


def last_words(text: str) -> list[str]:
    """The words of a name, the last ones first; without the `:0` of TensorFlow's variables."""
    return re.findall(r"[a-z]+|[0-9]+", text.lower().removesuffix(":0"))[::-1]


def nearest(names: Names, known: Iterable[tuple[Names, T]]) -> set[T]:
    """Values known for the names that share the most last words with both names, at least one."""
    shared = [(min(map(_shared_words, names, others)), what) for others, what in known]
    most = max((count for count, _ in shared), default=0)
    return {what for count, what in shared if count == most} if most else set()


def _shared_words(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of words at the beginning that are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _kind(match: Match, way: _Way) -> tuple[object, ...]:
    return match.how, len(match.lengths), len(way.blocks)


def _only(layouts: Iterable[Layout]) -> Layout | None:
    choices = list(layouts)
    return choices[0] if len(choices) == 1 else None


def _is_plain(way: _Way) -> bool:
    """True if the axes keep their order, each by itself."""
    return list(way.blocks) == list(range(len(way.blocks)))


def _way(layout: Layout, stacked: int) -> _Way:
    axis_of = [axis for axis, cut in enumerate(layout.before) for _ in cut]
    groups = [[axis_of[digit] for digit in group] for group in layout.after]
    stacks = tuple(groups.index([axis]) if [axis] in groups else -1 for axis in range(stacked))
    joined = [[axis for axis in group if axis >= stacked] for group in groups]
    block = _blocks(joined)
    order = [block[axis] for axis in itertools.chain.from_iterable(joined)]
    pieces = tuple(which for which, _ in itertools.groupby(order))
    return _Way(stacks, pieces if len(set(pieces)) == len(pieces) else (-1,))


def _blocks(joined: Iterable[Iterable[int]]) -> dict[int, int]:
    """The number of each axis's block, counted in the order of the input."""
    first: dict[int, int] = {}
    for group in joined:
        axes = list(group)
        for axis in axes:
            first[axis] = min([axis, *axes])
    numbers = {start: at for at, start in enumerate(sorted(set(first.values())))}
    return {axis: numbers[start] for axis, start in first.items()}
