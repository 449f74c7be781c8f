"""Directories of `.npy` files, and single ones, against NumPy."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.npy import FORMAT
from ckpt_surgery.formats.opening import open_source
from tests.formats.npz.test_npz import DTYPES, npy
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same
from tests.support.conformance import NAMES, Arrays, Lie
from tests.support.directories import copy_of, files_of, touched
from tests.support.reading import values

ELSEWHERE = ("../../etc/passwd", "/absolute", "a//b", "trailing/", "..", "nul\0byte", "x" * 4000)
"""Names that no file below a directory can have."""


def saved(path: Path, arrays: Mapping[str, Any]) -> Path:
    """As NumPy writes them, one by one."""
    path.mkdir(exist_ok=True)
    for name, value in arrays.items():
        file = path / f"{name}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, value)
    return path


def opened(path: Path) -> Source:
    return open_source(os.fspath(path), "npy")


def lie(reason: str, says: str, data: bytes) -> Lie:
    def make(directory: Path) -> Path:
        saved(directory / "d", {"a": np.ones(3)})
        (directory / "d" / "x.npy").write_bytes(data)
        return directory / "d"

    return Lie(reason, make, says)


class TestDirectory(conformance.Reading):
    """One file for each array."""

    format = "npy"
    dtypes = DTYPES
    names = tuple(name for name in NAMES if name not in ELSEWHERE)
    lies = (
        lie("an empty file", r"x\.npy: it does not begin as", b""),
        lie(
            "two arrays in one file",
            "several arrays one after another",
            npy("'<f4'", "(0,)", npy("'<f4'", "(0,)") + bytes(61)),
        ),
        lie("a pickle", "`x`: it is an array of Python objects", npy("'|O'", "(1,)", b"\x80\4N.")),
    )

    def save(self, arrays: Arrays, path: Path) -> Path:
        return saved(path, arrays)

    def test_missing_files(self, saved: Path, tmp_path: Path) -> None:
        """A directory says nowhere what belongs in it: without some of its files it is another one."""
        path = copy_of(saved, tmp_path / "copy")
        files = files_of(path)
        files[0].unlink()
        assert sorted(self.open(path).leaves()) == sorted(self.sample().keys() - {"bytes"})
        for file in files[1:]:
            file.unlink()
        with pytest.raises(SourceError, match=r"holds no \.npy file"):
            self.open(path)


def test_directories_are_the_path_of_the_key(tmp_path: Path) -> None:
    arrays = {f"params/layer_{i}/kernel.v2": array((2, i), "float32") for i in (10, 9, 1)}
    source = opened(saved(tmp_path / "d", arrays))
    assert list(source.leaves()) == [f"params/layer_{i}/kernel.v2" for i in (1, 9, 10)]
    assert source.leaves()["params/layer_9/kernel.v2"].key.names == ("params", "layer_9", "kernel.v2")
    assert_same(values(source), arrays)


def test_a_single_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = array((3, 4), "bfloat16")
    saved(tmp_path, {"embedding.v1": value})
    (tmp_path / "link.npy").symlink_to("embedding.v1.npy")
    (tmp_path / "blob").write_bytes((tmp_path / "embedding.v1.npy").read_bytes())
    for name in ("embedding.v1.npy", "link.npy", "blob"):
        source = open_source(name)
        assert source.format == "npy"
        assert_same(values(source), {name.removesuffix(".npy"): value})


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (["a.npy"], True),
        (["a/b/c.npy", "README.md", "config.json"], True),
        (["notes.txt"], False),
        ([], False),
        (["a.npy", "model.safetensors"], False),
        (["a.npy", "checkpoint"], False),  # T5X, TensorFlow
        (["a.npy", "default/_METADATA"], False),  # Orbax
        (["a.npy", "w/.zarray"], False),
        (["a.npy", "x.npz"], False),
        (["a.npy", "pytorch_model.bin"], False),
    ],
)
def test_directories_that_are_taken_for_arrays(names: list[str], known: bool, tmp_path: Path) -> None:
    assert FORMAT.recognizes(touched(tmp_path, *names)) == known


def test_detection_is_by_content_and_follows_no_links(tmp_path: Path) -> None:
    saved(tmp_path / "d", {"a": np.ones(3)})
    (tmp_path / "d" / "again").symlink_to(".")
    for name, data in (("named.npy", b""), ("other", b"\x93NUMPY"), ("short", b"\x93NUM")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    names = ("named.npy", "other", "short", "loop.npy", "missing", "d")
    assert [name for name in names if FORMAT.recognizes(tmp_path / name)] == ["named.npy", "other"]
    with pytest.raises(SourceError, match=r"levels of symbolic links|nested more than"):
        opened(tmp_path / "d")


def test_a_large_directory_of_other_files_is_not_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_surgery.formats.npy.MOST_LISTED", 5)
    assert FORMAT.recognizes(touched(tmp_path / "a", *(f"{i}.npy" for i in range(9)), "z/chunk"))
    assert not FORMAT.recognizes(touched(tmp_path / "b", *(f"{i}.npy" for i in range(3)), "z/chunk"))


def test_a_name_that_is_not_text(tmp_path: Path) -> None:
    os.link(saved(tmp_path, {"x": np.ones(3)}) / "x.npy", os.fsencode(tmp_path) + b"/\xff.npy")
    with pytest.raises(SourceError, match="not valid UTF-8"):
        opened(tmp_path)
