"""Writing HDF5 files, and what they cannot hold."""

import os
import sys
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.hdf5 import FORMAT
from ckpt_surgery.formats.hdf5.writing import SparseFile
from ckpt_surgery.formats.opening import encoder, open_sink
from ckpt_surgery.formats.registry import SinkOptions
from tests.formats.bounds import bounded
from tests.support.arrays import array
from tests.support.comparing import assert_same
from tests.support.hdf5_files import load_hdf5, save_hdf5
from tests.support.reading import opened
from tests.support.writing import Workers, output_of, write_all


def test_a_destination_of_any_name_is_one_file(tmp_path: Path) -> None:
    assert FORMAT.is_file("x")
    write_all(open_sink("hdf5", tmp_path, SinkOptions(file_name="some.name"), []), {})
    assert load_hdf5(tmp_path / "some.name") == {}


class TestArchive(Workers):
    """Keras's archives: config and assets as they are given, the weights in a member that is an HDF5 file."""

    format = "hdf5"
    files: ClassVar = {"assets/words.txt": b"a b", "config.json": b"{}"}
    more_options: ClassVar = {"file_name": "x.keras", "model_files": lambda: TestArchive.files}

    def load(self, path: Path) -> dict[str, np.ndarray]:
        with zipfile.ZipFile(path / "x.keras") as file:
            assert file.testzip() is None
            assert file.namelist() == ["config.json", "assets/words.txt", "model.weights.h5"]
            assert {name: file.read(name) for name in self.files} == self.files
            file.extract("model.weights.h5", path.parent)
        return load_hdf5(path.parent / "model.weights.h5")


def test_the_same_arrays_make_the_same_file(tmp_path: Path) -> None:
    """Also where it is made again: what is small lies between parts of the index."""
    arrays = {f"g{i % 7}/x{i}": array((i % 5, 3), "float32", i) for i in range(200)}
    outputs = [output_of(name, value) for name, value in arrays.items()]
    for name in ("one.h5", "other.h5"):
        options = SinkOptions(metadata={"a": "b"}, file_name=name)
        write_all(open_sink("hdf5", tmp_path, options, outputs), arrays)
    open_sink("hdf5", tmp_path, options, outputs).create()
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "other.h5").read_bytes()
    assert_same(load_hdf5(tmp_path / "other.h5"), arrays)


def test_the_file_of_a_huge_array_takes_no_memory(tmp_path: Path) -> None:
    spec = ArraySpec((2**20, 2**20), np.dtype(np.float32))
    huge = Output(Leaf(Key.parse("x"), LeafKind.ARRAY, spec), (2**10, 2**10))
    first = output_of("first", np.ones(1))
    open_sink("hdf5", tmp_path, SinkOptions(), [first])  # imports h5py
    with bounded(2**20):
        open_sink("hdf5", tmp_path, SinkOptions(), [first, huge]).attach("0")


def test_leaves_where_others_need_groups() -> None:
    """Components of keys can contain `/`; then a key path can be longer than its components are many."""
    spec = ArraySpec((2,), np.dtype(np.float32))
    names = (("a/b",), ("a", "b/c"), ("a", "b", "c", "d"), ["a"] * 300)
    leaves = [Leaf(Key.of(components), LeafKind.ARRAY, spec) for components in names]
    told = encoder("hdf5", SinkOptions()).unsupported(leaves[:3])
    assert told == [
        "`a/b` is an array, and `a/b/c` needs a group there; rename one.",
        "`a/b` is an array, and `a/b/c/d` needs a group there; rename one.",
        "`a/b/c` is an array, and `a/b/c/d` needs a group there; rename one.",
    ]
    assert "has 300 components; 256 is the limit" in encoder("hdf5", SinkOptions()).unsupported(leaves[3:])[0]


def test_without_h5py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = save_hdf5({"x": np.ones(3)}, tmp_path / "x.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    for run in (lambda: opened(path), lambda: encoder("hdf5", SinkOptions(file_name="out.h5"))):
        with pytest.raises(UsageError, match=r"h5: HDF5 files need the package h5py.*\n.*`pip install h5py`"):
            run()
    assert FORMAT.recognizes(str(path))


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=40)), max_size=12), st.integers(0, 21_000)
)
def test_it_is_a_file(writes: list[tuple[int, bytes]], size: int) -> None:
    """As bytes in memory are; pieces of it leave ranges out."""
    made, plain = SparseFile(), bytearray()
    for at, data in writes:
        made.seek(at)
        assert made.write(data) == len(data)
        if data:
            plain.extend(bytes(max(0, at + len(data) - len(plain))))
            plain[at : at + len(data)] = data
    made.truncate(size)
    whole = bytes(plain[:size].ljust(size, b"\0"))
    made.seek(0)
    assert made.read(size) == whole
    assert made.seek(0, os.SEEK_END) == made.size == size
    half, third = size // 2, size // 3
    wanted = [(0, whole[:third]), (half, whole[half:])]
    assert list(made.pieces([(third, half - third)])) == [(at, data) for at, data in wanted if data]
