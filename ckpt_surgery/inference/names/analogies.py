"""Layouts by analogy: where shapes allow several, take that of the leaves whose names end alike."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.names.matches import Match

T = TypeVar("T")
Names = tuple[Sequence[str], Sequence[str]]
"""The words of the source's and the target's name, the last ones first."""


class Analogies:
    """Layouts of leaves whose shapes allow only one, to be followed by leaves with similar names."""

    def __init__(self, known: Iterable[tuple[Match, Layout]]) -> None:
        self._known: dict[tuple[object, ...], list[tuple[Names, tuple[int, ...]]]] = {}
        for match, layout in known:
            if match.source.numeric and _kind(match)[-1] > 1:
                self._known.setdefault(_kind(match), []).append((_names(match), _order(match, layout)))

    def layout(self, match: Match) -> Layout | None:
        """Choose the layout of the known leaves that share the most last words of both names.

        None where these do not agree. Where nothing shares a word, a leaf keeps its layout if both names end
        alike and no array is turned.
        """
        names = _names(match)
        alike = nearest(names, self._known.get(_kind(match), ()))
        if not alike and match.source.shape == match.target.shape and names[0][:1] == names[1][:1]:
            alike = {(0,), *(order for several in self._known.values() for _, order in several)}
        layouts = [layout for layout in match.layouts if {_order(match, layout)} == alike]
        return layouts[0] if len(layouts) == 1 else None


def _kind(match: Match) -> tuple[str, int, int]:
    """Kind of match, number of stacked axes, and number of the others, the fewer of both sides."""
    stacked = len(match.lengths)
    part, whole = (sum(n > 1 for n in grid.shape) for grid in (match.source, match.target))
    return match.how, stacked, min(part, whole)


def _order(match: Match, layout: Layout) -> tuple[int, ...]:
    """The axes of the input in the order of the result.

    Axes that stay one behind the other count as one, as if no axis were cut or joined.
    """
    axis_of = [axis for axis, cut in enumerate(filter(None, layout.before)) for _ in cut]
    order = [axis_of[digit] for digit in layout.order]
    starts = [
        axis
        for before, axis in itertools.pairwise([-2, *order])
        if axis != before and (axis <= len(match.lengths) or axis != before + 1)
    ]
    return tuple(sorted(set(starts)).index(axis) for axis in starts)


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
