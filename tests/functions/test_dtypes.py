"""Casts: the values, and what becomes of those that a type does not have."""

import math
import re

import numpy as np
import pytest

from ckpt_surgery.core.dtypes import (
    declared_dtype_of,
    dtype_named,
    has_infinity,
    has_nan,
    kind,
    promoted,
)
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.dtypes import Bitcast, Cast, Rounded, is_inexact, number_as
from tests.functions.test_rounding import SOURCES
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate, spec_of

NAN, INF = math.nan, math.inf

NAMES = (*SOURCES, "complex64", "complex128")


def cast(values: object, source: str, target: str, on_overflow: str = "error") -> np.ndarray:
    return evaluate(Cast(dtype_named(target), on_overflow), [np.array(values).astype(dtype_named(source))])


def test_which_types_have_infinity_and_nan() -> None:
    both = {n for n in NAMES if has_infinity(dtype_named(n))}
    assert both == {
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e3m4", "float8_e4m3", "float8_e5m2"),
    }
    nan_only = {n for n in NAMES if has_nan(dtype_named(n))} - both
    assert nan_only == {
        *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    }


@pytest.mark.parametrize("source", NAMES)
def test_values_that_both_types_have_are_cast_exactly(source: str) -> None:
    for target in NAMES:
        values = [1] if "float8_e8m0fnu" in (source, target) else [0, 1]
        if kind(dtype_named(source)) != "c" or kind(dtype_named(target)) in "bc":
            assert cast(values, source, target).astype(np.complex128).tolist() == values, target


def test_casts_that_fit() -> None:
    for values, source, target, result in (
        ([1.7, -1.7, -128.9, 127.9], "float32", "int8", [1, -1, -128, 127]),  # truncated, so within range
        ([0.1, 0.0, NAN, -2.0], "float32", "bool", [True, False, True, True]),
        ([-8, 7], "int32", "int4", [-8, 7]),
        ([2**63 - 1], "int64", "float32", [2.0**63]),
    ):
        expected = np.array(result).astype(dtype_named(target))
        for on_overflow in ("error", "saturate"):
            assert same(cast(values, source, target, on_overflow), expected)


TOO_LARGE = [
    # values, source, target, the value named in the error, saturated, as IEEE has it (None: refused)
    ([1.0, 1e5, -7e4], "float32", "float16", "100000.0", [1, 65504, -65504], [1, INF, -INF]),
    ([INF, -INF, NAN], "float32", "float8_e4m3fn", "inf", [448, -448, NAN], [NAN, NAN, NAN]),
    ([0.0, -3.0, 4.0], "float32", "float8_e8m0fnu", "-3.0", [2**-127, 2**-127, 4], [NAN, NAN, 4]),
    ([7.0, -1e9, INF], "float32", "float4_e2m1fn", "inf", [6, -6, 6], None),
    ([127, 128, -129], "int64", "int8", "-129", [127, 127, -128], None),
    ([-1, 255], "int16", "uint8", "-1", [0, 255], None),
    ([8, -8], "int8", "int4", "8", [7, -8], None),
    ([128.0, 3e9, -INF], "float32", "int8", "-inf", [127, 127, -128], None),
    ([2**64 - 1], "uint64", "int64", "18446744073709551615", [2**63 - 1], None),
    ([2.0**63], "float64", "int64", "9.223372036854776e+18", [2**63 - 1], None),
]


def test_casts_that_do_not_fit() -> None:
    for values, source, target, worst, clamped, ieee in TOO_LARGE:
        with pytest.raises(DataError, match=r"out of range.*on_overflow='saturate'") as caught:
            cast(values, source, target)
        assert str(caught.value).startswith(f"cast to {target}: {worst} is out of range")
        assert same(cast(values, source, target, "saturate"), np.array(clamped).astype(dtype_named(target)))
        if ieee is None:
            with pytest.raises(FunctionError, match=f"{target} has neither infinity nor NaN"):
                cast(values, source, target, "inf")
        else:
            found = cast(values, source, target, "inf").astype(np.float64)
            np.testing.assert_array_equal(found, ieee)  # a NaN may have a sign


def test_a_result_that_its_dtype_does_not_hold() -> None:
    """Nobody wrote a cast, so none is spoken of but as the remedy."""
    for values, source, target, says in (
        ([5, -323718], "int64", "int8", "-323718 is out of range, -128 to 127 (1 of 2 values here, at [1])"),
        ([5, -323718], "int64", "int8", "  Write cast(…, 'int64') around the value to keep it as it was"),
        ([NAN], "float32", "float4_e2m1fn", "the dtype has no NaN (1 of 1 values here, at [0])"),
        ([1e40j], "complex128", "complex64", "  Write cast(…, 'complex128') around the value to keep it"),
    ):
        with pytest.raises(DataError, match=re.escape(says)):
            evaluate(Rounded(dtype_named(target)), [np.array(values, dtype_named(source))])


@pytest.mark.parametrize("on_overflow", ["error", "saturate"])
@pytest.mark.parametrize("target", ["int32", "uint4", "float4_e2m1fn"])
def test_nan_has_no_nearest_value(target: str, on_overflow: str) -> None:
    with pytest.raises(DataError, match=f"cast to {target}: the dtype has no NaN"):
        cast([1.0, NAN], "float32", target, on_overflow)


def test_complex_numbers_lose_no_part_silently() -> None:
    with pytest.raises(FunctionError, match="would drop the imaginary part"):
        cast([1 + 0j], "complex64", "float32")
    with pytest.raises(DataError, match=r"\(1\+1e\+40j\) is out of range"):
        cast([1 + 1e40j], "complex128", "complex64")
    assert cast([1 + 2j, 0], "complex64", "complex128").tolist() == [1 + 2j, 0]


def test_types_with_fractions_and_without_by_dtype_and_by_name() -> None:
    for name, expected in (("bfloat16", True), ("complex64", True), ("int4", False), ("bool", False)):
        assert is_inexact(dtype_named(name)) is is_inexact(name) is expected  # type: ignore[arg-type]


def test_a_misspelt_on_overflow() -> None:
    with pytest.raises(FunctionError, match="not 'saturated'; did you mean `saturate`"):
        Cast(np.dtype(np.int8), "saturated")


def test_bitcast_is_numpys_view() -> None:
    for source, target in (
        ("uint16[3,4]", "bfloat16"),
        ("float32[2,4]", "uint8"),
        ("int8[2,8]", "float64"),
        ("complex64[3]", "float32"),
        ("float32[2,2]", "float8_e4m3fn"),
    ):
        array = numbers(source)
        assert same(evaluate(Bitcast(dtype_named(target)), [array]), array.view(dtype_named(target)))


def test_bitcasts_that_are_refused() -> None:
    for source, target, message in (
        ("int8[3]", "float32", "the last axis of int8[3] does not divide into items of float32 (4 bytes)"),
        ("float32[]", "int8", "the last axis of float32[]"),
        ("int4[4]", "int8", "not every byte is a value of both"),
    ):
        with pytest.raises(FunctionError, match=re.escape(message)):
            Bitcast(dtype_named(target)).infer([spec_of(numbers(source))])


def test_numbers_of_the_recipe_take_a_dtype() -> None:
    for number, dtype, found in (
        (3, "int4", 3),
        (2.0, "int32", 2),
        (2**64 - 1, "uint64", 2**64 - 1),
        (True, "bool", True),
        (0.1, "float32", np.float32(0.1)),
        (INF, "bfloat16", INF),
    ):
        result = number_as(number, dtype_named(dtype))
        assert (result.dtype.name, result.shape, result.item()) == (dtype, (), found)


def test_numbers_that_a_dtype_does_not_have() -> None:
    for number, dtype, message in (
        (2.5, "int8", "2.5 is not an integer, but the array is int8"),
        (NAN, "int8", "nan is not an integer"),
        (2, "bool", "2 is out of range of bool"),
        (1e300, "float32", "float32 cannot represent 1e+300"),
        (10**400, "float64", "float64 cannot represent"),
        (INF, "float8_e4m3fn", "float8_e4m3fn cannot represent inf"),
    ):
        with pytest.raises(FunctionError, match=re.escape(message)):
            number_as(number, dtype_named(dtype))


def test_types_of_several_arrays() -> None:
    for names, work, declared in (
        (("bfloat16", "float16"), "float32", "bfloat16"),
        (("bfloat16", "float64"), "float64", "bfloat16"),
        (("float32", "int8"), "float32", "float32"),
        (("float32", "int32"), "float64", "float32"),  # float32 does not hold every int32
        (("int8", "int32"), "int32", "int8"),
        (("bool", "bfloat16"), "float32", "bfloat16"),  # a mask
        (("bool", "bool"), "bool", "bool"),
        (("int4", "int4"), "int8", "int4"),
    ):
        dtypes = [dtype_named(name) for name in names]
        assert promoted(dtypes, "+").name == work
        assert declared_dtype_of(promoted(dtypes, "+"), dtypes).name == declared


def test_types_that_do_not_go_together() -> None:
    for names, message in (
        (("float32", "complex64"), "Cast the float32 array to complex64 first."),
        (("int64", "uint64"), "no integer type holds both int64 and uint64"),
    ):
        with pytest.raises(FunctionError, match=re.escape(message)):
            promoted([dtype_named(name) for name in names], "*")
