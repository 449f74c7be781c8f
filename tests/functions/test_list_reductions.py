"""Lists of arrays combined element by element."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.list_reductions import ListReduction
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import declared_by

BF16, F32, INT8 = map(dtype_named, ("bfloat16", "float32", "int8"))


def specs(*texts: str) -> list[ArraySpec]:
    return [ArraySpec(a.shape, a.dtype) for a in map(numbers, texts)]


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (
        ListReduction("mean"),
        ("float32[2]", "float32[1]"),
        "`mean`: array 0 is float32[2], array 1 is float32[1]",
    ),
    (ListReduction("sum"), ("int8[2]", "float32[2]"), "`sum` of int8 and float32 would give int8 again"),
]


def test_reductions_of_lists() -> None:
    arrays = [np.array(values, np.float32) for values in ([1, np.nan, 4], [2, 5, 0.5], [6, 0, 3])]
    for function, expected in (
        (ListReduction("sum"), [9, np.nan, 7.5]),
        (ListReduction("mean"), [3, np.nan, 2.5]),
        (ListReduction("max"), [6, np.nan, 4]),
        (ListReduction("min"), [1, np.nan, 0.5]),
    ):
        assert same(evaluate(function, arrays), np.array(expected, np.float32))


def test_narrow_floats_are_summed_in_float32_and_rounded_once() -> None:
    arrays = [np.array([1.0], BF16), *[np.array([2**-9], BF16)] * 4]
    total = evaluate(ListReduction("sum"), arrays)
    assert (total.dtype, total.item()) == (F32, 1 + 2**-7)  # in bfloat16 each step would round to 1
    assert declared_by(ListReduction("sum"), *[BF16] * 5) == BF16


def test_integers_are_summed_in_64_bits_and_averaged_in_float64() -> None:
    arrays = [np.array([100, 1], np.int8)] * 2
    assert evaluate(ListReduction("sum"), arrays).tolist() == [200, 2]
    assert declared_by(ListReduction("sum"), INT8, INT8) == INT8
    with pytest.raises(DataError, match="200 is out of range"):
        evaluate(Cast(INT8), [evaluate(ListReduction("sum"), arrays)])
    assert same(evaluate(ListReduction("mean"), arrays), np.array([100.0, 1.0]))
    assert declared_by(ListReduction("mean"), INT8, INT8) == np.dtype(np.float64)
    assert evaluate(ListReduction("sum"), [np.array([True, False])] * 3).tolist() == [3, 0]
