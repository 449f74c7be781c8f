"""Elementwise functions against NumPy; the dtype of the computation, and that of the result."""

from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arithmetic import (
    Abs,
    Arccos,
    Clip,
    Cos,
    Exp,
    Log,
    Maximum,
    Minimum,
    Rsqrt,
    Sign,
    Sin,
    Sqrt,
    Where,
    selected,
)
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.operators import Binary, Unary
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate, spec_of

F32 = np.dtype(np.float32)


DTYPES = [
    (Abs(), ("complex128",), "float64", "float64"),
    (Sqrt(), ("int8",), "float64", "float64"),
    (Exp(), ("float16",), "float32", "float16"),
    (Maximum(b=0), ("bfloat16",), "float32", "bfloat16"),
    (Where(b=0), ("bool", "bfloat16"), "float32", "bfloat16"),
    (Where(0, 1.5), ("bool",), "float64", "float64"),
    (Clip(min=0), ("int16",), "int16", "int16"),
    (Sin(), ("bfloat16",), "float32", "bfloat16"),
    (Arccos(), ("int8",), "float64", "float64"),
    (Sign(), ("int4",), "int8", "int4"),
]


@pytest.mark.parametrize(("function", "names", "computed", "declared"), DTYPES, ids=str)
def test_dtypes(function: Function, names: tuple[str, ...], computed: str, declared: str) -> None:
    dtypes = [dtype_named(name) for name in names]
    assert function.infer([ArraySpec((2,), dtype) for dtype in dtypes]).dtype.name == computed
    assert function.declared_dtype(dtypes).name == declared


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Where(), ("int8[2]", "int8[2]", "int8[2]"), "`where`: the condition has to be bool, it is int8"),
    (Where(), ("bool[2]", "int8[3]", "int8[3]"), "`where`: shapes [2] and [3] and [3] do not broadcast"),
    (Where(b=0.5), ("bool[2]", "int8[2]"), "0.5 is not an integer"),
    (Clip(max=999), ("int8[2]",), "999 is out of range of int8"),
    (Sign(), ("bool[2]",), "`sign` has no meaning for bool"),
    (Sign(), ("complex64[2]",), "`sign` has no meaning for complex64"),
]


@pytest.mark.parametrize(("function", "texts", "message"), REFUSED, ids=str)
def test_what_is_refused_before_any_data(function: Function, texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        function.infer([spec_of(numbers(text)) for text in texts])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("function", "arrays", "expected"),
    [
        (Where(), ([[True], [False]], [1.0, 2.0], 5.0), [[1.0, 2.0], [5.0, 5.0]]),
        (Where(a=7), ([True, False], [1, 2]), [7, 2]),
        (Where(1, 0), ([True, False],), [1, 0]),
        (Maximum(a=2), ([1, 3],), [2, 3]),
        (Minimum(), ([1, 3], [2, 2]), [1, 2]),
        (Clip(min=0, max=2), ([-1, 1, 3],), [0, 1, 2]),
        (Clip(max=2), ([-1, 1, 3],), [-1, 1, 2]),
        (Clip(min=2), ([-1, 1, 3],), [2, 2, 3]),
        (Abs(), ([-2.0, 2.0],), [2.0, 2.0]),
        (Rsqrt(), ([4.0, 0.25],), [0.5, 2.0]),
        (Sin(), ([0.0, np.pi / 6],), [0.0, np.sin(np.pi / 6)]),
        (Cos(), ([0.0, np.pi],), [1.0, -1.0]),
        (Arccos(), ([1.0, -1.0],), [0.0, np.pi]),
        (Sign(), ([-3.5, 0.0, 7.0],), [-1.0, 0.0, 1.0]),
        (Sign(), (np.array([0, 200], np.uint8),), [0, 1]),
        (Unary("neg"), ([-2, 2],), [2, -2]),
        (Unary("not"), ([True, False],), [False, True]),
        (Binary("<", right=2.5), ([2, 3],), [True, False]),
        (Binary("<", right=10**30), ([2, 3],), [True, True]),
        (Binary("==", right=300), (np.array([44, 255], np.uint8),), [False, False]),
        (Binary(">"), ([2**53 + 1], np.array([2**53], np.uint64)), [True]),  # not by way of float64
    ],
    ids=str,
)
def test_values(function: Function, arrays: tuple[Any, ...], expected: Any) -> None:
    found = evaluate(function, [np.asarray(array) for array in arrays])
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("function", "ufunc"), [(Sqrt(), np.sqrt), (Exp(), np.exp), (Log(), np.log), (Abs(), np.abs)]
)
def test_functions_of_narrow_floats_are_numpys_in_float32(function: Function, ufunc: Any) -> None:
    array = np.abs(numbers("bfloat16[5,7]"))
    assert same(evaluate(function, [array]), ufunc(array.astype(np.float32)))


def test_calls_without_arrays_give_numbers() -> None:
    assert Sqrt(x=16).constant() == 4.0
    assert Abs(x=-3).constant() == 3
    assert Maximum(2, 3.5).constant() == 3.5
    assert Clip(x=9, max=4).constant() == 4
    with pytest.raises(FunctionError, match=r"sqrt\(-1\) is not a number"):
        Sqrt(x=-1).constant()
    with pytest.raises(FunctionError, match=r"log\(0\) is not a number"):
        Log(x=0).constant()


def test_clip_needs_a_bound() -> None:
    with pytest.raises(FunctionError, match="`clip` needs `min`, `max` or both"):
        Clip()


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
