"""Operators against NumPy; the dtype of the computation, and that of the result."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import DataError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.operators import Binary, Unary
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the oracle: zero divided by zero
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_operators_are_numpys(op: str, dtype: str) -> None:
    left, right = numbers(f"{dtype}[3,1]", 1), abs(numbers(f"{dtype}[4]", 2)) + 1
    if op == "-":
        left = left + left.dtype.type(4)  # nothing below zero in uint8
    assert same(evaluate(Binary(op), [left, right]), OPERATORS[op](left, right))
    assert same(evaluate(Binary(op, right=2), [left]), OPERATORS[op](left, 2))
    number = 4 if op == "-" else 2
    assert same(evaluate(Binary(op, left=number), [right]), OPERATORS[op](number, right))


@pytest.mark.parametrize("op", ["&", "|"])
@pytest.mark.parametrize("dtype", ["bool", "int16"])
def test_bit_operators_are_numpys(op: str, dtype: str) -> None:
    left, right = numbers(f"{dtype}[9]", 1), numbers(f"{dtype}[9]", 2)
    expected = {"&": np.bitwise_and, "|": np.bitwise_or}[op](left, right)
    assert same(evaluate(Binary(op), [left, right]), expected)


DTYPES = [
    (Binary("*"), ("bfloat16", "bfloat16"), "float32", "bfloat16"),
    (Binary("+"), ("bfloat16", "float32"), "float32", "bfloat16"),
    (Binary("+"), ("float32", "bfloat16"), "float32", "float32"),
    (Binary("*", right=0.1), ("float16",), "float32", "float16"),
    (Binary("*", right=2), ("int8",), "int8", "int8"),
    (Binary("+"), ("uint4", "uint4"), "uint8", "uint4"),
    (Binary("/"), ("int32", "int32"), "float64", "float64"),
    (Binary("/", right=2.5), ("int8",), "float64", "float64"),
    (Binary("<"), ("bfloat16", "int64"), "bool", "bool"),
    (Binary("+"), ("bool", "bool"), "bool", "bool"),
    (Binary("+", right=1), ("bool",), "int64", "int64"),
    (Binary("*", right=0.5), ("bool",), "float64", "float64"),
    (Binary("*"), ("complex64", "float32"), "complex64", "complex64"),
    (Unary("neg"), ("bfloat16",), "float32", "bfloat16"),
]


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Binary("*", right=1e39), ("bfloat16[2]",), "float32 cannot represent 1e+39"),
    (Binary("-"), ("bool[2]", "bool[2]"), "`-` has no meaning for bool"),
    (Binary("&"), ("float32[2]", "float32[2]"), "`&` has no meaning for float32"),
    (Binary("//", right=0), ("int8[2]",), "`//`: an integer is divided by zero"),
    (Binary("**", right=-1), ("int8[2]",), "`**`: an integer is raised to a negative power"),
    (Unary("neg"), ("uint8[2]",), "`neg` has no meaning for uint8"),
    (Unary("not"), ("int8[2]",), "`not` has no meaning for int8"),
]


def test_operands_that_integers_have_no_result_for_are_errors_of_the_data() -> None:
    for op, operand, message in (
        ("//", 0, "divided by zero"),
        ("%", 0, "divided by"),
        ("**", -1, "negative power"),
    ):
        with pytest.raises(DataError, match=message):
            evaluate(Binary(op), [np.array([1, 2]), np.array([1, operand])])


def test_floats_give_what_ieee_gives_without_a_warning() -> None:
    array = np.array([0.0, -1.0, 1e38], np.float32)
    found = evaluate(Binary("/", left=1.0), [array])
    assert found.tolist() == [np.inf, -1.0, pytest.approx(1e-38)]
    assert evaluate(Binary("*", right=1e10), [array])[2] == np.inf
    assert np.isnan(evaluate(Unary("sqrt"), [array])[1])
    assert evaluate(Unary("log"), [array])[0] == -np.inf
