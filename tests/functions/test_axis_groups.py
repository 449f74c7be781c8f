"""The groups of a reshape against NumPy's reshape of the indices of elements."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.functions.axis_groups import AxisGroup, axis_groups


def test_groups_are_as_small_as_they_can_be() -> None:
    assert axis_groups((2, 6, 5), (2, 2, 3, 5)) == (
        AxisGroup((2,), (2,), 0),
        AxisGroup((6,), (2, 3), 1),
        AxisGroup((5,), (5,), 3),
    )
    assert axis_groups((4, 6), (3, 8)) == (AxisGroup((4, 6), (3, 8), 0),)
    assert axis_groups((2, 0, 3), (0, 5)) == (AxisGroup((2, 0, 3), (0, 5), 0),)


SPLITS: list[tuple[Shape, Shape]] = [((6,), (2, 3)), ((4, 6), (3, 8)), ((2, 3, 4), (24,)), ((3, 8), (2, 12))]


@pytest.mark.parametrize(("old", "new"), SPLITS)
def test_a_group_finds_the_elements_that_a_part_comes_from(old: Shape, new: Shape) -> None:
    group = AxisGroup(old, new, 0)
    numbers = np.arange(np.prod(old)).reshape(old)
    region = Region((1,) * len(new), new)
    wanted = numbers.reshape(new)[region.slices].ravel()
    box = group.box(region)
    assert np.array_equal(numbers[box.slices].ravel()[group.flat_indices(region, box)], wanted)
