"""Rewritten manifests have exactly the expected grids, byte ranges and codecs."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Shape, chunk_regions
from ckpt_surgery.core.manifests import RAW, Chunk, Codec, Manifest, raw_codec
from ckpt_surgery.core.rewrites.reshaping import matching_axes, reshaped
from ckpt_surgery.core.rewrites.taking import (
    MOST_CHUNKS,
    MOST_PIECES,
    concatenated,
    sliced,
    stacked,
    take_along,
)
from tests.support.effort import examples
from tests.support.stored_arrays import codec_of, sharded_codec

U16 = np.dtype(np.uint16)


def manifest(shape: Shape, chunk_shape: Shape, codec: Codec, dtype: np.dtype = U16) -> Manifest:
    """Chunks that lie one after another in the file `data`, from byte 100 on."""
    size = math.prod(chunk_shape) * dtype.itemsize
    regions = chunk_regions(shape, chunk_shape)
    starts = [tuple(a // c for a, c in zip(r.starts, chunk_shape, strict=True)) for r in regions]
    chunks = {index: Chunk("data", 100 + i * size, size) for i, index in enumerate(starts)}
    return Manifest(ArraySpec(shape, dtype), chunk_shape, codec, chunks)


def ranges(found: Manifest | None) -> dict[Shape, tuple[int, int]]:
    """Offset and length of each chunk."""
    assert found is not None
    return {index: (chunk.offset, chunk.length) for index, chunk in found.chunks.items()}


def test_a_column_of_order_f_is_a_range_of_bytes_padding_and_all() -> None:
    found = sliced(manifest((5, 6), (4, 6), codec_of("raw", (1, 0))), 1, 2, 4)
    assert ranges(found) == {(0, 0): (116, 16), (1, 0): (164, 16)}


def test_inline_bytes_are_cut_too() -> None:
    chunk = Chunk("", 0, 8, b"abcdefgh")
    whole = Manifest(ArraySpec((4,), U16), (4,), raw_codec(1), {(0,): chunk})
    found = sliced(whole, 0, 1, 3)
    assert found is not None
    assert (found.chunks[0,].inline, found.chunks[0,].length) == (b"cdef", 4)


def test_raw_chunks_are_cut_to_the_longest_pieces_that_fit() -> None:
    found = sliced(manifest((24, 1), (12, 1), raw_codec(2)), 0, 8, 24)
    assert found is not None
    assert found.chunk_shape == (4, 1)
    assert ranges(found) == {(i, 0): (116 + 8 * i, 8) for i in range(4)}


def test_no_more_pieces_than_a_chunk_is_worth() -> None:
    most = 2 * MOST_PIECES
    assert sliced(manifest((2 * most,), (most,), raw_codec(1)), 0, 2, 2 * most) is not None
    assert sliced(manifest((2 * most,), (most,), raw_codec(1)), 0, 1, 2 * most) is None
    # Within one chunk there is nothing to cut.
    assert ranges(sliced(manifest((2 * most,), (most,), raw_codec(1)), 0, 1, most))[0,] == (102, 2 * most - 2)


def test_a_part_of_no_length_has_no_chunks() -> None:
    parts = [manifest((n, 2), (4, 2), codec_of("zlib", (0, 1))) for n in (4, 0, 3)]
    found = concatenated(parts, 0)
    assert found is not None
    assert (found.spec.shape, sorted(found.chunks)) == ((7, 2), [(0, 0), (1, 0)])
    assert concatenated(parts[1:2], 0) is None


def test_pieces_beyond_the_edge_are_left_out() -> None:
    found = concatenated([manifest((2,), (2,), raw_codec(1)), manifest((1,), (4,), raw_codec(1))], 0)
    assert ranges(found) == {(0,): (100, 4), (1,): (100, 4)}


def test_chunks_are_not_referred_to_without_end() -> None:
    one = manifest((1, 3), (1, 3), raw_codec(2))
    found = take_along(one, 0, np.zeros(1000, np.int64))
    assert set(ranges(found).values()) == {(100, 6)}
    assert take_along(one, 0, np.zeros(MOST_CHUNKS + 1, np.int64)) is None


def test_shards_of_a_stack_have_one_more_axis() -> None:
    codec = sharded_codec((1, 2), (1, 0), (1, 0))
    found = stacked([manifest((6, 1), (6, 1), codec)] * 2, 1, (0, 1))
    assert found is not None
    assert (found.chunk_shape, found.codec.permutation) == ((6, 1, 1), (1, 2, 0))
    [shards] = json.loads(found.codec.encoding)
    assert shards["configuration"]["chunk_shape"] == [1, 1, 2]
    assert shards["configuration"]["codecs"][0]["configuration"]["order"] == [0, 2, 1]


SPLITS: list[tuple[Shape, Shape, list[tuple[int, int]]]] = [
    ((6, 4), (2, 3, 4), [(0, 0), (1, 2), (2, 3)]),
    ((2, 3, 4), (6, 4), [(0, 0), (2, 1), (3, 2)]),
    ((4, 6), (3, 8), [(0, 0), (2, 2)]),
    ((5,), (1, 5), [(0, 0), (1, 2)]),
    ((1, 5), (5,), [(0, 0), (1, 0), (2, 1)]),
    ((), (1, 1), [(0, 0), (0, 2)]),
    ((), (), [(0, 0)]),
]


@pytest.mark.parametrize(("old", "new", "cuts"), SPLITS)
def test_axes_that_match(old: Shape, new: Shape, cuts: list[tuple[int, int]]) -> None:
    assert matching_axes(old, new) == cuts


@examples(100)
@given(data=st.data())
def test_parts_of_matching_axes_have_as_many_elements(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.integers(1, 5), max_size=6))
    shapes = []
    for _ in range(2):
        ends = sorted(data.draw(st.sets(st.integers(0, len(factors)))) | {0, len(factors)})
        shapes.append(tuple(math.prod(factors[a:b]) for a, b in pairwise(ends)))
    old, new = shapes
    cuts = matching_axes(old, new)
    assert cuts[0] == (0, 0)
    assert cuts[-1] == (len(old), len(new))
    for (i, j), (end, new_end) in pairwise(cuts):
        assert math.prod(old[i:end]) == math.prod(new[j:new_end])


@pytest.mark.parametrize(
    ("shape", "chunks", "permutation", "new", "wanted"),
    [
        ((8, 6), (4, 6), (0, 1), (2, 4, 6), ((1, 4, 6), (0, 1, 2))),  # runs of whole rows
        ((8, 6), (4, 6), (0, 1), (4, 2, 6), ((2, 2, 6), (0, 1, 2))),
        ((8, 6), (2, 3), (0, 1), (4, 2, 2, 3), ((1, 2, 1, 3), (0, 2, 1, 3))),
        ((8, 6), (8, 6), (1, 0), (2, 4, 3, 2), ((2, 4, 3, 2), (2, 3, 0, 1))),
        ((2, 4, 6), (1, 4, 6), (0, 1, 2), (8, 6), ((4, 6), (0, 1))),
        ((7, 1, 5), (3, 1, 2), (2, 1, 0), (7, 5), ((3, 2), (1, 0))),  # edges stay edges
    ],
)
def test_chunks_of_other_shapes(
    shape: Shape, chunks: Shape, permutation: Shape, new: Shape, wanted: tuple[Shape, Shape]
) -> None:
    """`wanted`: the shape of the new chunks, and the order of their axes."""
    whole = manifest(shape, chunks, Codec("raw", permutation, RAW))
    found = reshaped(whole, new)
    assert found is not None
    assert (found.chunk_shape, found.codec.permutation) == wanted
    assert len(found.chunks) == len(whole.chunks)
