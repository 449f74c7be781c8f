"""Axis arguments against NumPy's own, and the bounds on what a function gives."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import MOST_BYTES, check_size

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
        (spec(MOST_BYTES + 1), 0, "would make int8[1099511627777], 1.00 TiB out of 0 B; the limit is"),
        (spec(4 * MOST_BYTES + 1), MOST_BYTES // 4, "4.00 TiB out of 256 GiB; the limit is 1.00 TiB"),
        (spec(2**40, 2**40), 2**79, "2^80 bytes out of"),
        (spec(0, 2**63), 0, "an axis of 2^63 or more elements"),
        (spec(*[1] * 33), 0, "33 axes; the limit is 32"),
    ],
)
def test_what_is_refused(result: ArraySpec, given: int, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        check_size("f", result, lambda: given)
    assert message in str(caught.value)
