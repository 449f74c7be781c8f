"""One member of what a layout makes: an expression for `layout(x)[i]` in the shortest words."""

import itertools
from collections.abc import Sequence

from ckpt_surgery.inference.formations import Value
from ckpt_surgery.inference.layouts import Layout, expression
from ckpt_surgery.inference.stacks import Stack
from ckpt_surgery.inference.values import XS, X, around


def array_of(group: Stack) -> Value:
    """What the layout of a group is applied to: a leaf, or the list of its members."""
    return XS if group.lengths else X


def member(layout: Layout, inner: Value, stacked: int, place: Sequence[int], array: bool = False) -> Value:
    """The element `place` of the first axes of what a layout makes.

    `inner`, `stacked` and `array` are what `expression` takes.
    """
    place = tuple(map(int, place))
    if not place:
        return expression(layout, inner, stacked, array)
    axes = _whole_axes(layout, len(place), stacked)
    if axes is None:
        return around(expression(layout, inner, stacked, array), "", _index(place), *place)
    chosen = dict(zip(axes, place, strict=True))
    merged = 1 if stacked else 0
    entries = [":"] * merged
    numbers: list[int] = []
    for axis in range(stacked, len(layout.cuts)):
        if axis in chosen:
            entries.append(f"{{{len(numbers)}}}")
            numbers.append(chosen[axis])
        else:
            entries.append(":")
    while entries[-1] == ":":
        entries.pop()
    if stacked and not array:
        inner, array = around(inner, "stack(", ")"), True
    taken = around(inner, "", f"[{', '.join(entries)}]", *numbers)
    return expression(_without(layout, axes), taken, stacked, array)


def _index(place: Sequence[int]) -> str:
    return "[" + ", ".join(f"{{{n}}}" for n in range(len(place))) + "]"


def _whole_axes(layout: Layout, count: int, stacked: int) -> list[int] | None:
    """The axes of the input that the first axes of the result are; None where one of them is not a whole
    axis, or is one along which leaves are stacked."""
    owner = list(itertools.chain.from_iterable([axis] * len(cut) for axis, cut in enumerate(layout.cuts)))
    axes = []
    for group in layout.groups()[:count]:
        if len(group) != 1 or len(layout.cuts[owner[group[0]]]) != 1 or owner[group[0]] < stacked:
            return None
        axes.append(owner[group[0]])
    return axes


def _without(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout of the other axes, where these have been taken out of the input and of the result."""
    gone: set[int] = set()
    place = 0
    for axis, cut in enumerate(layout.cuts):
        if axis in axes:
            gone.update(range(place, place + len(cut)))
        place += len(cut)
    kept = [digit for digit in range(place) if digit not in gone]
    number = {digit: new for new, digit in enumerate(kept)}
    cuts = tuple(cut for axis, cut in enumerate(layout.cuts) if axis not in axes)
    order = tuple(number[digit] for digit in layout.order if digit not in gone)
    return Layout(cuts, order, layout.joins[len(axes) :])
