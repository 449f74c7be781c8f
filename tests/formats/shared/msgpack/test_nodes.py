"""The constants of flax's format are flax's own; arrays in pieces: the grid that fits them."""

import msgpack
import numpy as np
import pytest
from flax import serialization

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.formats.shared.msgpack.nodes import (
    ARRAY,
    CHUNKED,
    COMPLEX,
    MOST_CHUNKS,
    SCALAR,
    ArrayAt,
    BytesAt,
    manifest_of,
)

INT16 = np.dtype(np.int16)


def test_extension_types_are_those_that_flax_writes() -> None:
    packed = serialization.msgpack_serialize({"a": np.ones(2), "b": 1j, "c": np.float32(1)})
    found = msgpack.unpackb(packed)
    assert {name: value.code for name, value in found.items()} == {"a": ARRAY, "b": COMPLEX, "c": SCALAR}


def test_arrays_in_pieces_are_marked_as_flax_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 8)
    found = msgpack.unpackb(serialization.msgpack_serialize({"a": np.ones(4)}))
    assert found["a"][CHUNKED] is True


def in_pieces(shape: tuple[int, ...], *counts: int) -> ArrayAt:
    """An array of int16 in pieces of so many elements, each after a gap of 5 bytes."""
    pieces, offset = [], 0
    for count in counts:
        pieces.append(BytesAt(offset + 5, 2 * count))
        offset += 5 + 2 * count
    return ArrayAt(ArraySpec(shape, INT16), tuple(pieces))


def test_one_piece_is_one_chunk() -> None:
    found = manifest_of(in_pieces((2, 3), 6), "x")
    assert found is not None
    assert found.chunks == {(0, 0): Chunk("x", 5, 12)}


def test_pieces_are_cut_until_a_regular_grid_fits() -> None:
    found = manifest_of(in_pieces((3, 2), 4, 2), "x")
    assert found is not None
    assert found.chunk_shape == (1, 2)
    # The first piece holds two rows; 5 bytes lie before the second.
    assert found.chunks == {(0, 0): Chunk("x", 5, 4), (1, 0): Chunk("x", 9, 4), (2, 0): Chunk("x", 18, 4)}


def test_an_array_without_elements_has_no_chunk() -> None:
    found = manifest_of(in_pieces((0, 3), 0, 0), "x")
    assert found is not None
    assert found.chunks == {}


@pytest.mark.parametrize(("count", "regular"), [(MOST_CHUNKS, True), (MOST_CHUNKS + 2, False)])
def test_a_grid_that_is_too_fine_is_none(count: int, regular: bool) -> None:
    found = manifest_of(in_pieces((count,), 1, count - 1), "x")
    assert (found is not None) == regular
