"""Chunks and tasks that stay within a budget."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.arrays import (
    ArraySpec,
    Codec,
    Leaf,
    LeafKind,
    Manifest,
    Region,
    bytes_codec,
    chunk_regions,
    covering_chunks,
    encoding_of,
    raw_codec,
)
from ckpt_surgery.costs import (
    READ_SPAN,
    SHORT_RUN,
    WRITE_BUFFER,
    _decoded,
    cut,
    grid_of,
    needed,
    output_chunks,
    size,
    working_set,
)
from ckpt_surgery.errors import PlanError
from ckpt_surgery.execute import evaluate
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.layout import Reshape, Transpose
from ckpt_surgery.functions.merge import Stack
from ckpt_surgery.keys import Key
from ckpt_surgery.nodes import Apply, Node, Read

F32 = np.dtype(np.float32)
MIB = 1 << 20


def leaf(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype = F32) -> Read:
    """A stored array without bytes, of chunks that are decoded as a whole."""
    spec = ArraySpec(shape, dtype)
    zstd = encoding_of([bytes_codec("little"), {"name": "zstd"}])
    manifest = Manifest(spec, chunks, Codec("zstd", tuple(range(len(shape))), zstd), {})
    return Read("source", Leaf(Key.parse("a"), LeafKind.ARRAY, spec, manifest))


def raw_leaf(shape: tuple[int, ...], order: str = "C") -> Read:
    """A stored array that is one raw chunk, without bytes."""
    spec, axes = ArraySpec(shape, F32), tuple(range(len(shape)))
    codec = Codec("raw", axes if order == "C" else axes[::-1], raw_codec(len(shape)).encoding)
    return Read("source", Leaf(Key.parse("a"), LeafKind.ARRAY, spec, Manifest(spec, shape, codec, {})))


@pytest.mark.parametrize(
    ("shape", "near", "limit", "chunks"),
    [
        ((4, 6), (1, 1), 10**6, (4, 6)),  # fits: one chunk
        ((1024, 1024), (1, 1), MIB, (256, 1024)),  # whole rows
        ((1024, 1024), (1, 1), 4096, (1, 1024)),  # exactly one row
        ((1024, 1024), (1, 1), 2048, (1, 512)),  # not even one row
        ((1024, 1024), (512, 1024), 4 * MIB, (512, 1024)),  # the source's grid is good
        ((1024, 1024), (1, 1024), 4 * MIB, (1024, 1024)),  # the source's chunks are tiny
        ((1024, 1024), (1024, 256), MIB, (1024, 256)),  # columns, as the source has them
        ((), (), 10, ()),  # a scalar
        ((0, 3), (1, 1), 10, (1, 2)),  # nothing in it
        ((10,), (1,), 12, (3,)),  # pieces as equal as can be
    ],
)
def test_output_chunks(shape, near, limit, chunks) -> None:
    assert output_chunks(ArraySpec(shape, F32), shape, near, limit) == chunks


def test_chunks_divide_a_block_that_does_not_cover_the_axis() -> None:
    assert output_chunks(ArraySpec((100, 8), F32), (10, 8), (1, 1), 3 * 32) == (2, 8)


@pytest.mark.parametrize(
    ("node", "grid"),
    [
        (leaf((64, 64), (16, 64)), (16, 64)),  # as it is stored
        (Apply(Transpose(), (leaf((64, 32), (16, 32)),)), (32, 16)),  # the periods go with their axes
        (Apply(Cast(np.dtype(np.float64)), (leaf((64,), (8,)),)), (8,)),
        (Apply(Stack(), (leaf((6, 4), (3, 4)), leaf((6, 4), (3, 4)))), (1, 3, 4)),  # a part of its own each
        (Apply(Reshape((8, 8)), (leaf((64,), (8,)),)), (8, 8)),  # anything else: the whole axis
    ],
)
def test_grid_of(node: Node, grid: tuple[int, ...]) -> None:
    assert grid_of(node) == grid


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (6 << 30, "6.0 GiB")]
)
def test_size(n: int, text: str) -> None:
    assert size(n) == text


def test_a_rename_reads_every_chunk_once() -> None:
    source = leaf((8192, 8192), (512, 8192))
    made = cut(source, 1 << 30)
    assert made.chunks == (512, 8192)
    assert made.read == source.spec.nbytes


def test_a_transpose_is_cut_along_the_axis_that_reads_least() -> None:
    """Rows of the result are columns of the source: the cut follows the source's chunks."""
    source = leaf((8192, 8192), (512, 8192))
    made = cut(Apply(Transpose(), (source,)), 512 * MIB)
    assert made.block[0] == 8192
    assert made.read == source.spec.nbytes


def test_a_stack_reads_every_part_once() -> None:
    parts = tuple(leaf((1024, 1024), (1024, 1024)) for _ in range(64))
    made = cut(Apply(Stack(), parts), 512 * MIB)
    assert made.read == sum(p.spec.nbytes for p in parts)
    assert made.working_set <= 512 * MIB


def test_a_chunk_larger_than_the_budget_is_refused_with_both_numbers() -> None:
    with pytest.raises(PlanError, match=r"needs 8\.0 GiB at a time .* the budget is 512\.0 MiB") as caught:
        cut(leaf((1 << 20, 1 << 10), (1 << 20, 1 << 10)), 512 * MIB)
    assert "--memory 9GiB" in str(caught.value)


SHAPES = st.lists(st.integers(1, 40), min_size=0, max_size=3).map(tuple)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(SHAPES)
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    node: Node = leaf(shape, chunks)
    for function in draw(st.lists(st.sampled_from([Transpose(), Cast(np.dtype(np.float64))]), max_size=3)):
        node = Apply(function, (node,))
    return node


@settings(deadline=None, max_examples=100)
@given(node=nodes(), budget=st.integers(20_000, 10**6))
def test_tasks_are_disjoint_whole_chunks_and_together_everything(node: Node, budget: int) -> None:
    try:
        made = cut(node, budget)
    except PlanError:
        return
    seen = np.zeros(node.spec.shape, int)
    for region in chunk_regions(node.spec.shape, made.block):
        seen[region.slices] += 1
        assert covering_chunks(region, node.spec.shape, made.chunks) == region
    assert (seen == 1).all()


@settings(deadline=None, max_examples=60)
@given(node=nodes(), data=st.data())
def test_the_working_set_bounds_what_evaluation_allocates(node: Node, data: st.DataObject) -> None:
    starts = tuple(data.draw(st.integers(0, n - 1)) for n in node.spec.shape)
    stops = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(starts, node.spec.shape, strict=True))
    region = Region(starts, stops)

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
    assert math.prod(Region((1, 0), (3, 4)).shape) == 8
    assert WRITE_BUFFER < 512 * MIB


# --- raw chunks are read in parts -------------------------------------------------------------------------


def test_a_raw_chunk_larger_than_the_budget_is_read_in_parts() -> None:
    """4 GiB of float32: rows at a time, and where they are transposed, tiles whose rows are not short."""
    source, budget = raw_leaf((1 << 15, 1 << 15)), 512 * MIB
    for value in (source, Apply(Transpose(), (source,)), Apply(Cast(np.dtype(np.float16)), (source,))):
        made = cut(value, budget)
        assert made.working_set <= budget - WRITE_BUFFER
        assert made.read == source.spec.nbytes  # each byte once, in runs that are not short
    turned = cut(Apply(Transpose(), (source,)), budget)
    assert turned.block[0] * 4 >= SHORT_RUN  # of the source, so many columns
    assert cut(Apply(Transpose(), (raw_leaf((1 << 15, 1 << 15), "F"),)), budget).block[1] == 1 << 15


@pytest.mark.parametrize(
    ("region", "order", "fetched"),
    [
        (Region((0, 0), (16, 1024)), "C", 16 * 4096),  # whole rows, one after another
        (Region((0, 0), (1, 1024)), "C", SHORT_RUN),  # a short run takes as long as a longer one
        (Region((0, 0), (1024, 8)), "C", 1024 * 4096),  # 32 bytes of each: the rest is read along
        (Region((0, 0), (1024, 8)), "F", 8 * 4096),  # eight columns, which are stored as rows
        (Region((5, 5), (6, 6)), "C", 4096),
    ],
)
def test_what_regions_of_raw_chunks_take(region: Region, order: str, fetched: int) -> None:
    read = raw_leaf((1024, 1024), order)
    assert read.leaf.manifest is not None
    assert read.leaf.manifest.ranged
    assert _decoded(read, region) == fetched
    nbytes = region.size * 4
    assert working_set(read, region) == 2 * nbytes + READ_SPAN


def test_small_raw_chunks_are_read_whole() -> None:
    """And so are those of types of which a byte may be no value."""
    assert working_set(raw_leaf((100, 100)), Region((0, 0), (1, 1))) == 4 + 2 * 40_000
    spec = ArraySpec((4096, 4096), np.dtype(bool))
    assert not Manifest(spec, spec.shape, raw_codec(2), {}).ranged
