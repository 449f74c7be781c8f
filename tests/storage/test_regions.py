"""Arrays whose place in a file is known before they are written."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, raw_codec
from ckpt_surgery.storage.regions import PreallocatedArray, are_contiguous, in_order

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


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_contiguous_chunks_one_after_another_are_the_array(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    chunk_shape = tuple(data.draw(st.integers(1, n)) for n in shape)
    array = numbers(*shape)
    found = manifest(array, chunk_shape)
    joined = b"".join(chunk.inline or b"" for _, chunk in in_order(found))
    assert joined == array.tobytes() or not are_contiguous(found)


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


def test_regions_are_written_in_any_order(file: Path) -> None:
    array, place = numbers(4, 5), PreallocatedArray(file, 7, ArraySpec((4, 5), INT16))
    for row, column in itertools.product((2, 0), (3, 0)):
        region = Region((row, column), (row + 2, min(column + 3, 5)))
        place.write(region, array[region.slices])
    assert file.read_bytes() == b"\xff" * 7 + array.tobytes() + b"\xff" * 53


def test_stored_bytes_are_copied_in_order(file: Path, tmp_path: Path) -> None:
    array = numbers(6, 2)
    (tmp_path / "source").write_bytes(b"?" + array[2:].tobytes())
    inline = manifest(array, (2, 2)).chunks
    chunks = {(2, 0): Chunk(str(tmp_path / "source"), 9, 8), (1, 0): Chunk(str(tmp_path / "source"), 1, 8)}
    stored = Manifest(ArraySpec((6, 2), INT16), (2, 2), raw_codec(2), {**chunks, (0, 0): inline[0, 0]})
    PreallocatedArray(file, 10, stored.spec).copy(stored, {})
    assert file.read_bytes()[10:34] == array.tobytes()
    (tmp_path / "source").unlink()
    with pytest.raises(SourceError, match="source cannot be read: No such file"):
        PreallocatedArray(file, 10, stored.spec).copy(stored, {})


def test_a_file_that_is_gone(file: Path) -> None:
    file.unlink()
    with pytest.raises(StorageError, match=f"^{file}: No such file or directory\n  Check the free space"):
        PreallocatedArray(file, 0, ArraySpec((2,), INT16)).write(Region.whole((2,)), numbers(2))
