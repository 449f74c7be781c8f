"""Arrays whose place in a file is known before they are written."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, raw_codec
from ckpt_surgery.storage.regions import PlacedArray, are_contiguous, overlaps
from tests.support.conformance import random_regions

INT16 = np.dtype(np.int16)


def manifest(array: np.ndarray, chunk_shape: Shape, codec: Codec | None = None) -> Manifest:
    """An array in inline chunks of its elements in C order."""
    chunks = {}
    for region in chunk_regions(array.shape, chunk_shape):
        data = array[region.slices].tobytes()
        index = tuple(a // c for a, c in zip(region.starts, chunk_shape, strict=True))
        chunks[index] = Chunk("", 0, len(data), data)
    spec = ArraySpec(array.shape, array.dtype)
    return Manifest(spec, chunk_shape, codec or raw_codec(array.ndim), chunks)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=INT16).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "chunk_shape", "contiguous"),
    [
        ((), (), True),
        ((6,), (6,), True),
        ((6,), (2,), True),
        ((6,), (4,), False),  # the last chunk is stored in full, and is longer than what is left
        ((6, 4), (2, 4), True),
        ((6, 4), (6, 2), False),  # rows lie apart
        ((1, 4), (1, 2), True),
        ((2, 4), (1, 2), False),  # cut along two axes, which is not looked into
    ],
)
def test_which_chunks_are_contiguous(shape: Shape, chunk_shape: Shape, contiguous: bool) -> None:
    assert are_contiguous(manifest(numbers(*shape), chunk_shape)) == contiguous


def test_encoded_chunks_are_not_contiguous() -> None:
    array = numbers(2, 3)
    turned = Codec("raw", (1, 0), raw_codec(2).encoding)
    packed = Codec("zstd", (0, 1), '[{"name":"zstd"}]')
    assert not are_contiguous(manifest(array, (2, 3), turned))
    assert not are_contiguous(manifest(array, (2, 3), packed))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"\xff" * 100)
    return path


def test_stored_bytes_are_copied_in_order(file: Path, tmp_path: Path) -> None:
    array = numbers(6, 2)
    (tmp_path / "source").write_bytes(b"?" + array[2:].tobytes())
    inline = manifest(array, (2, 2)).chunks
    chunks = {(2, 0): Chunk(str(tmp_path / "source"), 9, 8), (1, 0): Chunk(str(tmp_path / "source"), 1, 8)}
    stored = Manifest(ArraySpec((6, 2), INT16), (2, 2), raw_codec(2), {**chunks, (0, 0): inline[0, 0]})
    PlacedArray(stored.spec, ((10, 24),)).copy(file, stored, {})
    assert file.read_bytes()[10:34] == array.tobytes()
    (tmp_path / "source").unlink()
    with pytest.raises(SourceError, match="source cannot be read: No such file"):
        PlacedArray(stored.spec, ((10, 24),)).copy(file, stored, {})


def test_a_file_that_is_gone(file: Path) -> None:
    file.unlink()
    with pytest.raises(StorageError, match=f"^{file}: No such file or directory\n  Check the free space"):
        PlacedArray(ArraySpec((2,), INT16), ((0, 4),)).write(file, Region.whole((2,)), numbers(2))


# --- several ranges ---------------------------------------------------------------------------------------


def test_bytes_fill_several_ranges_in_order(file: Path, tmp_path: Path) -> None:
    """Written in regions, or copied in chunks; what lies between the ranges stays."""
    array = numbers(6, 4)
    place = PlacedArray(ArraySpec((6, 4), INT16), ((3, 14), (20, 30), (60, 4)))
    for rows in (slice(3, 6), slice(0, 3)):
        region = Region.of_slices((rows,), (6, 4))
        place.write(file, region, array[rows])
    data, gap = array.tobytes(), b"\xff" * 3
    wanted = gap + data[:14] + gap + data[14:44] + b"\xff" * 10 + data[44:] + b"\xff" * 36
    assert file.read_bytes() == wanted
    region = Region((1, 1), (5, 3))
    assert place.read(file, region).tolist() == array[1:5, 1:3].tolist()
    copied = tmp_path / "copied"
    copied.write_bytes(b"\xff" * 100)
    crcs = place.copy(copied, manifest(array, (2, 4)), {})
    assert copied.read_bytes() == wanted
    assert place.copy(copied, manifest(array, (2, 4)), crcs) == crcs


def in_ranges(*counts: int) -> list[tuple[int, int]]:
    """Ranges of so many elements of int16, each after a gap of 5 bytes."""
    starts = itertools.accumulate(counts, lambda at, count: at + 5 + 2 * count, initial=5)
    return [(start, 2 * count) for start, count in zip(starts, counts, strict=False)]


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        ((3, 4, 2), (7, 9, 8)),  # ranges begin and end within rows
        ((3, 4, 2), (1, 22, 1)),
        ((2, 1, 3), (2, 2, 2)),
        ((5,), (2, 3)),
        ((), (1,)),
    ],
)
def test_the_parts_of_a_region_are_its_elements_each_once(
    shape: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    ranges = in_ranges(*counts)
    values = np.arange(1, 1 + sum(counts), dtype=INT16)
    data, stops = b"", np.cumsum(counts)
    for start, stop in zip((0, *stops), stops, strict=False):
        data += b"?????" + values[start:stop].tobytes()
    for region in random_regions(shape, 30):
        block = np.zeros(region.shape, INT16)
        for part in overlaps(ArraySpec(shape, INT16), ranges, region):
            box = np.frombuffer(data, INT16, part.box.size, part.offset).reshape(part.box.shape)
            assert not block[part.place].any()
            block[part.place] = box[part.inner.slices]
        np.testing.assert_array_equal(block, values.reshape(shape)[region.slices])
