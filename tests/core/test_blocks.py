"""The regions in which leaves are read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.blocks import read_regions
from tests.support.leaves import array_leaf
from tests.support.memory import MemorySource

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


def test_arrays_without_a_manifest_can_be_cut_anywhere():
    leaf = array_leaf("w", (8, 8), np.dtype(np.float64))
    assert [region.shape for region in read_regions(leaf, 8 * 8 * 8)] == [(1, 8)] * 8


@settings(deadline=None, max_examples=60)
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
