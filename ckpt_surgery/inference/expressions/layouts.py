"""Layouts: ways to move the elements of one array to make another of the same size.

A layout cuts the axes of its input into digits, as a mixed radix system does with numbers, puts these into
another order, and joins neighbours again: a reshape, a transpose and a reshape. Transposes, the axes of
heads, interleaved halves, fused gates and stacks of stacks are all of this kind.
"""

import bisect
import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.frozen import frozen

MOST = 64
"""Maximum number of layouts listed."""
_MOST_TRIES = 50_000
"""Maximum number of axes tried. Shapes that take more have dozens of small axes."""

_Group = tuple["Digit", ...]
"""The digits of one axis of the result."""

Groups = tuple[tuple[int, ...], ...]
"""The digits of each axis of an array, from slow to fast; none where its length is 1."""


@frozen()
class Layout:
    """A reshape, a transpose and a reshape, with as few digits as possible."""

    lengths: Shape
    """The lengths of all digits, in the order of the input. No digit is 1 long."""
    before: Groups
    """The digits of the input, numbered in this order."""
    after: Groups
    """The digits of the result."""

    @staticmethod
    def of(
        before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]], lengths: Mapping[Any, int]
    ) -> "Layout":
        """The layout with these digits, which may have any names.

        Digits of length 1 are left out, and neighbours that stay neighbours become one digit.
        """
        before, after = ([[d for d in axis if lengths[d] != 1] for axis in axes] for axes in (before, after))
        follows = {pair for axis in after for pair in itertools.pairwise(axis)}
        numbers: dict[Any, int] = {}
        sizes: list[int] = []
        for axis in before:
            for place, digit in enumerate(axis):
                if place and (axis[place - 1], digit) in follows:
                    sizes[-1] *= lengths[digit]
                else:
                    numbers[digit] = len(sizes)
                    sizes.append(lengths[digit])
        numbered = (
            tuple(tuple(numbers[digit] for digit in axis if digit in numbers) for axis in axes)
            for axes in (before, after)
        )
        return Layout(tuple(sizes), *numbered)

    @property
    def order(self) -> tuple[int, ...]:
        """The digits in the order of the result."""
        return tuple(itertools.chain.from_iterable(self.after))

    @property
    def complexity(self) -> tuple[int, int]:
        """Number of digits, and number of pairs of them that change their order."""
        return len(self.lengths), sum(a > b for a, b in itertools.combinations(self.order, 2))

    @property
    def in_order(self) -> bool:
        """True if no element is moved: it is a reshape."""
        return self.order == tuple(range(len(self.lengths)))

    @property
    def shape_in(self) -> Shape:
        """Shape of the input."""
        return self._shape(self.before)

    @property
    def shape_out(self) -> Shape:
        """Shape of the result."""
        return self._shape(self.after)

    @property
    def moves_whole_axes(self) -> bool:
        """True if no axis is cut, joined or 1 long: it is a transpose."""
        return all(len(axis) == 1 for axis in (*self.before, *self.after))

    def _shape(self, axes: Groups) -> Shape:
        return tuple(math.prod(self.lengths[digit] for digit in axis) for axis in axes)

    def inverse(self) -> "Layout":
        """The layout that undoes this one."""
        return Layout.of(self.after, self.before, dict(enumerate(self.lengths)))


class Digit(NamedTuple):
    """A part of an axis of the input: index // stride % length."""

    axis: int
    stride: int
    length: int


def of_digits(shape: Shape, result: Shape, groups: Sequence[Sequence[Digit]]) -> Layout | None:
    """The layout whose axes that are longer than 1 have these digits; None if they do not make up every axis
    of the input."""
    digits = sorted(itertools.chain.from_iterable(groups), key=lambda digit: (digit.axis, -digit.stride))
    before = [[digit for digit in digits if digit.axis == axis] for axis in range(len(shape))]
    for own, length in zip(before, shape, strict=True):
        strides = [length, *(digit.stride for digit in own)]
        if strides != [*(digit.stride * digit.length for digit in own), 1]:
            return None
    waiting = iter(groups)
    after = [next(waiting) if length > 1 else () for length in result]
    return Layout.of(before, after, {digit: digit.length for digit in digits})


def identity(shape: Shape) -> Layout:
    """The layout that leaves an array of this shape as it is."""
    return transposing(shape, range(len(shape)))


def is_identity(layout: Layout) -> bool:
    """True if a layout leaves arrays as they are."""
    return layout.in_order and layout.shape_in == layout.shape_out


def transposing(shape: Shape, axes: Iterable[int]) -> Layout:
    """The layout whose axis `i` of the result is axis `axes[i]` of an array of this shape."""
    return Layout.of([[n] for n in range(len(shape))], [[axis] for axis in axes], dict(enumerate(shape)))


def reshaping(old: Shape, new: Shape) -> Layout | None:
    """The layout of a reshape; None where axes are cut across each other, as from [2,3] to [3,2], and for
    arrays without elements."""
    return composed(identity(old), identity(new))


@functools.lru_cache(maxsize=4096)  # thousands of leaves are laid alike
def composed(first: Layout, second: Layout) -> Layout | None:
    """The two layouts, one after the other, as one; None where they cut axes across each other, and for
    arrays without elements."""
    between = first.order
    pieces = _common([first.lengths[digit] for digit in between], second.lengths)
    if pieces is None:
        return None
    of_first, of_second = ([list[int]() for _ in layout.lengths] for layout in (first, second))
    for piece, (_, one, other) in enumerate(pieces):
        of_first[between[one]].append(piece)
        of_second[other].append(piece)
    before = [[piece for digit in axis for piece in of_first[digit]] for axis in first.before]
    after = [[piece for digit in axis for piece in of_second[digit]] for axis in second.after]
    return Layout.of(before, after, dict(enumerate(length for length, *_ in pieces)))


def _common(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """Common digits of two ways to cut the same elements, from slow to fast; None if none divide both.

    Each as its length, and the digit of each way that it belongs to.
    """
    if 0 in first:
        return None
    ends = [list(itertools.accumulate(reversed(way), operator.mul, initial=1)) for way in (first, second)]
    strides = sorted({*ends[0], *ends[1]})
    if any(slow % fast for fast, slow in itertools.pairwise(strides)):
        return None
    pieces = []
    for fast, slow in itertools.pairwise(strides):
        one, other = (len(way) - bisect.bisect(way, fast) - 1 for way in ends)
        pieces.append((slow // fast, one, other))
    return pieces[::-1]


def stacked(layout: Layout, count: int) -> Layout:
    """The layout that does the same to each of `count` arrays that are stacked along the first axis."""
    lengths = {-1: count, **dict(enumerate(layout.lengths))}
    return Layout.of(((-1,), *layout.before), ((-1,), *layout.after), lengths)


@functools.lru_cache(maxsize=4096)
def restricted(layout: Layout, region: Region) -> tuple[Region, Layout] | None:
    """The part of the input that becomes a region of the result, which is not empty, and the layout from an
    array that is just this part to one that is just the region; None where the part is no region."""
    taken: dict[int, range] = {}
    for axis, start, stop in zip(layout.after, region.starts, region.stops, strict=True):
        parts = _spread(start, stop, [layout.lengths[digit] for digit in axis])
        if parts is None:
            return None
        taken.update(zip(axis, parts, strict=True))
    bounds = []
    for axis in layout.before:
        whole = _gathered([layout.lengths[digit] for digit in axis], [taken[digit] for digit in axis])
        if whole is None:
            return None
        bounds.append(whole)
    lengths = {digit: len(indices) for digit, indices in taken.items()}
    part = Region(tuple(start for start, _ in bounds), tuple(stop for _, stop in bounds))
    return part, Layout.of(layout.before, layout.after, lengths)


def _spread(start: int, stop: int, lengths: Sequence[int]) -> list[range] | None:
    """Indices of each digit whose product is the range of an axis; None if there are none."""
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
    """Bounds of the range of an axis whose digits have these ranges; None if it is not one range."""
    start, size, several = 0, 1, False
    for length, part in zip(lengths, taken, strict=True):
        if several and len(part) != length:
            return None
        several = several or len(part) > 1
        start = start * length + part[0]
        size *= len(part)
    return start, start + size


# --- layouts by shapes ------------------------------------------------------------------------------------
#
# Axes are moved about whole, an axis is cut into axes of the result, or axes are joined into one of the
# result. Shapes say no more than that; elements of an axis that is cut or joined keep their order.


def layouts(shape_in: Shape, shape_out: Shape, stacked: int = 0) -> list[Layout]:
    """The layouts that take an array of `shape_in` to `shape_out`, at most `MOST`; empty if there are none.

    Axes are cut and joined in their order; only the first `stacked` ones, along which leaves are stacked, may
    also stand between the others where axes are joined. Layouts with the same effect are listed once: axes of
    length 1 make no difference. Those that move the fewest axes come first.
    """
    if math.prod(shape_in) != math.prod(shape_out):
        return []
    if 0 in shape_in:
        return [identity(shape_in)] if shape_in == shape_out else []
    tries = iter(range(_MOST_TRIES))
    known: dict[Layout, None] = {}
    wanted = tuple(length for length in shape_out if length != 1)
    for groups in _filled(wanted, shape_in, shape_in, stacked, tries):
        layout = of_digits(shape_in, shape_out, groups)
        assert layout is not None, "as many elements are taken as there are"
        known[layout] = None
        if len(known) == MOST:
            break
    if len(known) < 2 and next(tries, None) is None:
        return []  # the search was not finished: nothing says that this is the only layout
    return sorted(known, key=lambda layout: (*layout.complexity, layout.order))


def _filled(
    wanted: Shape, shape: Shape, left: Shape, stacked: int, tries: Iterator[int]
) -> Iterator[tuple[_Group, ...]]:
    """The digits of each axis of the result of these lengths, all longer than 1: a part of an axis of the
    input, its slowest, or whole axes.

    `left`: the rest of each axis of the input.
    """
    if not wanted:
        yield ()
        return
    length = wanted[0]
    parts = [(Digit(axis, rest // length, length),) for axis, rest in enumerate(left) if rest % length == 0]
    for group in itertools.chain(parts, _joined(length, shape, left, stacked, tries)):
        if next(tries, None) is None:
            return
        strides = {digit.axis: digit.stride for digit in group}
        rests = tuple(strides.get(axis, rest) for axis, rest in enumerate(left))
        for others in _filled(wanted[1:], shape, rests, stacked, tries):
            yield (group, *others)


def _joined(length: int, shape: Shape, left: Shape, stacked: int, tries: Iterator[int]) -> Iterator[_Group]:
    """Two or more whole axes of the input whose lengths multiply to this one.

    Those along which leaves are stacked stand anywhere, the others in their order.
    """
    free = [axis for axis, rest in enumerate(left) if rest == shape[axis] > 1]
    counts = range(2, min(len(free) + 1, length.bit_length()))
    for some in itertools.chain.from_iterable(itertools.combinations(free, count) for count in counts):
        fits = math.prod(shape[axis] for axis in some) == length
        for axes in itertools.permutations(some) if fits and some[0] < stacked else [some]:
            if next(tries, None) is None:
                return
            others = [axis for axis in axes if axis >= stacked]
            if fits and others == sorted(others):
                yield tuple(Digit(axis, 1, shape[axis]) for axis in axes)


# --- which of them libraries use --------------------------------------------------------------------------


def plausible(candidates: Sequence[Layout], stacked: int) -> list[Layout]:
    """The layouts that some library could use; all of them if there are none.

    Those that move all axes whole, if there are any: others cut one axis and join two at the same time, as
    3 layers of 4 experts into an axis of 12, and a kernel's 12 into 3 and 4. These lengths agree by chance.

    A convolution's kernel has its axes of space first (TensorFlow, Flax) or last (PyTorch), and no library
    exchanges them: with a square kernel, shapes alone would not tell.
    """
    whole = [one for one in candidates if all(len(axis) < 2 for axis in (*one.before, *one.after))]
    whole = whole or list(candidates)
    space = _space(whole[0].shape_in[stacked:]) if whole else []
    kept = [layout for layout in whole if _in_order(layout, [stacked + axis for axis in space], stacked)]
    return kept or whole


def _space(shape: Shape) -> list[int]:
    """The axes of space of a convolution's kernel, all but two: two or three, all of one length; empty where
    none are."""
    count = len(shape) - 2
    sides = [list(range(count)), list(range(2, len(shape)))] if count in (2, 3) else []
    alike = [side for side in sides if len({shape[axis] for axis in side}) == 1 and shape[side[0]] > 1]
    lengths = [shape[side[0]] for side in alike]
    return alike[lengths.index(min(lengths))] if len(set(lengths)) == len(lengths) > 0 else []


def _in_order(layout: Layout, axes: Sequence[int], stacked: int) -> bool:
    """True if these axes are whole, one after the other as in the input, and first or last in the result."""
    if any(len(layout.before[axis]) != 1 for axis in axes):
        return False
    digits = [layout.before[axis][0] for axis in axes]
    layers = sum(map(len, layout.before[:stacked]))
    order = [digit for digit in layout.order if digit >= layers]
    return digits in (order[: len(digits)], order[len(order) - len(digits) :])
