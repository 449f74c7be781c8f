"""Axis arguments against NumPy's own normalization."""

import numpy as np
import pytest

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.axes import axes_of, axis_of


@pytest.mark.parametrize("axis", range(-3, 3))
def test_an_axis_is_the_one_that_numpy_means(axis: int) -> None:
    assert np.moveaxis(np.empty((2, 3, 4)), axis, 0).shape[0] == (2, 3, 4)[axis_of(axis, 3, "flip")]


@pytest.mark.parametrize("axis", [-4, 3])
def test_an_axis_that_an_array_does_not_have(axis: int) -> None:
    with pytest.raises(FunctionError, match=f"`flip`: there is no axis {axis} in an array of 3 axes"):
        axis_of(axis, 3, "flip")


def test_one_axis_several_or_all() -> None:
    assert axes_of(-1, 3, "sum") == (2,)
    assert axes_of((2, -3), 3, "sum") == (2, 0)
    assert axes_of((), 3, "sum") == ()
    assert axes_of(None, 3, "sum") == (0, 1, 2)
    with pytest.raises(FunctionError, match=r"`sum`: an axis is given twice in \(0, -3\)"):
        axes_of((0, -3), 3, "sum")
