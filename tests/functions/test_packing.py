"""Numbers of 2 and 4 bits out of bytes, against values by hand and gpt-oss's own table."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.packing import Unpack
from ckpt_surgery.functions.quantization import Dequantize
from tests.support.comparing import same
from tests.support.evaluation import evaluate

FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
"""The values of float4_e2m1fn by their bits, as the MX specification lists them."""


@pytest.mark.parametrize(
    ("name", "byte", "numbers"),
    [
        ("float4_e2m1fn", 0x72, [1.0, 6.0]),
        ("float4_e2m1fn", 0x9F, [-6.0, -0.5]),
        ("int4", 0x8F, [-1, -8]),
        ("uint4", 0x8F, [15, 8]),
        ("int2", 0b10_01_11_00, [0, -1, 1, -2]),
        ("uint2", 0b10_01_11_00, [0, 3, 1, 2]),
    ],
)
def test_low_bits_come_first(name: str, byte: int, numbers: list[float]) -> None:
    for stored in (np.array([byte], np.uint8), np.array([byte], np.uint8).view(np.int8)):
        found = evaluate(Unpack(dtype_named(name)), [stored])
        assert found.dtype == dtype_named(name)
        assert found.astype(np.float32).tolist() == numbers


@given(codes=st.lists(st.integers(0, 255), min_size=32, max_size=96), scale=st.integers(100, 150))
def test_mxfp4_is_a_table_of_sixteen_times_a_power_of_two(codes: list[int], scale: int) -> None:
    blocks = np.array(codes[: len(codes) // 16 * 16], np.uint8).reshape(-1, 16)
    scales = np.full((len(blocks), 1), scale, np.uint8)
    values = evaluate(Unpack(dtype_named("float4_e2m1fn")), [blocks])
    powers = scales.view(ml_dtypes.float8_e8m0fnu)
    found = evaluate(Dequantize(None, dtype_named("bfloat16")), [values, powers])
    by_hand = [[FP4[half] for byte in row for half in (byte & 15, byte >> 4)] for row in blocks.tolist()]
    assert same(found, np.ldexp(np.array(by_hand, np.float32), scale - 127))


def test_what_is_refused() -> None:
    with pytest.raises(FunctionError, match="`unpack` does not support int8; use one of float4_e2m1fn, int4"):
        Unpack(dtype_named("int8"))
    for spec in (ArraySpec((), np.dtype(np.uint8)), ArraySpec((4,), np.dtype(np.float32))):
        with pytest.raises(FunctionError, match="`unpack` needs bytes, uint8 or int8, along an axis, not"):
            Unpack(dtype_named("int4")).infer([spec])
