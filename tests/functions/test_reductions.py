"""Reductions against NumPy, and that the order of a sum depends on nothing but the array's shape."""

import numpy as np
import pytest

from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.reductions import Extreme, ListReduction, Mean, Norm, Sum
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import declared_by

F32, BF16, INT8, INT64, F64 = map(dtype_named, ("float32", "bfloat16", "int8", "int64", "float64"))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 0), ()])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_reductions_are_numpys(axis: int | tuple[int, ...] | None, keepdims: bool, dtype: str) -> None:
    array = numbers(f"{dtype}[3,4,5]")
    extremes = Extreme(axis, keepdims, "max"), Extreme(axis, keepdims, "min")
    for function in (Sum(axis, keepdims), Mean(axis, keepdims), *extremes):
        found = evaluate(function, [array])
        expected = np.asarray(getattr(np, function.called())(array, axis=axis, keepdims=keepdims))
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(("order", "numpys"), [(1, 1), (2, 2), ("inf", np.inf)])
def test_norms_are_numpys_vector_norms(order: int | str, numpys: float) -> None:
    array = numbers("float64[3,4]")
    np.testing.assert_allclose(
        evaluate(Norm(ord=order), [array]), np.linalg.norm(array.ravel(), numpys), rtol=1e-15
    )
    np.testing.assert_allclose(
        evaluate(Norm(1, ord=order), [array]), np.linalg.norm(array, numpys, axis=1), rtol=1e-15
    )


DTYPES = [
    (Sum(), ("bfloat16",), "float32", "bfloat16"),
    (Sum(), ("int8",), "int64", "int8"),  # settled by a cast that reports an overflow
    (Sum(), ("uint4",), "int64", "uint4"),  # so that sums of any integers go together
    (Sum(), ("uint64",), "uint64", "uint64"),
    (Sum(), ("bool",), "int64", "int64"),
    (Mean(), ("int8",), "float64", "float64"),
    (Mean(), ("float16",), "float32", "float16"),
    (Extreme(), ("bfloat16",), "float32", "bfloat16"),
    (Extreme(op="min"), ("int4",), "int8", "int4"),
    (Norm(), ("complex64",), "float32", "float32"),
    (Norm(), ("int32",), "float64", "float64"),
]


def test_sums_of_nothing() -> None:
    empty = np.zeros((0, 2), np.float32)
    assert evaluate(Sum(0), [empty]).tolist() == [0, 0]
    assert (evaluate(Sum(), [empty]), evaluate(Norm(keepdims=True), [empty]).tolist()) == (0, [[0]])
    assert np.isnan([*evaluate(Mean(0), [empty]), evaluate(Mean(), [empty])]).all()
    assert evaluate(Norm(0, ord="inf"), [empty]).tolist() == [0, 0]
    with pytest.raises(FunctionError, match=r"`max` has no value for float32\[0,2\]"):
        evaluate(Extreme(0), [empty])


def test_nan_is_the_largest_and_the_smallest() -> None:
    array = np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)
    assert np.isnan(evaluate(Extreme(1), [array])).tolist() == [True, False]
    assert np.isnan(evaluate(Extreme(1, op="min"), [array])).tolist() == [True, False]


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Sum(2), ("float32[3,4]",), "`sum`: there is no axis 2 in an array of 2 axes"),
    (ListReduction("mean"), ("float32[2]", "float32[1]"), "array 0 is float32[2], array 1 is"),
]


def test_orders_of_a_norm() -> None:
    with pytest.raises(FunctionError, match="ord should be 1, 2 or 'inf', not 3"):
        Norm(ord=3)


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
