"""What all libraries agree on, so that layouts that differ in nothing else are not open."""

import math
from collections.abc import Sequence

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.layouts import Layout

_CHANNELS = 2
"""Axes of a convolution's kernel that are channels; the others are space."""


def plausible(found: Sequence[Layout], stacked: int) -> list[Layout]:
    """The layouts that do nothing which no library does; all of them where each does."""
    return space_in_order(whole_axes(found), stacked)


def whole_axes(found: Sequence[Layout]) -> list[Layout]:
    """The layouts that move all axes whole, if there are any; else all of them.

    Where whole axes fit, others cut one axis and join two at the same time: 3 layers of 4 experts into an
    axis of 12, and a kernel's 12 into 3 and 4. Their lengths are the same by chance.
    """
    kept = [layout for layout in found if max((*map(len, layout.cuts), *layout.joins), default=0) < 2]
    return kept or list(found)


def space_in_order(found: Sequence[Layout], stacked: int) -> list[Layout]:
    """The layouts that keep the order of height and width; all of them where an array has none.

    A convolution's kernel has its axes of space first (TensorFlow, Flax) or last (PyTorch), and no library
    exchanges them: with a square kernel, shapes alone would not tell.
    """
    if not found:
        return []
    space = _space(found[0].shape_in[stacked:])
    kept = [layout for layout in found if _in_order(layout, [stacked + axis for axis in space])]
    return kept or list(found)


def _space(shape: Shape) -> list[int]:
    """The axes of space of a convolution's kernel: two or three, all of one length; empty where none are."""
    count = len(shape) - _CHANNELS
    if count not in (2, 3):
        return []
    sides = [list(range(count)), list(range(_CHANNELS, len(shape)))]
    alike = [side for side in sides if len({shape[axis] for axis in side}) == 1 and shape[side[0]] > 1]
    lengths = [math.prod(shape[axis] for axis in side) for side in alike]
    if not alike or lengths.count(min(lengths)) > 1:
        return []
    return alike[lengths.index(min(lengths))]


def _in_order(layout: Layout, axes: Sequence[int]) -> bool:
    """Whether these axes are whole, and in the result as they are in the input, one after the other."""
    if not axes:
        return True
    if any(len(layout.cuts[axis]) != 1 for axis in axes):
        return False
    digits = [sum(len(cut) for cut in layout.cuts[:axis]) for axis in axes]
    first = layout.order.index(digits[0])
    return list(layout.order[first : first + len(digits)]) == digits
