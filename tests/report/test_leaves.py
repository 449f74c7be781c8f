"""Leaves and listings in words and as JSON."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest
from ckpt_surgery.report.leaves import describe, leaf_rows, short_spec
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


def stored(key: str, chunks=(1, 3)) -> Leaf:
    spec = ArraySpec((2, 3), F32)
    manifest = Manifest(
        spec, chunks, Codec("zstd", tuple(range(len(chunks))), "[]"), {(0, 0): Chunk("d/0", 0, 12)}
    )
    return Leaf(Key.parse(key), LeafKind.ARRAY, spec, manifest)


def test_leaf_rows_fold_only_what_looks_the_same():
    leaves = [stored("l_0"), stored("l_1"), stored("l_2", (2, 3)), array_leaf("l_3")]
    rows = leaf_rows(leaves)
    assert [(r.key, r.count, r.spec, r.nbytes, r.chunks) for r in rows] == [
        ("l_{0,1}", 2, "f32[2,3]", 48, "[1,3] C zstd"),
        ("l_2", 1, "f32[2,3]", 24, "[2,3] C zstd"),
        ("l_3", 1, "f32[2,3]", 24, ""),
    ]
    assert [row.key for row in leaf_rows(leaves, full=True)] == ["l_0", "l_1", "l_2", "l_3"]


def test_leaf_rows_are_apart_where_shardings_are():
    leaves = [
        array_leaf("l_0", sharding='{"device_str": "cpu:0"}'),
        array_leaf("l_1", sharding='{"device_str": "cpu:1"}'),
    ]
    assert [(r.key, r.sharding) for r in leaf_rows(leaves)] == [("l_0", "cpu:0"), ("l_1", "cpu:1")]


def test_leaf_rows_are_apart_where_values_are():
    leaves = [array_leaf(f"l_{i}", ()) for i in range(3)]
    texts = {"l_0": "= 1", "l_1": "= 1", "l_2": "= 2"}
    assert [(r.key, r.value) for r in leaf_rows(leaves, texts=texts)] == [("l_{0,1}", "= 1"), ("l_2", "= 2")]
