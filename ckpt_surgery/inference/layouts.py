"""How the elements of one array are moved to make another of the same size, as an expression.

A layout cuts the axes of its input into digits, as a mixed radix system does with numbers, puts these into
another order, and joins neighbours again: a reshape, a transpose and a reshape. Transposes, the axes of
heads, interleaved halves, fused gates and stacks of stacks are all of this kind.
"""

import itertools
import math
from collections.abc import Sequence

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.formations import Value

_WHOLE = "abcfgijmnqrsuvwyz"
"""Names of axes that are not cut."""
_STACKED = "le"
"""Names of axes along which leaves are stacked: layers, experts."""


@frozen()
class Layout:
    """A reshape, a transpose and a reshape."""

    cuts: tuple[Shape, ...]
    """The lengths that each axis of the input is cut into, from slow to fast; `(n,)` where it is whole, `()`
    where its length is 1."""
    order: tuple[int, ...]
    """The digits of the input, counted through all axes, in the order of the result."""
    joins: tuple[int, ...]
    """How many digits each axis of the result consists of: 0 where its length is 1."""

    @property
    def digits(self) -> Shape:
        """The lengths of all digits, in the order of the input."""
        return tuple(itertools.chain.from_iterable(self.cuts))

    @property
    def shape_in(self) -> Shape:
        """Shape of the input."""
        return tuple(math.prod(cut) for cut in self.cuts)

    @property
    def shape_out(self) -> Shape:
        """Shape of the result."""
        return tuple(math.prod(self.digits[d] for d in group) for group in self.groups())

    def groups(self) -> list[tuple[int, ...]]:
        """The digits of each axis of the result."""
        ends = list(itertools.accumulate(self.joins, initial=0))
        return [self.order[a:b] for a, b in itertools.pairwise(ends)]

    def inverse(self) -> "Layout":
        """The layout that undoes this one."""
        digits = self.digits
        cuts = tuple(tuple(digits[d] for d in group) for group in self.groups())
        place = {digit: new for new, digit in enumerate(self.order)}
        return Layout(cuts, tuple(place[d] for d in range(len(digits))), tuple(map(len, self.cuts)))


def expression(layout: Layout, inner: str | Value = "x", stacked: int = 0, array: bool = False) -> Value:
    """The layout of the array that `inner` says, in the shortest words: `x`, `x.T`, `rearrange(…)`.

    `stacked`: how many of the first axes of the input are no axes of `inner` yet. With one, `inner` is the
    list that `stack` makes them of; with several, the list is stacked once and its axis is cut. `array`: the
    list was stacked already, so `inner` is an array with one axis for all of them.
    """
    before = inner if isinstance(inner, Value) else Value(inner)
    found = _expression(layout, before.text, stacked, array and stacked > 0, len(before.numbers))
    return Value(found.text, before.numbers + found.numbers)


def _expression(layout: Layout, inner: str, stacked: int, array: bool, first: int) -> Value:
    """The same; `first` is the number of the first hole that is free."""
    simple = _simple(layout, inner, 0 if array and stacked == 1 else stacked)
    if simple is not None:
        return Value(simple)
    names = _names(layout, stacked)
    left = _side(layout.cuts, names, merge=stacked if stacked > 1 else 0)
    right = _joined(layout.groups(), names)
    lengths = _lengths(layout, names, stacked)
    source = f"stack({inner})" if stacked and not array else inner
    holes = "".join(f", {name}={{{hole}}}" for hole, (name, _) in enumerate(lengths, first))
    return Value(f"rearrange({source}, '{left} -> {right}'{holes})", tuple(length for _, length in lengths))


def _simple(layout: Layout, inner: str, stacked: int) -> str | None:
    """An expression without a pattern; None where there is none."""
    whole = all(len(cut) == 1 for cut in layout.cuts) and all(count == 1 for count in layout.joins)
    if not whole or stacked > 1:
        if stacked == 0 and layout.order == tuple(range(len(layout.order))):
            return inner if layout.shape_in == layout.shape_out else f"reshape({inner}, {layout.shape_out})"
        return None
    rest = [digit for digit in layout.order if digit >= stacked]
    plain = rest == sorted(rest)
    if stacked:
        if not plain:
            return None
        place = layout.order.index(0)
        return f"stack({inner})" if place == 0 else f"stack({inner}, axis={place})"
    if plain:
        return inner
    return f"{inner}.T" if rest == sorted(rest, reverse=True) else None


def _names(layout: Layout, stacked: int) -> list[str]:
    """A name for each digit: `l` for layers, `h` and `d` for an axis that is cut in two."""
    names: list[str] = []
    whole, cut_axes = iter(_WHOLE), itertools.count()
    for axis, cut in enumerate(layout.cuts):
        if axis < stacked and len(cut) <= 1:
            names += [(_STACKED + "tpxo")[axis]] * len(cut)
        elif len(cut) == 1:
            names.append(next(whole))
        else:
            mark = next(cut_axes)
            letters = "hd" if len(cut) == 2 else "hpd" if len(cut) == 3 else "hpkdt"
            names += [letter + (str(mark + 1) if mark else "") for letter in letters[: len(cut)]]
    return names


def _side(cuts: Sequence[Shape], names: Sequence[str], merge: int) -> str:
    """The left side of a pattern; the first `merge` axes are one."""
    found, place = [], 0
    for cut in cuts:
        found.append(names[place : place + len(cut)])
        place += len(cut)
    if merge:
        found = [list(itertools.chain.from_iterable(found[:merge])), *found[merge:]]
    return " ".join(_group(group) for group in found)


def _joined(groups: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    return " ".join(_group([names[digit] for digit in group]) for group in groups)


def _group(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"({' '.join(names)})" if names else "1"


def _lengths(layout: Layout, names: Sequence[str], stacked: int) -> list[tuple[str, int]]:
    """The lengths that a pattern has to be told: of each group on the left, all but the last one."""
    found, place = [], 0
    groups: list[list[int]] = []
    for cut in layout.cuts:
        groups.append(list(range(place, place + len(cut))))
        place += len(cut)
    if stacked > 1:
        groups = [list(itertools.chain.from_iterable(groups[:stacked])), *groups[stacked:]]
    for group in groups:
        found += [(names[digit], layout.digits[digit]) for digit in group[:-1]]
    return found
