"""Rewritten manifests have exactly the expected grids, byte ranges and codecs."""

import math

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Shape, chunk_regions
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, raw_codec
from ckpt_surgery.core.rewrites.axes import matching_axes
from ckpt_surgery.core.rewrites.taking import (
    MOST_CHUNKS,
    MOST_PIECES,
    concatenated,
    sliced,
    take_along,
)
from tests.support.stored_arrays import codec_of

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


def test_inline_bytes_are_cut_too() -> None:
    chunk = Chunk("", 0, 8, b"abcdefgh")
    whole = Manifest(ArraySpec((4,), U16), (4,), raw_codec(1), {(0,): chunk})
    found = sliced(whole, 0, 1, 3)
    assert found is not None
    assert (found.chunks[0,].inline, found.chunks[0,].length) == (b"cdef", 4)


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
