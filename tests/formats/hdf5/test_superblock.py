"""The beginning of a file, of every version that libhdf5 writes."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.library import FileView
from ckpt_surgery.formats.hdf5.superblock import base_of
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.storage.reading import stat_file

VERSIONS: dict[int, dict[str, Any]] = {0: {}, 2: {"libver": ("v108", "v108")}, 3: {"libver": "latest"}}


def written(path: Path, **how: Any) -> bytes:
    with h5py.File(path, "w", **how) as file:
        file["x"] = np.ones(3)
    return path.read_bytes()


def viewed(path: Path) -> FileView:
    stat = stat_file(str(path))
    return FileView(str(path), stat, 0, stat.size)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("base", [0, 512, 4096])
def test_every_version(version: int, base: int, tmp_path: Path) -> None:
    data = written(tmp_path / "x.h5", userblock_size=base, **VERSIONS[version])
    assert data[base + 8] == version
    assert base_of(viewed(tmp_path / "x.h5")) == base
    assert list(open_source(str(tmp_path / "x.h5"), "hdf5").leaves()) == ["x"]


NOWHERE_NEAR = (2**64 - 300).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("version", "at", "other", "says"),
    [
        (0, 0, b"\0", "the signature of HDF5 files is nowhere"),
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
