"""Axis arguments against NumPy's own, and the bounds on what a function gives."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.sizes import MOST_BYTES, axes_of, axis_of, check_size

INT8 = np.dtype(np.int8)


def spec(*shape: int) -> ArraySpec:
    return ArraySpec(shape, INT8)


def test_what_is_allowed() -> None:
    check_size("f", spec(MOST_BYTES), lambda: 0)
    check_size("f", spec(4, MOST_BYTES), lambda: MOST_BYTES // 4)  # 16 times what it is made of
    check_size("f", spec(0, 2**63 - 1), lambda: 0)
    check_size("f", spec(*[1] * 32), lambda: 0)


@pytest.mark.parametrize(
    ("result", "given", "message"),
    [
        (spec(MOST_BYTES + 1), 0, "would make int8[1099511627777], 1.00 TiB; the limit is 1.00 TiB"),
        (spec(4 * MOST_BYTES + 1), MOST_BYTES // 4, "4.00 TiB out of 256 GiB; the limit is 1.00 TiB"),
        (spec(2**40, 2**40), 2**79, "2^80 bytes out of"),
        (spec(0, 2**63), 0, "an axis of 9223372036854775808 elements"),
        (spec(*[1] * 33), 0, "33 axes; the limit is 32"),
    ],
)
def test_what_is_refused(result: ArraySpec, given: int, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        check_size("f", result, lambda: given)
    assert message in str(caught.value)


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
