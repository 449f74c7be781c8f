"""Transposing, reshaping and padding against NumPy, and what they refuse."""

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.layout import Pad, Reshape, ReshapeGroup, Transpose

F32 = np.dtype(np.float32)


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Transpose((0, 0)), ("float32[3,5]",), "`transpose`: an axis is given twice in (0, 0)"),
    (Transpose((0,)), ("float32[3,5]",), "`transpose`: 1 axes given for an array of 2"),
    (Reshape((4, 4)), ("float32[3,5]",), "`reshape`: [3, 5] has 15 elements, [4, 4] has 16"),
    (Reshape((-1, -1)), ("float32[3,5]",), "[-1, -1] has a negative length"),
    (Reshape((-2,)), ("float32[3,5]",), "[-2] has a negative length"),
    (Reshape((0, -1)), ("float32[0,5]",), "[0, -1] has 0 times the length given as -1"),
    (Pad(0, 9, 300), ("int8[3]",), "300 is out of range of int8"),
    (Pad(0, 2), ("float32[3]",), "`pad`: axis 0 of float32[3] is already longer than 2"),
]


def test_a_group_finds_the_elements_that_a_part_comes_from() -> None:
    for old, new in (((6,), (2, 3)), ((4, 6), (3, 8)), ((2, 3, 4), (24,)), ((3, 8), (2, 12))):
        group = ReshapeGroup(old, new, 0)
        numbers = np.arange(np.prod(old)).reshape(old)
        region = Region((1,) * len(new), new)
        wanted = numbers.reshape(new)[region.slices].ravel()
        box = group.box(region)
        assert np.array_equal(numbers[box.slices].ravel()[group.flat_indices(region, box)], wanted)
