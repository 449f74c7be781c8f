"""Leaves, and the regions in which they are read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, array_repr, read_regions
from tests.support.effort import examples
from tests.support.leaves import array_leaf, leaf
from tests.support.memory import MemorySource


@pytest.mark.each
@pytest.mark.parametrize(
    ("described", "nbytes", "shown"),
    [
        ("float32[2,4]", 32, "float32[2,4] 32 B"),
        ("bfloat16[5]", 10, "bfloat16[5] 10 B"),
        ("float32[0,3]", 0, "float32[0,3] 0 B"),
        ("scalar:int64", 8, "scalar int64[]"),
        ("prng_key", 8, "prng_key(threefry2x32) uint32[2]"),
        ("string", 0, "string 'hello'"),
        ("empty", 0, "empty ''"),
    ],
)
def test_bytes_in_memory_and_what_is_shown(described: str, nbytes: int, shown: str) -> None:
    one = leaf("params/w", described)
    assert (one.nbytes, repr(one)) == (nbytes, f"<Leaf 'params/w' {shown}>")


def test_kinds_have_the_names_that_json_documents_hold() -> None:
    assert [str(kind) for kind in LeafKind] == ["array", "scalar", "string", "prng_key", "empty", "object"]
    assert LeafKind("prng_key") is LeafKind.PRNG_KEY


def test_a_text_is_cut_and_an_empty_node_says_what_it_is() -> None:
    assert repr(Leaf(Key.parse("a"), LeafKind.EMPTY, empty="Dict")) == "<Leaf 'a' empty 'Dict'>"
    assert len(repr(Leaf(Key.parse("a"), LeafKind.STRING, string="adam" * 1000))) < 100


@pytest.mark.parametrize("key", ["\x1b[31m\n", "\u202e", "x" * 100_000, "\U000e0001" * 100_000])
def test_hostile_keys_are_escaped_and_cut(key: str) -> None:
    shown = array_repr("LazyArray", key, ArraySpec((8, 4), np.dtype("float32")))
    assert shown.startswith("<LazyArray '")
    assert shown.endswith("' float32[8,4] 128 B>")
    assert shown.isprintable()
    assert len(shown) < 200


REGIONS = [
    ((8, 8), (2, 8), "zstd", 8 * 8 * 32, [(4, 8)] * 2, "two chunks fit"),
    ((8, 8), (2, 8), "zstd", 8, [(2, 8)] * 4, "one chunk at least, it is decoded whole"),
    ((8, 8), (8, 8), "raw", 8 * 8 * 8, [(1, 8)] * 8, "raw bytes may be cut anywhere"),
    ((8, 8), (3, 5), "zstd", 1 << 20, [(8, 8)], "all of it fits"),
    ((0, 8), (1, 8), "zstd", 1 << 20, [], "nothing to read"),
    ((), (), "zstd", 1 << 20, [()], "a scalar"),
]


@pytest.mark.parametrize(("shape", "chunks", "codec", "memory", "regions", "reason"), REGIONS)
def test_read_regions(shape, chunks, codec, memory, regions, reason):
    leaf = MemorySource({"w": np.zeros(shape)}, {"w": chunks}, codec).leaves()["w"]
    assert [region.shape for region in read_regions(leaf, memory)] == regions, reason
    whole = array_leaf("w", (8, 8), np.dtype(np.float64))  # without a manifest
    assert [region.shape for region in read_regions(whole, 8 * 8 * 8)] == [(1, 8)] * 8


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=3),
    st.integers(1, 4096),
    st.sampled_from(["raw", "zstd"]),
)
def test_read_regions_cover_everything_once(axes, memory, codec):
    shape, chunks = tuple(n for n, _ in axes), tuple(c for _, c in axes)
    leaf = MemorySource({"w": np.zeros(shape)}, {"w": chunks}, codec).leaves()["w"]
    seen = np.zeros(shape, int)
    for region in read_regions(leaf, memory):
        assert all(start % c == 0 for start, c in zip(region.starts, chunks, strict=True)) or codec == "raw"
        seen[region.slices] += 1
    assert (seen == 1).all()
