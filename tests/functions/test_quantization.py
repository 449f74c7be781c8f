"""Quantized weights: exact values, bounds of the error, and DeepSeek-V3's block scales."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named, limits
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.quantization import PARTS, Quantize, Unpack, dequantize
from tests.support.arrays import numbers
from tests.support.calling import lazily, result_of
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import declared_by, lazy

F32, BF16, F64, INT8, F8 = map(dtype_named, ("float32", "bfloat16", "float64", "int8", "float8_e4m3fn"))


def quantized(x: np.ndarray, dtype: np.dtype, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    values, scale = (evaluate(Quantize(dtype, axis, part), [x]) for part in PARTS)
    return values, scale


def test_int8_by_hand() -> None:
    x = np.array([[127.0, -63.5, 1.5, 0.5], [0, 0, 0, 0], [-2.54, 0.01, 0.03, 2.0]], np.float32)
    values, scale = quantized(x, INT8, 1)
    assert values.tolist() == [[127, -64, 2, 0], [0, 0, 0, 0], [-127, 0, 2, 100]]  # halves to even
    assert scale.dtype == F32
    assert scale.ravel().tolist() == [1.0, 0.0, np.float32(2.54) / np.float32(127)]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_float_targets_use_their_whole_range(name: str) -> None:
    dtype = dtype_named(name)
    x = numbers("float32[4,6]")
    values, scale = quantized(x, dtype, None)
    expected = np.abs(x).max() / np.float32(limits(dtype)[1])
    assert scale.shape == (1, 1)
    assert scale.item() == expected
    assert same(values, np.clip(x / expected, *limits(dtype)).astype(dtype))


def test_dtypes_of_the_parts() -> None:
    assert Quantize(INT8, 0, "scale").infer([ArraySpec((2, 3), BF16)]) == ArraySpec((1, 3), F32)
    assert declared_by(Quantize(INT8, 0, "scale"), BF16) == F32
    assert declared_by(Quantize(INT8, 0, "scale"), F64) == F64
    assert declared_by(Quantize(INT8, 0), BF16) == INT8
    x, scale = lazy((2,), F8), lazy((1,), BF16)
    assert dequantize(x, scale).spec == ArraySpec((2,), BF16)
    assert dequantize(x, scale).node.spec.dtype == F32
    assert dequantize(x, scale, dtype=F64).node.spec == ArraySpec((2,), F64)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_cannot_be_quantized(bad: float) -> None:
    with pytest.raises(DataError, match="the array has NaN or infinite values"):
        evaluate(Quantize(INT8), [np.array([1.0, bad], np.float32)])


def test_blocks_of_128_as_deepseek_v3_has_them() -> None:
    x = numbers("float8_e4m3fn[300,130]", 1)
    scale = np.abs(numbers("float32[3,2]", 2))
    row, column = np.indices(x.shape)
    expected = x.astype(F32) * scale[row // 128, column // 128]
    assert same(result_of(dequantize, x, scale, block=(128, 128)), expected)
    part = Region((127, 0), (129, 128))
    assert same(result_of(dequantize, x, scale, region=part, block=(128, 128)), expected[part.slices])


def test_blocks_can_be_as_long_as_an_axis_or_longer_and_stacked_experts_have_a_grid_each() -> None:
    x = numbers("int8[5,7]", 1)
    row, column = np.indices(x.shape)
    for height, width in ((5, 9), (1, 1), (2, 7), (6, 3)):
        scale = numbers(f"float32[{-(-5 // height)},{-(-7 // width)}]", 2)
        found = result_of(dequantize, x, scale, block=(height, width))
        assert same(found, x * scale[row // height, column // width])
    x, scale = numbers("int8[2,5,6]", 1), numbers("float64[2,2,2]", 2)
    expected = x * np.repeat(np.repeat(scale, 4, 1), 3, 2)[:, :5]
    assert same(result_of(dequantize, x, scale, block=(4, 3)), expected)


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Quantize(INT8, 0), ("float32[0,3]",), "float32[0,3] has no elements to compute a scale from"),
]


def test_scales_that_do_not_fit() -> None:
    for block, texts, message in (
        (None, ("int8[3]", "float32[2,3]"), "needs a scale that broadcasts"),
        ((2, 2), ("int8[3]", "float32[2]"), "an array of 1 axes\n  Leave out `block` for a scale that"),
        ((0,), ("int8[3]", "float32[2]"), "blocks of (0,)"),
        (None, ("int8[3]", "int8[3]"), "needs integers or floats with a float scale"),
    ):
        with pytest.raises(FunctionError) as caught:
            dequantize(*lazily([numbers(text) for text in texts]), block=block)
        assert message in str(caught.value)


FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
"""The values of float4_e2m1fn by their bits, as the MX specification lists them."""


def test_low_bits_come_first() -> None:
    for name, byte, values in (
        ("float4_e2m1fn", 0x9F, [-6.0, -0.5]),
        ("int4", 0x8F, [-1, -8]),
        ("int2", 0b10_01_11_00, [0, -1, 1, -2]),
        ("uint2", 0b10_01_11_00, [0, 3, 1, 2]),
    ):
        for stored in (np.array([byte], np.uint8), np.array([byte], np.uint8).view(np.int8)):
            found = evaluate(Unpack(dtype_named(name)), [stored])
            assert found.dtype == dtype_named(name)
            assert found.astype(np.float32).tolist() == values


@given(codes=st.lists(st.integers(0, 255), min_size=32, max_size=96), scale=st.integers(100, 150))
def test_mxfp4_is_a_table_of_sixteen_times_a_power_of_two(codes: list[int], scale: int) -> None:
    blocks = np.array(codes[: len(codes) // 16 * 16], np.uint8).reshape(-1, 16)
    scales = np.full((len(blocks), 1), scale, np.uint8)
    values = evaluate(Unpack(dtype_named("float4_e2m1fn")), [blocks])
    powers = scales.view(ml_dtypes.float8_e8m0fnu)
    found = result_of(dequantize, values, powers, dtype=BF16).astype(np.float32)
    by_hand = [[FP4[half] for byte in row for half in (byte & 15, byte >> 4)] for row in blocks.tolist()]
    assert same(found, np.ldexp(np.array(by_hand, np.float32), scale - 127))


def test_what_is_refused() -> None:
    with pytest.raises(FunctionError, match="`dequantize` gives a float dtype, not int8"):
        dequantize(lazy(), lazy(), dtype=INT8)
    with pytest.raises(FunctionError, match="`quantize` does not support uint8; use one of int8, int4"):
        Quantize(np.dtype(np.uint8))
    with pytest.raises(FunctionError, match="`unpack` does not support int8; use one of float4_e2m1fn, int4"):
        Unpack(dtype_named("int8"))
    for spec in (ArraySpec((), np.dtype(np.uint8)), ArraySpec((4,), np.dtype(np.float32))):
        with pytest.raises(FunctionError, match="`unpack` needs bytes, uint8 or int8, along an axis, not"):
            Unpack(dtype_named("int4")).infer([spec])
