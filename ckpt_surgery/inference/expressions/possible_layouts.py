"""List every layout that takes one shape to another, where each digit is a whole axis of one of them.

Axes are moved about whole, an axis is cut into axes of the result, or axes are joined into one of the result.
Shapes say no more than that; elements of an axis that is cut or joined keep their order, slow to fast.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.layouts import Digit, Layout, identity, of_digits

MOST = 64
"""Maximum number of layouts listed."""
_MOST_TRIES = 50_000
"""Maximum number of axes tried. Shapes that take more have dozens of small axes."""

_Group = tuple[Digit, ...]
"""The digits of one axis of the result."""


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
    for group in itertools.chain(parts, _joined(length, shape, left, stacked)):
        if next(tries, None) is None:
            return
        strides = {digit.axis: digit.stride for digit in group}
        rests = tuple(strides.get(axis, rest) for axis, rest in enumerate(left))
        for others in _filled(wanted[1:], shape, rests, stacked, tries):
            yield (group, *others)


def _joined(length: int, shape: Shape, left: Shape, stacked: int) -> Iterator[_Group]:
    """Two or more whole axes of the input whose lengths multiply to this one.

    Those along which leaves are stacked stand anywhere, the others in their order.
    """
    free = [axis for axis, rest in enumerate(left) if rest == shape[axis] > 1]
    for count in range(2, min(len(free) + 1, length.bit_length())):
        for some in itertools.combinations(free, count):
            if math.prod(shape[axis] for axis in some) == length:
                for axes in itertools.permutations(some) if some[0] < stacked else [some]:
                    others = [axis for axis in axes if axis >= stacked]
                    if others == sorted(others):
                        yield tuple(Digit(axis, 1, shape[axis]) for axis in axes)


# --- which of them libraries use --------------------------------------------------------------------------

_CHANNELS = 2
"""Axes of a convolution's kernel that are channels; the others are space."""


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
    """The axes of space of a convolution's kernel: two or three, all of one length; empty where none are."""
    count = len(shape) - _CHANNELS
    if count not in (2, 3):
        return []
    sides = [list(range(count)), list(range(_CHANNELS, len(shape)))]
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
