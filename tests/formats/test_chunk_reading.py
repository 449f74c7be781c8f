"""Regions of stored arrays: orders of bytes and axes, chunks, missing ones, decoders, checksums."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import BIG, RAW, Chunk, Codec, Manifest, contiguous, raw_codec
from ckpt_surgery.formats import chunk_reading
from ckpt_surgery.formats.chunk_reading import by_chunk, read_stored, together
from tests.support.arrays import ALL_DTYPES, array
from tests.support.conformance import random_regions


def inline(dtype: np.dtype[Any], data: bytes, encoding: str = RAW) -> Manifest:
    """An array of one axis whose elements are in the index of its checkpoint."""
    spec = ArraySpec((len(data) // dtype.itemsize,), dtype)
    return Manifest(spec, spec.shape, Codec("raw", (0,), encoding), {(0,): Chunk("", 0, len(data), data)})


@pytest.mark.parametrize("axes", [*permutations(range(3))], ids=str)
def test_every_order_of_axes_is_undone(axes: tuple[int, ...], tmp_path: Path) -> None:
    value = array((2, 3, 4), "int16")
    (tmp_path / "x").write_bytes(b"head" + value.transpose(axes).tobytes())
    spec = ArraySpec(value.shape, value.dtype)
    manifest = contiguous(spec, str(tmp_path / "x"), 4, Codec("raw", axes, RAW))
    for region in random_regions(value.shape, 10):
        np.testing.assert_array_equal(read_stored(manifest, region), value[region.slices])


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_big_endian_elements_are_swapped(name: str) -> None:
    value = array((3,), name)
    parts = 2 if value.dtype.kind == "c" else 1  # the halves of complex numbers are swapped one by one
    words = value.view(np.uint8).reshape(3, parts, -1)
    found = read_stored(inline(value.dtype, words[..., ::-1].tobytes(), BIG), Region.whole((3,)))
    assert (found.dtype, found.tobytes()) == (value.dtype, value.tobytes())


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


def test_chunks_that_cannot_be_filled_are_refused() -> None:
    """A chunk that is missing without a fill value, and one whose decoder gives fewer bytes."""
    spec, chunks = ArraySpec((2,), np.dtype("int8")), {(0,): Chunk("", 0, 1, b"a")}
    manifest = Manifest(spec, (1,), raw_codec(1), chunks)
    with pytest.raises(SourceError, match=r"its chunk \(1,\) is missing"):
        read_stored(manifest, Region((0,), (2,)))
    with pytest.raises(SourceError, match="a chunk has 0 bytes, where 1 belong"):
        packed = replace(manifest, codec=Codec("packed", (0,), "packed"))
        read_stored(packed, Region((0,), (1,)), decode=by_chunk(lambda manifest, stored: b""))
