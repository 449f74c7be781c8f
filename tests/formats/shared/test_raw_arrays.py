"""Regions of contiguous arrays: orders of bytes and axes, chunks, and arrays that no function can use."""

import os
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import RAW, Chunk, Codec, Manifest, raw_codec
from ckpt_surgery.formats.shared.raw_arrays import (
    BIG,
    Opaque,
    RawArraysSource,
    checked,
    contiguous,
    read_raw,
    stored_dtype,
)
from ckpt_surgery.storage.reading import stat_file
from tests.support.arrays import ALL_DTYPES, array
from tests.support.conformance import random_regions
from tests.support.leaves import array_leaf, by_key

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
    assert read_raw(found, Region((0, 1), (0, 3))).shape == (0, 2)


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
        np.testing.assert_array_equal(read_raw(manifest, region), value[region.slices])


@pytest.mark.parametrize("axes", [*permutations(range(3))], ids=str)
def test_inline_chunks_have_orders_of_axes_too(axes: tuple[int, ...]) -> None:
    value = array((2, 3, 4), "int16")
    data = b"??" + value.transpose(axes).tobytes()  # the elements begin at the chunk's offset
    spec, codec = ArraySpec(value.shape, value.dtype), Codec("raw", axes, RAW)
    manifest = Manifest(spec, spec.shape, codec, {(0, 0, 0): Chunk("", 2, spec.nbytes, data)})
    for region in random_regions(value.shape, 10):
        np.testing.assert_array_equal(read_raw(manifest, region), value[region.slices])


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_big_endian_elements_are_swapped(name: str) -> None:
    value = array((3,), name)
    parts = 2 if value.dtype.kind == "c" else 1  # the halves of complex numbers are swapped one by one
    words = value.view(np.uint8).reshape(3, parts, -1)
    found = read_raw(inline(value.dtype, words[..., ::-1].tobytes(), BIG), Region.whole((3,)))
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
        np.testing.assert_array_equal(read_raw(manifest, region), value[region.slices])


def test_bytes_that_are_no_booleans_are_refused() -> None:
    assert stored_dtype(BOOL) == np.uint8
    assert stored_dtype(INT16) == INT16
    manifest = inline(BOOL, b"\0\1\2")
    assert read_raw(manifest, Region((0,), (2,))).tolist() == [False, True]
    with pytest.raises(SourceError, match="one of its booleans has the byte 2"):
        read_raw(manifest, Region((0,), (3,)))
    assert checked(np.empty((0, 2), np.uint8), BOOL).dtype == BOOL


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(11))
    manifest = contiguous(ArraySpec((6,), INT16), str(tmp_path / "x"), 0)
    assert read_raw(manifest, Region((0,), (5,))).tolist() == [0] * 5
    with pytest.raises(SourceError, match="ends at byte 11, where 1 more belong"):
        read_raw(manifest, Region((5,), (6,)))


# --- the source -------------------------------------------------------------------------------------------


def source_of(path: Path, opaque: Opaque | None = None) -> RawArraysSource:
    """The array `a/b` of int16[2], which is all of a file."""
    path.write_bytes(b"\1\0\2\0")
    manifest = None if opaque else contiguous(ArraySpec((2,), INT16), str(path), 0)
    found = array_leaf("a/b", (2,), INT16, manifest=manifest)
    files = {str(path): stat_file(str(path))}
    refused = {"a/b": opaque} if opaque else None
    return RawArraysSource(str(path), "toy", by_key(found), files, {}, opaque=refused)


def test_a_file_that_changed_after_it_was_listed_is_refused_with_the_key(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x")
    [leaf] = source.leaves().values()
    assert source.read(leaf, Region.whole((2,))).tolist() == [1, 2]
    before = source.fingerprint()
    os.utime(tmp_path / "x", ns=(1, 1))
    with pytest.raises(SourceError, match=r"^`a/b`: .*x has changed since it was listed"):
        source.read(leaf, Region.whole((2,)))
    assert source.fingerprint() != before
    (tmp_path / "x").unlink()
    with pytest.raises(SourceError, match="x cannot be read"):
        source.fingerprint()


def test_a_fingerprint_does_not_depend_on_the_place(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        source = source_of(tmp_path / name / "x")
        os.utime(tmp_path / name / "x", ns=(1, 1))
        found.append(source.fingerprint())
    assert found[0] == found[1]


def test_an_array_that_no_function_can_use_is_refused_but_can_be_compared(tmp_path: Path) -> None:
    stored = contiguous(ArraySpec((2,), np.dtype("V2")), str(tmp_path / "x"), 0)
    dates = Opaque("is an array of dates", "Save it as integers.", stored, np.dtype(">i2"))
    source = source_of(tmp_path / "x", dates)
    [leaf] = source.leaves().values()
    with pytest.raises(SourceError, match=r"^`a/b`: it is an array of dates") as caught:
        source.read(leaf, Region.whole((2,)))
    assert caught.value.problems[0].hint == "Save it as integers."
    found = source.opaque_elements(leaf, Region((1,), (2,)))
    assert (found.dtype, found.tolist()) == (INT16, [512])  # 02 00, big endian, in the type of the listing


def test_elements_that_do_not_lie_in_the_file_cannot_be_compared(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x", Opaque("is a pickle", "Save its arrays."))
    [leaf] = source.leaves().values()
    with pytest.raises(SourceError, match="it is a pickle"):
        source.opaque_elements(leaf, Region.whole((2,)))


def test_narrow_types_of_one_byte_are_the_same_in_either_byte_order() -> None:
    for dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.float8_e5m2)):
        for encoding in (RAW, BIG):
            found = read_raw(inline(dtype, b"\1\2", encoding), Region.whole((2,)))
            assert (found.dtype, found.tobytes()) == (dtype, b"\1\2")
