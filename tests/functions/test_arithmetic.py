"""Elementwise functions against NumPy; the dtype of the computation, and that of the result."""

import numpy as np
import pytest

from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.operators import (
    Binary,
    RequireEqual,
    Unary,
    Where,
    abs_,
    clip,
    log,
    maximum,
    selected,
    sqrt,
)
from tests.support.calling import result_of
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import lazy

BF16 = dtype_named("bfloat16")


DTYPES = [
    (Unary("abs"), ("complex128",), "float64", "float64"),
    (Unary("sqrt"), ("int8",), "float64", "float64"),
    (Unary("exp"), ("float16",), "float32", "float16"),
    (Binary("maximum", None, 0), ("bfloat16",), "float32", "bfloat16"),
    (Where(b=0), ("bool", "bfloat16"), "float32", "bfloat16"),
    (Where(0, 1.5), ("bool",), "float64", "float64"),
    (Unary("sin"), ("bfloat16",), "float32", "bfloat16"),
    (Unary("arccos"), ("int8",), "float64", "float64"),
    (Unary("sign"), ("int4",), "int8", "int4"),
]


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Where(), ("int8[2]", "int8[2]", "int8[2]"), "`where`: the condition has to be bool, it is int8"),
    (Where(), ("bool[2]", "int8[3]", "int8[3]"), "`where`: shapes [2] and [3] and [3] do not broadcast"),
    (Unary("sign"), ("bool[2]",), "`sign` has no meaning for bool"),
    (Unary("sign"), ("complex64[2]",), "`sign` has no meaning for complex64"),
]


def test_values() -> None:
    for function, arrays, expected in (
        (Where(), ([[True], [False]], [1.0, 2.0], 5.0), [[1.0, 2.0], [5.0, 5.0]]),
        (Where(a=7), ([True, False], [1, 2]), [7, 2]),
        (Where(1, 0), ([True, False],), [1, 0]),
        (Where(-0.0, 1.0), ([True, False],), [-0.0, 1.0]),
        (Binary("maximum", 2), ([1, 3],), [2, 3]),
        (Unary("rsqrt"), ([4.0, 0.25],), [0.5, 2.0]),
        (Unary("sign"), ([-3.5, 0.0, 7.0],), [-1.0, 0.0, 1.0]),
        (Unary("sign"), (np.array([0, 200], np.uint8),), [0, 1]),
        (Unary("neg"), ([-2, 2],), [2, -2]),
        (Unary("not"), ([True, False],), [False, True]),
        (Binary("<", right=2.5), ([2, 3],), [True, False]),
        (Binary("<", right=10**30), ([2, 3],), [True, True]),
        (Binary("==", right=300), (np.array([44, 255], np.uint8),), [False, False]),
        (Binary(">"), ([2**53 + 1], np.array([2**53], np.uint64)), [True]),  # not by way of float64
    ):
        found = evaluate(function, [np.asarray(array) for array in arrays])
        assert found.tolist() == expected


def test_calls_without_arrays_give_numbers() -> None:
    assert sqrt(16) == 4.0
    assert (abs_(-3), abs_(-(2**63)), abs_(-(2**100))) == (3, 2**63, 2**100)
    assert maximum(2, 3.5) == 3.5
    assert clip(9, max=4) == 4
    with pytest.raises(FunctionError, match=r"sqrt\(-1\) is not a number"):
        sqrt(-1)
    with pytest.raises(FunctionError, match=r"log\(0\) is not a number"):
        log(0)


def test_clip() -> None:
    for bounds, expected in (
        ({"min": 0, "max": 2}, [0, 1, 2]),
        ({"max": 2}, [-1, 1, 2]),
        ({"min": 2}, [2, 2, 3]),
    ):
        for name in ("int16", "float32"):
            found = result_of(clip, np.array([-1, 1, 3], name), **bounds)
            assert (found.tolist(), found.dtype.name) == (expected, name)
    with pytest.raises(FunctionError, match="`clip` needs `min`, `max` or both"):
        clip(lazy())


@pytest.mark.parametrize(
    "name", ["bool", "int8", "bfloat16", "float16", "float32", "float64", "int64", "complex64", "complex128"]
)
@pytest.mark.parametrize("shapes", [((5, 6), (5, 6), ()), ((5, 6), (6,), (5, 1)), ((5, 1), (6,), (5, 6))])
def test_elements_are_selected_bit_for_bit(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Signs of zeros and the bits of NaN too, and from arrays in any order of storage."""
    rng = np.random.default_rng(0)
    dtype = dtype_named(name)
    condition = rng.integers(0, 2, shapes[0]).astype(bool)
    values = []
    for shape in shapes[1:]:
        bits = rng.integers(0, 2 if name == "bool" else 256, (*shape, dtype.itemsize), np.uint8)
        values.append(np.ascontiguousarray(bits).view(dtype).reshape(shape))
    wanted = np.where(condition, *values)
    assert same(selected(condition, *values), wanted)
    transposed = [np.asfortranarray(one) if one.ndim > 1 else one for one in (condition, *values)]
    assert same(selected(*transposed), wanted)


def test_equal_values_give_the_first_array() -> None:
    for x, other in (
        (np.array([1.5, -2.0], np.float32), np.array([1.5, -2.0], np.float32)),
        (np.array([1.5, -2.0], BF16), np.array([1.5, -2.0], np.float64)),
        (np.array([np.nan, np.inf, 0.0], np.float16), np.array([np.nan, np.inf, -0.0], np.float32)),
        (np.array([1 << 62], np.int64), np.array([1 << 62], np.uint64)),
        (np.array(True), np.array(True)),
        (np.zeros((0, 3), BF16), np.zeros((0, 3), BF16)),
    ):
        found = evaluate(RequireEqual("not a copy"), [x, other])
        assert (found.dtype, found.tobytes()) == (x.dtype, x.tobytes())


def test_other_values_are_an_error_with_the_message() -> None:
    for x, other, count in (
        (np.array([1.5, -2.0], np.float32), np.array([1.5, -2.5], np.float32), "1 of 2"),
        (np.array([1.0, np.nan], BF16), np.array([np.nan, 1.0], BF16), "2 of 2"),
        (np.array([1.0], BF16), np.array([1.001], np.float32), "1 of 1"),
        (np.array([(1 << 53) + 1]), np.array([1 << 53]), "1 of 1"),
    ):
        with pytest.raises(DataError, match=f"not a copy .{count} values"):
            evaluate(RequireEqual("not a copy"), [x, other])
    with pytest.raises(FunctionError, match="not a copy"):  # while planning
        evaluate(RequireEqual("not a copy"), [np.zeros((2, 3)), np.zeros((3, 2))])
