"""Regions of stored arrays: orders of bytes and axes, chunks, missing ones, decoders, checksums."""

import zlib
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import BIG, RAW, Chunk, Codec, Manifest, contiguous, encoding_of, raw_codec
from ckpt_surgery.formats import chunk_reading
from ckpt_surgery.formats.chunk_reading import by_chunk, checked, read_stored, stored_dtype, together
from tests.support.arrays import ALL_DTYPES, array
from tests.support.conformance import random_regions

BOOL = np.dtype(np.bool_)
INT16 = np.dtype(np.int16)


def inline(dtype: np.dtype[Any], data: bytes, encoding: str = RAW) -> Manifest:
    """An array of one axis whose elements are in the index of its checkpoint."""
    spec = ArraySpec((len(data) // dtype.itemsize,), dtype)
    return Manifest(spec, spec.shape, Codec("raw", (0,), encoding), {(0,): Chunk("", 0, len(data), data)})


def test_a_contiguous_array_is_one_chunk_at_its_offset() -> None:
    found = contiguous(ArraySpec((2, 3), INT16), "x", 7)
    assert (found.chunk_shape, found.chunks) == ((2, 3), {(0, 0): Chunk("x", 7, 12)})
    assert found.codec == raw_codec(2)
    assert contiguous(found.spec, "x", 7, length=5).chunks[0, 0].length == 5


def test_an_array_without_elements_has_no_chunk_and_no_grid_of_zeros() -> None:
    found = contiguous(ArraySpec((0, 3), INT16), "x", 7)
    assert (found.chunk_shape, found.chunks) == ((1, 3), {})
    assert found.complete
    assert read_stored(found, Region((0, 1), (0, 3))).shape == (0, 2)


def test_a_scalar_has_one_element_at_the_empty_index() -> None:
    found = contiguous(ArraySpec((), INT16), "x", 7)
    assert (found.chunk_shape, found.chunks) == ((), {(): Chunk("x", 7, 2)})


@pytest.mark.parametrize("axes", [*permutations(range(3))], ids=str)
def test_every_order_of_axes_is_undone(axes: tuple[int, ...], tmp_path: Path) -> None:
    value = array((2, 3, 4), "int16")
    (tmp_path / "x").write_bytes(b"head" + value.transpose(axes).tobytes())
    spec = ArraySpec(value.shape, value.dtype)
    manifest = contiguous(spec, str(tmp_path / "x"), 4, Codec("raw", axes, RAW))
    for region in random_regions(value.shape, 10):
        np.testing.assert_array_equal(read_stored(manifest, region), value[region.slices])


@pytest.mark.parametrize("axes", [*permutations(range(3))], ids=str)
def test_inline_chunks_have_orders_of_axes_too(axes: tuple[int, ...]) -> None:
    value = array((2, 3, 4), "int16")
    data = b"??" + value.transpose(axes).tobytes()  # the elements begin at the chunk's offset
    spec, codec = ArraySpec(value.shape, value.dtype), Codec("raw", axes, RAW)
    manifest = Manifest(spec, spec.shape, codec, {(0, 0, 0): Chunk("", 2, spec.nbytes, data)})
    for region in random_regions(value.shape, 10):
        np.testing.assert_array_equal(read_stored(manifest, region), value[region.slices])


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_big_endian_elements_are_swapped(name: str) -> None:
    value = array((3,), name)
    parts = 2 if value.dtype.kind == "c" else 1  # the halves of complex numbers are swapped one by one
    words = value.view(np.uint8).reshape(3, parts, -1)
    found = read_stored(inline(value.dtype, words[..., ::-1].tobytes(), BIG), Region.whole((3,)))
    assert (found.dtype, found.tobytes()) == (value.dtype, value.tobytes())


def test_a_region_over_the_edges_of_chunks_is_put_together(tmp_path: Path) -> None:
    """Chunks at the edges are padded, and each lies in a file of its own, or in the index."""
    value = array((5, 7), "int16")
    padded = np.pad(value, ((0, 1), (0, 2)), constant_values=-1)
    chunks = {}
    for i, j in np.ndindex(3, 3):
        block = padded[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].tobytes()
        file = tmp_path / f"{i}{j}"
        file.write_bytes(b"x" * i + block)
        chunks[i, j] = Chunk("", 0, 12, block) if i == j == 1 else Chunk(str(file), i, 12)
    manifest = Manifest(ArraySpec(value.shape, value.dtype), (2, 3), raw_codec(2), chunks)
    for region in random_regions(value.shape, 30):
        np.testing.assert_array_equal(read_stored(manifest, region), value[region.slices])


def test_bytes_that_are_no_booleans_are_refused() -> None:
    assert stored_dtype(BOOL) == np.uint8
    assert stored_dtype(INT16) == INT16
    manifest = inline(BOOL, b"\0\1\2")
    assert read_stored(manifest, Region((0,), (2,))).tolist() == [False, True]
    with pytest.raises(SourceError, match="one of its booleans has the byte 2"):
        read_stored(manifest, Region((0,), (3,)))
    assert checked(np.empty((0, 2), np.uint8), BOOL).dtype == BOOL


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(11))
    manifest = contiguous(ArraySpec((6,), INT16), str(tmp_path / "x"), 0)
    assert read_stored(manifest, Region((0,), (5,))).tolist() == [0] * 5
    with pytest.raises(SourceError, match="ends at byte 11, where 1 more belong"):
        read_stored(manifest, Region((5,), (6,)))


def test_narrow_types_of_one_byte_are_the_same_in_either_byte_order() -> None:
    for dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.float8_e5m2)):
        for encoding in (RAW, BIG):
            found = read_stored(inline(dtype, b"\1\2", encoding), Region.whole((2,)))
            assert (found.dtype, found.tobytes()) == (dtype, b"\1\2")


# --- chunks that are missing, encoded or checked ----------------------------------------------------------


def in_pieces(fill: bytes | None) -> tuple[np.ndarray, Manifest]:
    """int16[5, 7] in chunks of (2, 3), of which the second row's are missing and read as 7."""
    value = array((5, 7), "int16")
    value[2:4] = 7
    padded = np.pad(value, ((0, 1), (0, 2)))
    cells = {(i, j): padded[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].tobytes() for i in (0, 2) for j in range(3)}
    chunks = {index: Chunk("", 0, 12, data) for index, data in cells.items()}
    return value, Manifest(ArraySpec(value.shape, value.dtype), (2, 3), raw_codec(2), chunks, fill)


def test_missing_chunks_have_the_fill_value() -> None:
    value, manifest = in_pieces(np.int16(7).tobytes())
    for region in random_regions(value.shape, 30):
        np.testing.assert_array_equal(read_stored(manifest, region), value[region.slices])


def test_without_a_fill_value_a_missing_chunk_is_refused() -> None:
    _, manifest = in_pieces(None)
    read_stored(manifest, Region((0, 0), (2, 7)))
    with pytest.raises(SourceError, match=r"its chunk \(1, 2\) is missing"):
        read_stored(manifest, Region((1, 6), (3, 7)))


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_chunks_are_decoded_one_by_one(axes: tuple[int, ...], tmp_path: Path) -> None:
    value = array((5, 7), "int16")
    padded = np.pad(value, ((0, 1), (0, 2)))
    chunks, decoded = {}, []
    with open(tmp_path / "x", "wb") as file:
        for i, j in np.ndindex(3, 3):
            cell = padded[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].transpose(axes)
            stored = zlib.compress(cell.tobytes())
            chunks[i, j] = Chunk(str(tmp_path / "x"), file.tell(), len(stored))
            file.write(stored)
    encoding = encoding_of([{"toy": "zlib"}])
    manifest = Manifest(ArraySpec(value.shape, value.dtype), (2, 3), Codec("toy", axes, encoding), chunks)

    def decode(manifest: Manifest, stored: bytes) -> bytes:
        decoded.append(stored)
        return zlib.decompress(stored)

    for region in random_regions(value.shape, 30):
        found = read_stored(manifest, region, decode=by_chunk(decode))
        np.testing.assert_array_equal(found, value[region.slices])
    decoded.clear()
    read_stored(manifest, Region((0, 2), (1, 4)), decode=by_chunk(decode))
    assert len(decoded) == 2
    with pytest.raises(SourceError, match="a chunk has 3 bytes, where 12 belong"):
        read_stored(manifest, Region((0, 0), (2, 3)), decode=by_chunk(lambda manifest, stored: bytes(3)))


def test_whole_chunks_are_checked_as_they_are_stored(tmp_path: Path) -> None:
    value = array((2, 3), "int16")
    (tmp_path / "x").write_bytes(b"head" + value.transpose().astype(">i2").tobytes())
    spec = ArraySpec(value.shape, value.dtype)
    manifest = contiguous(spec, str(tmp_path / "x"), 4, Codec("big endian", (1, 0), BIG))
    seen: list[bytes] = []
    checks = {manifest.chunks[0, 0]: lambda chunk, stored: seen.append(stored.tobytes())}
    read_stored(manifest, Region((0, 0), (2, 2)), checks=checks)
    assert seen == []
    assert (read_stored(manifest, Region.whole((2, 3)), checks=checks) == value).all()
    assert seen == [value.transpose().astype(">i2").tobytes()]


@pytest.mark.parametrize("least", [0, 1 << 60])
def test_parts_are_decoded_in_order_or_together(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reading, "PARALLEL_BYTES", least)
    value = np.arange(35, dtype=np.float32).reshape(7, 5)
    chunks = dict.fromkeys(np.ndindex(3, 3), Chunk("x", 0, 24))
    manifest = Manifest(ArraySpec((7, 5), value.dtype), (3, 2), raw_codec(2), chunks)
    asked: list[tuple[int, ...]] = []

    def part_of(index: tuple[int, ...], inner: Region) -> Callable[[], np.ndarray]:
        asked.append(index)
        return lambda: value[3 * index[0] :, 2 * index[1] :][inner.slices]

    region = Region((1, 1), (7, 5))
    assert np.array_equal(together(manifest, region, part_of), value[1:, 1:])
    assert asked == sorted(asked)
    assert len(asked) == 9

    def damaged() -> np.ndarray:
        raise SourceError("damaged")

    with pytest.raises(SourceError, match="damaged"):
        together(manifest, region, lambda index, inner: damaged if index == (1, 1) else part_of(index, inner))
