"""Lists of arrays, stacked and concatenated, against NumPy."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.joining import Concat, Stack
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import declared_by

BF16, F32, INT8 = map(dtype_named, ("bfloat16", "float32", "int8"))


def specs(*texts: str) -> list[ArraySpec]:
    return [ArraySpec(a.shape, a.dtype) for a in map(numbers, texts)]


def test_stack_puts_arrays_in_their_places_and_fills_the_gaps() -> None:
    a, b = (numbers("float32[2]", seed) for seed in range(2))
    found = evaluate(Stack(fill=-1, count=5, places=(3, 1)), [a, b])
    gap = np.full(2, -1, np.float32)
    assert same(found, np.stack([gap, b, gap, a, gap]))
    assert same(evaluate(Stack(fill=-1, places=(0, 2)), [a, b]), np.stack([a, gap, b]))


def test_a_region_of_a_stack_reads_the_arrays_that_it_meets() -> None:
    ins = specs(*["float32[4,6]"] * 8)
    needed = Stack(1).needs(Region((0, 2, 3), (4, 4, 6)), ins)
    assert needed == [(2, Region((0, 3), (4, 6))), (3, Region((0, 3), (4, 6)))]
    gaps = Stack(1, fill=0, count=20, places=tuple(range(8)))
    assert gaps.needs(Region((0, 9, 0), (4, 20, 6)), ins) == []


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Stack(), ("int8[2]", "float32[2]"), "`stack`: arrays of int8 and float32 in one list"),
    (Stack(count=9), ("int8[2]",) * 2, "no array has the index 2, 3, 4, 5, 6, … of 0 to 8"),
    (Stack(places=(1, 1), fill=0), ("int8[2]",) * 2, "`stack`: 2 arrays need 2 different indices"),
    (Stack(places=(0,), fill=0), ("int8[2]",) * 2, "need 2 different indices of 0 or more, not 0"),
    (Concat(), ("int8[2,3]", "int8[2,4]"), "array 1 is int8[2,4]; they can differ only in axis 0"),
    (Concat(), ("int8[2]", "bool[2]"), "arrays of int8 and bool in one list"),
    (Concat(), ("int64[2]", "uint64[2]"), "`concat`: no integer type holds both int64 and uint64"),
]


@pytest.mark.parametrize("function", [Stack(), Concat()])
def test_a_list_has_one_nominal_dtype(function: Function) -> None:
    assert declared_by(function, BF16, BF16) == BF16
    with pytest.raises(FunctionError, match=r"arrays of bfloat16 and float32 in one list"):
        declared_by(function, BF16, F32)
    with pytest.raises(FunctionError, match=r"arrays of int8 and int16 in one list"):
        declared_by(function, INT8, np.dtype(np.int16))
    assert declared_by(Stack(fill=-1, count=3), INT8, INT8) == INT8
    for fill in (0.5, 300):  # what fills a stack is of its nominal dtype
        with pytest.raises(FunctionError, match=f"{fill} is .* int8"):
            declared_by(Stack(fill=fill, count=3), INT8, INT8)


def test_computed_and_stored_arrays_of_one_nominal_dtype_are_held_by_float32() -> None:
    stored, computed = numbers("bfloat16[2]", 1), numbers("float32[2]", 2)
    expected = np.concatenate([stored.astype(F32), computed])
    assert same(evaluate(Concat(), [stored, computed]), expected)
    assert same(evaluate(Stack(), [stored, computed]), expected.reshape(2, 2))


def test_concat_is_numpys() -> None:
    arrays = [numbers(text, seed) for seed, text in enumerate(("int4[2,3]", "int4[2,1]", "int4[2,5]"))]
    assert same(evaluate(Concat(-1), arrays), np.concatenate(arrays, -1))
    assert Concat(1).needs(Region((0, 2), (2, 4)), specs("int4[2,3]", "int4[2,1]", "int4[2,5]")) == [
        (0, Region((0, 2), (2, 3))),
        (1, Region((0, 0), (2, 1))),
    ]
