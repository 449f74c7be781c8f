"""Bytes that regions read and hold: bounds that evaluation stays within."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest, raw_codec
from ckpt_surgery.functions.arrays import Apply, Node
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.graph.walks import READ_SPAN, SHORT_RUN, decoded_bytes, needed, working_set
from tests.support.chunked_nodes import leaf, nodes, raw_leaf
from tests.support.effort import examples
from tests.support.strategies import regions


@examples(60)
@given(node=nodes(), data=st.data())
def test_the_working_set_bounds_what_evaluation_allocates(node: Node, data: st.DataObject) -> None:
    region = data.draw(regions(node.spec.shape, empty=False))

    def read(source: str, leaf: Leaf, part: Region) -> np.ndarray:
        return np.ones(part.shape, np.float32)

    evaluate(node, region, read)
    tracemalloc.start()
    evaluate(node, region, read)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    objects = 20_000  # Python's own small objects, regions and specs
    assert peak <= working_set(node, region) + objects


def test_needed_names_the_regions_of_the_leaves() -> None:
    source = leaf((4, 6), (4, 6))
    node = Apply(Transpose(), (source,))
    assert list(needed(node, Region((1, 0), (3, 4)))) == [(source, Region((0, 1), (4, 3)))]


def test_what_regions_of_raw_chunks_take() -> None:
    for region, order, fetched in (
        (Region((0, 0), (16, 1024)), "C", 16 * 4096),  # whole rows, one after another
        (Region((0, 0), (1, 1024)), "C", SHORT_RUN),  # a short run takes as long as a longer one
        (Region((0, 0), (1024, 8)), "C", 1024 * 4096),  # 32 bytes of each: the rest is read along
        (Region((0, 0), (1024, 8)), "F", 8 * 4096),  # eight columns, which are stored as rows
        (Region((5, 5), (6, 6)), "C", 4096),
    ):
        read = raw_leaf((1024, 1024), order)
        assert read.leaf.manifest is not None
        assert read.leaf.manifest.supports_partial_reads
        assert decoded_bytes(read, region) == fetched
        nbytes = region.size * 4
        assert working_set(read, region) == 2 * nbytes + READ_SPAN


def test_small_raw_chunks_are_read_whole() -> None:
    """And so are those of types of which a byte may be no value."""
    assert working_set(raw_leaf((100, 100)), Region((0, 0), (1, 1))) == 4 + 2 * 40_000
    spec = ArraySpec((4096, 4096), np.dtype(bool))
    assert not Manifest(spec, spec.shape, raw_codec(2), {}).supports_partial_reads
