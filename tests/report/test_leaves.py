"""Leaves and listings in words and as JSON."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.leaves import describe, short_spec
from tests.support.leaves import leaf


@pytest.mark.each
@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (ml_dtypes.bfloat16, "bf16[2,8]"),
        (np.float32, "f32[2,8]"),
        (np.int8, "i8[2,8]"),
        (np.uint16, "u16[2,8]"),
        (np.bool_, "bool[2,8]"),
        (np.complex64, "c64[2,8]"),
        (ml_dtypes.float8_e4m3fn, "f8_e4m3fn[2,8]"),
        (ml_dtypes.int4, "i4[2,8]"),
    ],
)
def test_short_spec(dtype, text):
    assert short_spec(ArraySpec((2, 8), np.dtype(dtype))) == text


@pytest.mark.parametrize(
    ("described", "text"),
    [
        (leaf("k", "float32[]"), "f32[]"),
        (leaf("k", "scalar:int64"), "scalar i64"),
        (leaf("k", "string"), "string"),
        (Leaf(Key.parse("k"), LeafKind.EMPTY, empty="Dict"), "empty Dict"),
        (leaf("k", "prng_key"), "prng_key(threefry2x32) u32[2]"),
    ],
)
def test_describe(described, text):
    assert describe(described) == text
