"""The file object through which libhdf5 reads."""

import contextlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.library import LEAST_READS, FileView, heap_objects
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.storage import reading
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.views import forget
from tests.support.calls import record_calls
from tests.support.hdf5_files import save_hdf5
from tests.support.key_value import uploaded

DATA = np.random.default_rng(0).integers(0, 256, 50_000, np.uint8).tobytes()


def test_what_is_read_of_a_file_is_bounded(tmp_path: Path) -> None:
    """To a range of its bytes, in a number of reads, and until it changes."""
    (tmp_path / "x").write_bytes(DATA)
    path = str(tmp_path / "x")
    view, other = (FileView(path, stat_file(path), 100, 40_000) for _ in range(2))
    view.seek(39_999)
    with pytest.raises(SourceError, match="refers to bytes 39999 to 40001, of 40000") as caught:
        view.readinto(bytearray(2))
    assert view.failure is caught.value
    for _ in range(LEAST_READS + 40_000 // 16):
        other.seek(0)
        other.read(8)
    with pytest.raises(SourceError, match="refers to itself in circles"):
        other.read(8)
    changed = FileView(path, stat_file(path), 100, 40_000)
    (tmp_path / "x").write_bytes(DATA + b"more")
    with pytest.raises(SourceError, match="has changed since it was listed"):
        changed.read(8)


def test_listing_an_object_fetches_little_of_it(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 MB, the pages in which the index lies."""
    arrays = {f"layers/{i}/kernel": np.full((1 << 20,), i, np.uint8) for i in range(40)}
    path = save_hdf5(arrays, tmp_path / "x.h5")
    url = uploaded(path, f"{bucket}/x.h5")
    forget()
    fetched = record_calls(monkeypatch, reading, "_fill_from_object", lambda *given: len(given[3]))
    assert list(open_source(url).leaves()) == list(arrays)
    assert sum(fetched) < path.stat().st_size / 5
    assert len(fetched) < 100


# --- heaps on which libhdf5 would never end ------------------------------------------------------------


def heap(objects: Sequence[tuple[int, int]], size: int = 4096) -> bytes:
    """A heap of objects, each with its index and what it says of its size."""
    data = struct.pack("<4sB3xQ", b"GCOL", 1, size)
    for index, length in objects:
        data += struct.pack("<HH4xQ", index, 1, length) + bytes(min(-(-length // 8) * 8, 64) if index else 0)
    return data.ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (heap([(1, 5), (2, 16), (0, 4096 - 16 - 24 - 32)]), None),
        (heap([]), "an object of 0 bytes in the place of 4080"),
        (heap([(1, 5), (0, 8)]), "an object of 8 bytes"),
        (heap([(1, 2**64 - 16)]), "an object of 18446744073709551616 bytes"),
        (heap([(1, 5000)]), "an object of 5016 bytes"),
        (heap([(0, 4080)], 5000), "has 5000 bytes, of 4096"),
        (heap([(0, 4080)])[:10], "is cut off"),
    ],
)
def test_objects_of_a_heap(data: bytes, says: str | None, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    (tmp_path / "x").write_bytes(data)
    view = FileView(path, stat_file(path), 0, len(data))
    with pytest.raises(SourceError, match=says) if says else contextlib.nullcontext():
        assert [index for index, _ in heap_objects(view, 0)] == [1, 2, 0]


# --- the beginning of a file ---------------------------------------------------------------------------


VERSIONS: dict[int, dict[str, Any]] = {0: {}, 2: {"libver": ("v108", "v108")}, 3: {"libver": "latest"}}


def written(path: Path, **how: Any) -> bytes:
    with h5py.File(path, "w", **how) as file:
        file["x"] = np.ones(3)
    return path.read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(version: int, tmp_path: Path) -> None:
    assert written(tmp_path / "x.h5", **VERSIONS[version])[8] == version
    assert list(open_source(str(tmp_path / "x.h5"), "hdf5").leaves()) == ["x"]


NOWHERE_NEAR = (2**64 - 300).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("version", "at", "other", "says"),
    [
        (0, 0, b"\0", "it does not begin with the signature of HDF5 files"),
        (0, 8, b"\x09", "version 9 of the format"),
        (0, 13, b"\x04", "its addresses and lengths have 4 and 8 bytes"),
        (2, 10, b"\x10", "its addresses and lengths have 8 and 16 bytes"),
        (0, 24, NOWHERE_NEAR, "its superblock refers to byte 18446744073709551316"),
        (0, 48, NOWHERE_NEAR, "a part of a file that was written in several"),  # libhdf5 crashes at the end
        (0, 64, NOWHERE_NEAR, "its superblock refers to byte"),
        (3, 20, NOWHERE_NEAR, "its superblock refers to byte"),
        (3, 36, NOWHERE_NEAR, "its superblock refers to byte"),
    ],
)
def test_what_cannot_be(version: int, at: int, other: bytes, says: str, tmp_path: Path) -> None:
    data = written(tmp_path / "x.h5", **VERSIONS[version])
    (tmp_path / "x.h5").write_bytes(data[:at] + other + data[at + len(other) :])
    with pytest.raises(SourceError, match=rf"x\.h5: .*{says}"):
        open_source(str(tmp_path / "x.h5"), "hdf5")


# --- texts of attributes, which are found without libhdf5 ----------------------------------------------


TEXTS = {f"name {i}": "é" * i for i in range(60)}


def test_many_texts(tmp_path: Path) -> None:
    """They take several pieces of the header, which lie apart from each other, and several heaps."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name, text in TEXTS.items():
            file.attrs[name] = text
            file.create_group(name)
            file.attrs["long"] = "x" * 10_000
    assert open_source(str(path)).metadata == TEXTS | {"long": "x" * 10_000}


@pytest.mark.parametrize("track_times", [False, True])
def test_texts_of_the_newest_layout(track_times: bool, tmp_path: Path) -> None:
    """A few in the header; where there are many, libhdf5 puts them elsewhere, and they are left out."""
    few = dict(list(TEXTS.items())[:7])
    for texts in (few, TEXTS):
        path = tmp_path / f"{len(texts)}.h5"
        with h5py.File(path, "w", libver="latest") as file:
            for name, text in texts.items():
                file.attrs[name] = text
            made = file.create_dataset("x", data=np.zeros(3, "V1"), track_times=track_times)
            made.attrs["dtype"] = "float8_e5m2"
        source = open_source(str(path))
        assert source.metadata == (few if texts is few else {})
        assert source.leaves()["x"].spec.dtype.name == "float8_e5m2"


def test_a_text_of_gigabytes_that_is_not_there(tmp_path: Path) -> None:
    """libhdf5 would take the memory, and then crash when the process ends."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["text"] = "some words"
    data = path.read_bytes()
    heap = data.index(b"GCOL").to_bytes(8, "little")
    stored = (10).to_bytes(4, "little") + heap
    assert data.count(stored) == 1
    for other, says in (
        ((2**32 - 1).to_bytes(4, "little") + heap, "has 4294967295 bytes, which are missing"),
        ((10).to_bytes(4, "little") + bytes(8), "does not begin as one"),
        ((10).to_bytes(4, "little") + b"\xff" * 8, "is cut off"),
    ):
        path.write_bytes(data.replace(stored, other))
        with pytest.raises(SourceError, match=rf"x\.h5: .*{says}"):
            open_source(str(path))
        assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) == 0
