"""How leaves go whose layout shapes leave open: as those with the same endings whose layout they do not."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.names.matches import Match


@frozen()
class _Way:
    """What layouts of arrays with different numbers of axes have in common."""

    stacks: tuple[int, ...]
    """The axes of the result along which members are stacked; -1 for one that is joined with another."""
    blocks: tuple[int, ...]
    """The other axes of the input in the order of the result. What is cut or joined is one block; -1 stands
    for a block that is not in one piece."""


class Analogies:
    """How the leaves lie whose shapes allow one layout: as they do, so do those with similar names."""

    def __init__(self, known: Iterable[tuple[Match, Layout]]) -> None:
        self._known: dict[tuple[object, ...], list[tuple[_Names, _Way]]] = {}
        self._turned = False
        """Whether any array lies in another order of axes."""
        for match, layout in known:
            if match.source.numeric:
                way = _way(layout, len(match.lengths))
                if len(way.blocks) > 1:
                    self._turned |= not _is_plain(way)
                    for kind in (_kind(match, way), ()):
                        self._known.setdefault(kind, []).append((_names(match), way))

    def layout(self, match: Match) -> Layout | None:
        """The one layout of several that goes as those do which share the most last words of both names.

        None where these do not agree. Where nothing shares a word, a leaf keeps its layout if both names end
        alike and no array is turned.
        """
        stacked = len(match.lengths)
        ways = [(_way(layout, stacked), layout) for layout in match.layouts]
        nearest = self._nearest(_kind(match, ways[0][0]), _names(match))
        if nearest:
            return _only(layout for way, layout in ways if nearest == {way})
        unstacked = [(way, layout) for way, layout in ways if way.stacks == ()]
        if {_is_plain(way) for way in self._nearest((), _names(match))} == {True}:
            return _only(layout for way, layout in unstacked if _is_plain(way))
        source, target = _names(match)
        if source[:1] == target[:1] and not self._turned and _same_shape(match):
            return _only(layout for way, layout in unstacked if _is_plain(way))
        return None

    def _nearest(self, kind: tuple[object, ...], names: "_Names") -> set[_Way]:
        """The ways of those of a kind that share the most last words of both names, at least one."""
        shared = [(min(map(shared_words, names, others)), way) for others, way in self._known.get(kind, [])]
        most = max((count for count, _ in shared), default=0)
        return {way for count, way in shared if count == most} if most else set()


_Names = tuple[Sequence[str], Sequence[str]]
"""The words of the source's and the target's name, the last ones first."""


def _names(match: Match) -> _Names:
    return last_words(match.source.text), last_words(match.target.text)


def last_words(text: str) -> list[str]:
    """The words of a name, the last ones first."""
    return re.findall(r"[a-z]+|[0-9]+", text.lower())[::-1]


def shared_words(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of words at the beginning that are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _kind(match: Match, way: _Way) -> tuple[object, ...]:
    return match.how, len(match.lengths), len(way.blocks)


def _same_shape(match: Match) -> bool:
    return match.source.shape == match.target.shape and match.how == "same"


def _only(layouts: Iterable[Layout]) -> Layout | None:
    found = list(layouts)
    return found[0] if len(found) == 1 else None


def _is_plain(way: _Way) -> bool:
    """Whether the axes stay in the order that they have, each by itself."""
    return list(way.blocks) == list(range(len(way.blocks)))


def _way(layout: Layout, stacked: int) -> _Way:
    axis_of = [axis for axis, cut in enumerate(layout.cuts) for _ in cut]
    stacks = []
    for axis in range(stacked):
        stacks.append(
            next(
                (at for at, group in enumerate(layout.groups()) if [axis_of[d] for d in group] == [axis]), -1
            )
        )
    joined = [[axis_of[d] for d in group if axis_of[d] >= stacked] for group in layout.groups()]
    block = _blocks(joined)
    order = [block[axis] for axis in itertools.chain.from_iterable(joined)]
    pieces = [which for which, _ in itertools.groupby(order)]
    return _Way(tuple(stacks), tuple(pieces) if len(set(pieces)) == len(pieces) else (-1,))


def _blocks(joined: Iterable[Iterable[int]]) -> dict[int, int]:
    """The number of each axis's block, counted in the order of the input."""
    first: dict[int, int] = {}
    for group in joined:
        axes = list(group)
        for axis in axes:
            first[axis] = min([axis, *axes])
    numbers = {start: at for at, start in enumerate(sorted(set(first.values())))}
    return {axis: numbers[start] for axis, start in first.items()}
