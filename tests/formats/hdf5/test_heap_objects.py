"""Heaps on which libhdf5 would never end."""

import struct
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.library import FileView, heap_objects
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.storage.reading import stat_file


def heap(objects: Sequence[tuple[int, int]], size: int = 4096) -> bytes:
    """A heap of objects, each with its index and what it says of its size."""
    data = struct.pack("<4sB3xQ", b"GCOL", 1, size)
    for index, length in objects:
        data += struct.pack("<HH4xQ", index, 1, length) + bytes(min(-(-length // 8) * 8, 64) if index else 0)
    return data.ljust(4096, b"\0")


def indices(path: Path, data: bytes) -> list[int]:
    """Indices of the objects in the heap that a file is."""
    path.write_bytes(data)
    view = FileView(str(path), stat_file(str(path)), 0, len(data))
    return [index for index, _ in heap_objects(view, 0)]


def test_a_heap_that_is_whole(tmp_path: Path) -> None:
    assert indices(tmp_path / "x", heap([(1, 5), (2, 16), (0, 4096 - 16 - 24 - 32)])) == [1, 2, 0]
    assert indices(tmp_path / "y", heap([(0, 4080)])) == [0]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (heap([]), "an object of 0 bytes in the place of 4080"),
        (heap([(1, 5), (0, 8)]), "an object of 8 bytes"),
        (heap([(1, 2**64 - 16)]), "an object of 18446744073709551616 bytes"),
        (heap([(1, 5000)]), "an object of 5016 bytes"),
        (heap([(0, 4080)], 5000), "has 5000 bytes, of 4096"),
        (heap([(0, 4080)])[:10], "is cut off"),
    ],
)
def test_a_heap_that_is_not(data: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=says):
        indices(tmp_path / "x", data)


def test_a_file_with_such_a_heap(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones(3)
        file.attrs["text"] = "some words"
    data = bytearray(path.read_bytes())
    free = data.index(b"some words") + 16
    assert struct.unpack_from("<HH4xQ", data, free)[0] == 0
    data[free + 8 : free + 16] = bytes(8)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"x\.h5: the heap of the file's texts has an object of 0 bytes"):
        open_source(str(path))
