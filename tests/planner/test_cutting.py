"""Chunks and tasks that stay within a budget."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions, covering_chunks, grid_counts
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.indexing import Index, Item, flip
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.layout import Pad, Reshape, Transpose, rearrange
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.reductions import Norm, Sum
from ckpt_surgery.functions.streams import block_shape
from ckpt_surgery.graph.walks import SHORT_RUN, task_bytes
from ckpt_surgery.planner.cutting import (
    WRITE_BUFFER,
    cut,
    finer,
    output_chunks,
    side_by_side,
    signature,
    source_grid,
)
from tests.support.chunked_nodes import F32, MIB, leaf, nodes, raw_leaf
from tests.support.effort import examples
from tests.support.lazy_arrays import Changed, by, changed
from tests.support.strategies import chunk_shapes


@pytest.mark.each
@pytest.mark.parametrize(
    ("shape", "block", "near", "limit", "chunks"),
    [
        ((100, 8), (10, 8), (1, 1), 3 * 32, (2, 8)),  # chunks divide a block that does not cover the axis
        ((4, 6), (4, 6), (1, 1), 10**6, (4, 6)),  # fits: one chunk
        ((1024, 1024), (1024, 1024), (1, 1), MIB, (256, 1024)),  # whole rows
        ((1024, 1024), (1024, 1024), (1, 1), 4096, (1, 1024)),  # exactly one row
        ((1024, 1024), (1024, 1024), (1, 1), 2048, (1, 512)),  # not even one row
        ((1024, 1024), (1024, 1024), (512, 1024), 4 * MIB, (512, 1024)),  # the source's grid is good
        ((1024, 1024), (1024, 1024), (1, 1024), 4 * MIB, (1024, 1024)),  # the source's chunks are tiny
        ((1024, 1024), (1024, 1024), (1024, 256), MIB, (1024, 256)),  # columns, as the source has them
        ((), (), (), 10, ()),  # a scalar
        ((0, 3), (0, 3), (1, 1), 10, (1, 2)),  # nothing in it
        ((10,), (10,), (1,), 12, (3,)),  # pieces as equal as can be
    ],
)
def test_output_chunks(shape, block, near, limit, chunks) -> None:
    assert output_chunks(ArraySpec(shape, F32), block, near, limit) == chunks


@pytest.mark.parametrize(
    ("node", "grid"),
    [
        (leaf((64, 64), (16, 64)), (16, 64)),  # as it is stored
        (Apply(Transpose(), (leaf((64, 32), (16, 32)),)), (32, 16)),  # the periods go with their axes
        (Apply(Cast(np.dtype(np.float64)), (leaf((64,), (8,)),)), (8,)),
        (Apply(Stack(), (leaf((6, 4), (3, 4)), leaf((6, 4), (3, 4)))), (1, 3, 4)),  # a part of its own each
        (Apply(Index(((None, None, -1),)), (leaf((64, 32), (16, 32)),)), (16, 32)),  # backwards too
        (Apply(Reshape((8, 8)), (leaf((64,), (8,)),)), (8, 8)),  # anything else: the whole axis
        (Apply(Binary("*"), (leaf((), ()), leaf((64, 32), (16, 32)))), (16, 32)),  # only what moves
    ],
)
def test_source_grid(node: Node, grid: tuple[int, ...]) -> None:
    assert source_grid(node) == grid


def test_a_transpose_is_cut_along_the_axis_that_reads_least() -> None:
    """Rows of the result are columns of the source: the cut follows the source's chunks, as a rename does."""
    source = leaf((8192, 8192), (512, 8192))
    renamed, transposed = cut(source, 1 << 30), cut(Apply(Transpose(), (source,)), 512 * MIB)
    assert (renamed.chunks, transposed.block[0]) == ((512, 8192), 8192)
    assert renamed.read == transposed.read == source.spec.nbytes


def test_a_stack_reads_every_part_once() -> None:
    parts = tuple(leaf((1024, 1024), (1024, 1024)) for _ in range(64))
    made = cut(Apply(Stack(), parts), 512 * MIB)
    assert made.read == sum(p.spec.nbytes for p in parts)
    assert made.working_set <= 512 * MIB


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (leaf((4096, 1024), (4096, 1024)), "the chunks of its sources are that large"),
        (Apply(Sum(1), (raw_leaf((1, 1 << 22)),)), "all of what it reads is needed at once"),
        (Apply(Sum(None), (raw_leaf((4096, 1024)),)), "`sum` needs 4.75 MiB of memory for a block of"),
        (raw_leaf((4096, 1024)), "reading a file takes that much"),
    ],
)
def test_the_budget_that_a_refusal_names_is_enough(value: Node, why: str) -> None:
    with pytest.raises(PlanError, match=why) as caught:
        cut(value, 1000)
    found = re.search(r'memory="(\d+)MiB"', str(caught.value))
    assert found is not None
    assert cut(value, int(found[1]) * MIB).working_set <= int(found[1]) * MIB


@pytest.mark.parametrize("budget", [3, 4, 5, 6, 7, 8, 9, 10, 12, 16])
def test_a_small_budget_does_not_end_in_single_elements(budget: int) -> None:
    """What reading takes in any case is most of a small budget: a smaller block would not help."""
    value = Apply(Cast(np.dtype(np.float16)), (raw_leaf((1024, 640)),))
    made = cut(value, budget * MIB)
    assert made.working_set <= budget * MIB // 2
    assert math.prod(made.block) >= 10_000
    assert made.read < 1.2 * 1024 * 640 * 4


@pytest.mark.parametrize(
    ("value", "block", "working_set"),
    [
        # as many whole chunks as fit into 16 MiB: read, with their encoded bytes, and transposed
        (Apply(Transpose(), (leaf((8192, 4096), (512, 512)),)), (512, 2048), 12 * MIB),
        # a chunk that is larger is not read twice for that
        (Apply(Transpose(), (leaf((8192, 4096), (4096, 1024)),)), (1024, 4096), 48 * MIB),
        # what is needed at once is not computed in single elements
        (Apply(Stack(), (Apply(Sum(0), (raw_leaf((4096, 4096)),)),) * 8), (8, 4096), None),
    ],
)
def test_tasks_can_be_made_smaller_where_that_reads_no_more(
    value: Node, block: tuple[int, ...], working_set: int | None
) -> None:
    known = cut(value, 1 << 30)
    made = finer(value, known, 16 * MIB)
    assert made.block == block
    assert made.read <= known.read
    assert made.working_set <= known.working_set
    assert working_set in (None, made.working_set)


@examples(100)
@given(node=nodes(), budget=st.integers(20_000, 10**6), share=st.integers(1, 10**5))
def test_smaller_tasks_are_within_what_was_planned(node: Node, budget: int, share: int) -> None:
    try:
        known = cut(node, budget)
    except PlanError:
        return
    made = finer(node, known, share)
    assert made.read <= known.read
    assert made.working_set <= known.working_set
    assert all(b <= max(k, n) for b, k, n in zip(made.block, known.block, node.spec.shape, strict=True))


@examples(100)
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


# --- what is cut alike ------------------------------------------------------------------------------------


@st.composite
def items(draw: st.DrawFn, length: int) -> Item:
    kind = draw(st.sampled_from(["index", "slice", "slice", "all", "steps"]))
    start = draw(st.integers(0, length - 1))
    if kind == "index":
        return start
    if kind == "all":
        return (None, None, None)
    stop = draw(st.integers(start + 1, length))
    return (start, stop, None if kind == "slice" else draw(st.integers(1, 3)))


@st.composite
def sliced(draw: st.DrawFn, node: Node) -> Node:
    ndim = node.spec.ndim
    picked = [draw(items(n)) for n in node.spec.shape[: draw(st.integers(0, ndim))]]
    if draw(st.booleans()):
        picked.insert(draw(st.integers(0, len(picked))), None)
    return Apply(Index((*picked, ...)), (node,))


def reshapes(node: Node) -> list[Changed]:
    """What can be done with an array of this shape before it is sliced again."""
    shape, ndim = node.spec.shape, node.spec.ndim
    found: list[Changed] = [Transpose(), Cast(np.dtype(np.float16)), flip]
    if ndim >= 2:
        found += [Reshape((shape[0] * shape[1], *shape[2:])), by(rearrange, "a b ... -> ... b a")]
        found += [by(rearrange, "a b ... -> (b a) ..."), Transpose((1, 0, *range(2, ndim)))]
    return [*found, Reshape((1, *shape))] + ([Pad(0, shape[0] + 3)] if ndim else [])


@st.composite
def sources(draw: st.DrawFn) -> Node:
    """One leaf, or several: chunks that are decoded as a whole, raw ones that are not, none at all."""
    shape = tuple(draw(st.lists(st.sampled_from([5, 6, 8, 12]), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    if draw(st.booleans()):
        return leaf(shape, chunks)
    parts = [leaf(shape, draw(st.sampled_from([shape, chunks]))) for _ in range(draw(st.integers(1, 3)))]
    return Apply(draw(st.sampled_from([Stack(), Stack(axis=1), Concat()])), tuple(parts))


@st.composite
def slices_of(draw: st.DrawFn, source: Node) -> Node:
    """Slices of slices, with something else done to them in between."""
    node = draw(sliced(source))
    for _ in range(draw(st.integers(0, 2))):
        node = changed(draw(st.sampled_from(reshapes(node))), node)
        node = draw(sliced(node))
    return node


@st.composite
def elsewhere(draw: st.DrawFn, node: Node) -> Node:
    """The same with slices of the same extents that begin elsewhere."""
    if isinstance(node, Read):
        return node
    inputs = tuple(draw(elsewhere(n)) for n in node.inputs)
    if not isinstance(node.function, Index):
        return Apply(node.function, inputs)
    lengths = iter(inputs[0].spec.shape)
    moved = [i if i is None or i is ... else draw(moved_item(i, next(lengths))) for i in node.function.items]
    return Apply(Index(tuple(moved)), inputs)


@st.composite
def moved_item(draw: st.DrawFn, item: int | tuple[int | None, ...], length: int) -> Item:
    if isinstance(item, int):
        return draw(st.integers(0, length - 1))
    start, stop, step = item
    if start is None or stop is None:
        return (None, None, step)
    begin = draw(st.integers(0, length - (stop - start)))
    return (begin, begin + stop - start, step)


@examples(100)
@given(data=st.data(), source=sources(), budget=st.sampled_from([400, 4000, 40_000]))
def test_what_has_one_signature_is_cut_alike(data: st.DataObject, source: Node, budget: int) -> None:
    first = data.draw(slices_of(source))
    made = {signature(first): cut_or_refused(first, budget)}
    for _ in range(4):
        node = data.draw(elsewhere(first))
        found = cut_or_refused(node, budget)
        assert made.setdefault(signature(node), found) == found


def cut_or_refused(node: Node, budget: int) -> object:
    try:
        return node.spec, cut(node, budget)
    except PlanError as error:
        return str(error)


def unstacked(source: Read, layer: int, expert: int) -> Node:
    """As the recipes of mixtures of experts do it."""
    layers = Apply(Index((layer,)), (source,))
    return Apply(Index((expert,)), (changed(by(rearrange, "e i o -> e o i"), layers),))


@pytest.mark.parametrize(
    ("source", "signatures"),
    [
        (raw_leaf((48, 16, 32, 64)), 1),  # no chunk is decoded for more than what is wanted of it
        (leaf((48, 16, 32, 64), (1, 4, 32, 64)), 4),  # as many as there are places in a chunk
        (leaf((48, 16, 32, 64), (16, 16, 8, 8)), 16 * 16),
    ],
)
def test_slices_of_a_stack_are_cut_together(source: Read, signatures: int) -> None:
    nodes = [unstacked(source, layer, expert) for layer in range(48) for expert in range(16)]
    assert len({signature(node) for node in nodes}) == signatures


def test_where_outputs_are_put_together_half_of_the_budget_is_for_that() -> None:
    large = leaf((1 << 20, 1 << 10), (1 << 20, 1 << 10))
    message = r"needs 8\.00 GiB .* the budget of 8\.00 GiB leaves 4\.00 GiB"
    with pytest.raises(PlanError, match=message) as caught:
        cut(large, 8 << 30, staged=True)
    assert 'memory="17GiB"' in str(caught.value)
    assert cut(large, 17 << 30, staged=True).working_set <= 17 << 29


def test_a_norm_is_read_in_pieces_within_the_budget_and_then_what_uses_it() -> None:
    """A piece is whole blocks, and whole chunks of the source."""
    source = leaf((20_000, 9000), (1000, 1500))
    made = cut(Apply(Binary("/"), (source, Apply(Norm(), (source,)))), 512 * MIB)
    [piece] = made.pieces
    assert all(n % block == 0 for n, block in zip(piece, block_shape((20_000, 9000)), strict=True))
    assert made.working_set <= 448 * MIB
    assert made.block[0] % 1000 == 0
    assert made.read >= 2 * source.spec.nbytes


def test_pieces_that_do_not_fit_whole_chunks_are_whole_blocks() -> None:
    source = leaf((8192, 8192), (8192, 1024))
    [piece] = cut(Apply(Norm(), (source,)), 150 * MIB).pieces
    assert (piece[0] % 256, piece[1] % 256) == (0, 0)
    assert math.prod(piece) < 8192 * 1024
    made = cut(Apply(Norm(), (leaf((6, 4), (3, 4)),)), 512 * MIB)  # of one block
    assert (made.chunks, made.block, made.pieces) == ((), (), ((6, 4),))


@examples(100)
@given(data=st.data(), one=nodes(), budget=st.integers(1_000, 10**6))
def test_values_side_by_side_stay_within_the_budget(data: st.DataObject, one: Node, budget: int) -> None:
    """Or within a quarter more than their smallest regions need."""
    shape = one.spec.shape
    other = leaf(shape, data.draw(chunk_shapes(shape)))
    block = side_by_side([one, other], budget)

    def held(lengths: tuple[int, ...]) -> int:
        region = Region((0,) * len(shape), tuple(min(b, n) for b, n in zip(lengths, shape, strict=True)))
        return task_bytes(one, region) + task_bytes(other, region)

    assert all(n >= 1 for n in block)
    least = held((1,) * len(shape))
    assert held(block) <= max(budget, least * 5 // 4)
    if held(shape) <= budget:
        assert block == shape


def test_one_chunk_larger_than_the_budget_is_decoded_a_few_times_side_by_side() -> None:
    stored = leaf((4096, 4096), (4096, 4096))
    block = side_by_side([Apply(Transpose(), (raw_leaf((4096, 4096)),)), stored], 32 * MIB)
    assert math.prod(grid_counts((4096, 4096), block)) <= 16
