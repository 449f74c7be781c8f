"""Copies that are left out are proved to be copies."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.comparing import RequireEqual
from tests.support.evaluation import evaluate

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("x", "other"),
    [
        (np.array([1.5, -2.0], np.float32), np.array([1.5, -2.0], np.float32)),
        (np.array([1.5, -2.0], BF16), np.array([1.5, -2.0], np.float64)),
        (np.array([np.nan, np.inf, 0.0], np.float16), np.array([np.nan, np.inf, -0.0], np.float32)),
        (np.array([1 << 62], np.int64), np.array([1 << 62], np.uint64)),
        (np.array(True), np.array(True)),
        (np.zeros((0, 3), BF16), np.zeros((0, 3), BF16)),
    ],
)
def test_equal_values_give_the_first_array(x: Any, other: Any) -> None:
    found = evaluate(RequireEqual("not a copy"), [x, other])
    assert (found.dtype, found.tobytes()) == (x.dtype, x.tobytes())


@pytest.mark.parametrize(
    ("x", "other", "count"),
    [
        (np.array([1.5, -2.0], np.float32), np.array([1.5, -2.5], np.float32), "1 of 2"),
        (np.array([1.0, np.nan], BF16), np.array([np.nan, 1.0], BF16), "2 of 2"),
        (np.array([1.0], BF16), np.array([1.001], np.float32), "1 of 1"),
        (np.array([(1 << 53) + 1]), np.array([1 << 53]), "1 of 1"),
    ],
)
def test_other_values_are_an_error_with_the_message(x: Any, other: Any, count: str) -> None:
    with pytest.raises(DataError, match=f"not a copy .{count} values"):
        evaluate(RequireEqual("not a copy"), [x, other])


def test_other_shapes_are_found_while_planning() -> None:
    with pytest.raises(FunctionError, match="not a copy"):
        evaluate(RequireEqual("not a copy"), [np.zeros((2, 3)), np.zeros((3, 2))])
