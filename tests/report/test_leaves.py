"""Leaves and listings in words and as JSON."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.leaves import describe, short_spec
from tests.support.leaves import array_leaf

BF16 = np.dtype(ml_dtypes.bfloat16)


F32 = np.dtype(np.float32)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (BF16, "bf16[2,8]"),
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
    ("leaf", "text"),
    [
        (array_leaf("k", ()), "f32[]"),
        (Leaf(Key.parse("k"), LeafKind.SCALAR, ArraySpec((), np.dtype(np.int64))), "scalar i64"),
        (Leaf(Key.parse("k"), LeafKind.STRING, string="x"), "string"),
        (Leaf(Key.parse("k"), LeafKind.EMPTY, empty="Dict"), "empty Dict"),
        (
            Leaf(Key.parse("k"), LeafKind.PRNG_KEY, ArraySpec((2,), np.dtype(np.uint32)), prng_impl="rbg"),
            "prng_key(rbg) u32[2]",
        ),
    ],
)
def test_describe(leaf, text):
    assert describe(leaf) == text
