"""How leaves go whose layout shapes leave open: as those with the same endings whose layout they do not."""

import itertools
import re
from collections.abc import Iterable

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.fits import Fit
from ckpt_surgery.inference.layouts import Layout
from ckpt_surgery.inference.pairing import Pair


@frozen()
class Choice:
    """A pair with all layouts that its shapes allow."""

    pair: Pair
    fit: Fit
    layouts: tuple[Layout, ...]
    """From the stack of members to the whole."""


@frozen()
class _Way:
    """What layouts of arrays with different numbers of axes have in common."""

    stacks: tuple[int, ...]
    """The axes of the result along which members are stacked; -1 for one that is joined with another."""
    blocks: tuple[int, ...]
    """The other axes of the input in the order of the result. What is cut or joined is one block; -1 stands
    for a block that is not in one piece."""


class Analogies:
    """The ways of the layouts that were the only ones, by the endings of both names."""

    def __init__(self, choices: Iterable[Choice]) -> None:
        self._ways: dict[tuple[object, ...], set[_Way]] = {}
        self._plain: dict[tuple[object, ...], set[bool]] = {}
        """By the endings: whether axes keep their order, of any number of axes."""
        for choice in choices:
            if len(choice.layouts) == 1 and choice.pair.source.numeric:
                way = _way(choice.layouts[0], len(choice.fit.lengths))
                ending = _ending(choice)
                if len(way.blocks) > 1:
                    self._ways.setdefault((*ending, len(way.blocks)), set()).add(way)
                    self._plain.setdefault(ending, set()).add(_is_plain(way))

    def layout(self, choice: Choice) -> Layout | None:
        """The one layout of several that goes as all others with the same endings; None where none does."""
        stacked = len(choice.fit.lengths)
        ways = [(_way(layout, stacked), layout) for layout in choice.layouts]
        agreed = [
            layout for way, layout in ways if self._ways.get((*_ending(choice), len(way.blocks))) == {way}
        ]
        if not agreed and self._plain.get(_ending(choice)) == {True}:
            agreed = [layout for way, layout in ways if way.stacks == () and _is_plain(way)]
        return agreed[0] if len(agreed) == 1 else None


def _is_plain(way: _Way) -> bool:
    """Whether the axes stay in the order that they have, each by itself."""
    return list(way.blocks) == list(range(len(way.blocks)))


def _ending(choice: Choice) -> tuple[object, ...]:
    """How the pair is one of its kind: stacked or not, and the last words of both names."""
    source, target = choice.pair.source.text, choice.pair.target.text
    return choice.fit.how, len(choice.fit.lengths), _last(source), _last(target)


def _last(text: str) -> str:
    return re.split("[/.]", text)[-1]


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
