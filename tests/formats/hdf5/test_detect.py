"""Which files are taken for HDF5 files, and which file of a directory."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.hdf5 import FORMAT
from ckpt_surgery.formats.opening import open_source
from tests.support.hdf5_files import save_hdf5


def opened(path: Path) -> Source:
    return open_source(os.fspath(path), "hdf5")


def test_detection_is_by_content(tmp_path: Path) -> None:
    save_hdf5({"x": np.ones(3)}, tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as file:
        file.writestr("config.json", "{}")
    archive = (tmp_path / "m.keras").read_bytes()
    known = {"x": data, "x.h5": b"", "x.H5": data[:5], "x.weights.h5": data, "x.hdf5": data[:100]}
    unknown = {"x.npz": archive, "y.h5": archive, "y": b"", "y.bin": data[1:]}
    known |= {"z.keras": archive, "y.keras": b""}
    for name, content in (*known.items(), *unknown.items()):
        (tmp_path / name).write_bytes(content)
        assert FORMAT.recognizes(str(tmp_path / name)) == (name in known), name
    assert not FORMAT.recognizes(str(tmp_path / "missing.h5"))


def test_a_directory_with_one_file(tmp_path: Path) -> None:
    save_hdf5({"a": np.ones(3)}, tmp_path / "x.weights.h5")
    assert FORMAT.recognizes(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert not FORMAT.recognizes(str(tmp_path))
    assert list(opened(tmp_path).leaves()) == ["a"]
    save_hdf5({"a": np.ones(3)}, tmp_path / "y.hdf5")
    with pytest.raises(SourceError, match=r"holds 2 HDF5 files: x\.weights\.h5, y\.hdf5"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("members", "method", "says"),
    [
        ({"config.json": b"{}"}, zipfile.ZIP_STORED, "it has no member `model.weights.h5`"),
        ({"config.json": b"{}", "model.weights.h5": bytes(99)}, zipfile.ZIP_DEFLATED, "is compressed"),
        (
            {"config.json": b"{}", "model.weights.h5": bytes(99)},
            zipfile.ZIP_STORED,
            "signature of HDF5 files",
        ),
    ],
)
def test_archives_that_cannot_be_read(
    members: dict[str, bytes], method: int, says: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "m.keras", "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(SourceError, match=says):
        opened(tmp_path / "m.keras")
