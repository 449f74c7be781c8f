"""Layouts of functions, one layout after another, and layouts of a part of an array."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.layout import Reshape, Transpose
from ckpt_surgery.inference.expressions.layouts import Layout

_Piece = tuple[int, int, int]
"""A digit that two ways to cut the same axes have in common: its length, and which digit of each way it
belongs to."""


def identity(shape: Shape) -> Layout:
    """The layout that leaves an array of this shape as it is."""
    cuts = tuple((n,) if n != 1 else () for n in shape)
    joins = tuple(map(len, cuts))
    return Layout(cuts, tuple(range(sum(joins))), joins)


def is_identity(layout: Layout) -> bool:
    """Whether a layout leaves arrays as they are."""
    in_order = layout.order == tuple(range(len(layout.order)))
    return in_order and layout.shape_in == layout.shape_out


def reshaping(old: Shape, new: Shape) -> Layout | None:
    """The layout of a reshape; None where axes are cut across each other, as from [2,3] to [3,2]."""
    pieces = _common(old, new)
    if pieces is None:
        return None
    cuts = tuple(tuple(n for n, first, _ in pieces if first == axis) for axis in range(len(old)))
    joins = tuple(sum(second == axis for *_, second in pieces) for axis in range(len(new)))
    return Layout(cuts, tuple(range(len(pieces))), joins)


def transposing(shape: Shape, axes: Sequence[int]) -> Layout:
    """The layout whose axis `i` of the result is axis `axes[i]` of an array of this shape."""
    plain = identity(shape)
    starts = list(itertools.accumulate(plain.joins, initial=0))
    order = [digit for axis in axes for digit in range(starts[axis], starts[axis + 1])]
    return Layout(plain.cuts, tuple(order), tuple(plain.joins[axis] for axis in axes))


def layout_of(function: Function, shape: Shape) -> Layout | None:
    """The layout of `reshape` or `transpose` of an array without an empty axis.

    None for any other function, and for a reshape that cuts axes across each other.
    """
    if isinstance(function, Transpose):
        return transposing(shape, function.permutation(len(shape)))
    if isinstance(function, Reshape):
        return reshaping(shape, _resolved(function, shape))
    return None


def _resolved(function: Reshape, shape: Shape) -> Shape:
    """The shape that a reshape gives, its -1 computed."""
    wanted = function.shape if isinstance(function.shape, tuple) else (function.shape,)
    known = math.prod(n for n in wanted if n != -1)
    return tuple(math.prod(shape) // known if n == -1 else n for n in wanted)


@functools.lru_cache(maxsize=4096)  # thousands of leaves are laid alike
def composed(first: Layout, second: Layout) -> Layout | None:
    """The layout that does what both do, one after the other; None where they cut axes across each other, and
    for arrays without elements."""
    pieces = (
        None if 0 in first.digits else _common([first.digits[digit] for digit in first.order], second.digits)
    )
    if pieces is None:
        return None
    of_first: dict[int, list[int]] = {digit: [] for digit in range(len(first.digits))}
    of_second: dict[int, list[int]] = {digit: [] for digit in range(len(second.digits))}
    for number, (_, one, other) in enumerate(pieces):
        of_first[first.order[one]].append(number)
        of_second[other].append(number)
    entered = [number for digit in range(len(first.digits)) for number in of_first[digit]]
    place = {number: digit for digit, number in enumerate(entered)}
    digits = iter(range(len(first.digits)))
    cuts = tuple(
        tuple(pieces[number][0] for _ in cut for number in of_first[next(digits)]) for cut in first.cuts
    )
    order = tuple(place[number] for digit in second.order for number in of_second[digit])
    joins = tuple(sum(len(of_second[digit]) for digit in group) for group in second.groups())
    return coarsened(Layout(cuts, order, joins))


def coarsened(layout: Layout) -> Layout:
    """The same layout with as few digits as possible: neighbours that stay neighbours are one."""
    axis_of = [axis for axis, cut in enumerate(layout.cuts) for _ in cut]
    group_of = {digit: number for number, group in enumerate(layout.groups()) for digit in group}
    follows = {b: a for a, b in itertools.pairwise(layout.order)}

    def joined(digit: int) -> bool:
        """Whether a digit is one with the digit before it."""
        return (
            follows.get(digit) == digit - 1
            and axis_of[digit] == axis_of[digit - 1]
            and group_of[digit] == group_of[digit - 1]
        )

    heads = [digit for digit in range(len(layout.digits)) if not joined(digit)]
    ends = [*heads, len(layout.digits)][1:]
    return _of_digits(
        layout, {head: math.prod(layout.digits[head:end]) for head, end in zip(heads, ends, strict=True)}
    )


def _of_digits(layout: Layout, lengths: Mapping[int, int]) -> Layout:
    """The layout with these digits alone, and their new lengths."""
    number = {digit: new for new, digit in enumerate(lengths)}
    digits = iter(range(len(layout.digits)))
    axes = [[next(digits) for _ in cut] for cut in layout.cuts]
    cuts = tuple(tuple(lengths[digit] for digit in axis if digit in lengths) for axis in axes)
    order = tuple(number[digit] for digit in layout.order if digit in number)
    joins = tuple(sum(digit in number for digit in group) for group in layout.groups())
    return Layout(cuts, order, joins)


def stacked(layout: Layout, count: int) -> Layout:
    """The layout that does the same to each of `count` arrays that are stacked along the first axis."""
    order = (0, *(digit + 1 for digit in layout.order))
    return Layout(((count,), *layout.cuts), order, (1, *layout.joins))


@functools.lru_cache(maxsize=4096)
def restricted(layout: Layout, region: Region) -> tuple[Region, Layout] | None:
    """The part of the input that becomes a region of the result, which is not empty, and the layout from an
    array that is just this part to one that is just the region; None where the part is no region."""
    taken: dict[int, range] = {}
    for group, start, stop in zip(layout.groups(), region.starts, region.stops, strict=True):
        found = _spread(start, stop, [layout.digits[digit] for digit in group])
        if found is None:
            return None
        taken.update(zip(group, found, strict=True))
    digits = iter(range(len(layout.digits)))
    bounds = []
    for cut in layout.cuts:
        whole = _gathered(cut, [taken[next(digits)] for _ in cut])
        if whole is None:
            return None
        bounds.append(whole)
    part = Region(tuple(start for start, _ in bounds), tuple(stop for _, stop in bounds))
    kept = {digit: len(taken[digit]) for digit in range(len(layout.digits)) if len(taken[digit]) != 1}
    return part, coarsened(_of_digits(layout, kept))


def _spread(start: int, stop: int, lengths: Sequence[int]) -> list[range] | None:
    """Indices of each digit whose product is the range of an axis; None where there are none."""
    if not lengths:
        return []
    place = math.prod(lengths[1:])
    if start % place == 0 and stop % place == 0:
        return [range(start // place, stop // place), *map(range, lengths[1:])]
    first = start // place
    if (stop - 1) // place != first:
        return None
    rest = _spread(start - first * place, stop - first * place, lengths[1:])
    return None if rest is None else [range(first, first + 1), *rest]


def _gathered(lengths: Sequence[int], taken: Sequence[range]) -> tuple[int, int] | None:
    """First index and the one behind the last of an axis whose digits have these ranges; None: not one."""
    start, size, several = 0, 1, False
    for length, part in zip(lengths, taken, strict=True):
        if several and len(part) != length:
            return None
        several = several or len(part) > 1
        start = start * length + part[0]
        size *= len(part)
    return start, start + size


def _common(first: Sequence[int], second: Sequence[int]) -> list[_Piece] | None:
    """The digits of two ways to cut the same number of elements, from slow to fast; None: none divide both.

    Lengths of 1 have no digit. No length is 0.
    """
    found: list[_Piece] = []
    a, b = len(first) - 1, len(second) - 1
    left = first[a] if a >= 0 else 1
    right = second[b] if b >= 0 else 1
    while a >= 0 or b >= 0:
        if left == 1 and a >= 0:
            a -= 1
            left = first[a] if a >= 0 else 1
        elif right == 1 and b >= 0:
            b -= 1
            right = second[b] if b >= 0 else 1
        else:
            length = min(left, right)
            if left % length or right % length:
                return None
            found.append((length, a, b))
            left //= length
            right //= length
    return found[::-1]
