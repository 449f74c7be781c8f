"""HDF5 in and out, against h5py."""

import contextlib
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.formats.hdf5 import FORMAT
from ckpt_surgery.formats.hdf5.datasets import HELD, chunks_of, decoded
from ckpt_surgery.formats.opening import encoder, open_sink
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zarr.decoding import adopted_metadata
from tests.formats.bounds import bounded
from tests.formats.hdf5.lies import LIES
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.conformance import NAMES, random_regions
from tests.support.hdf5_files import load_hdf5, put, save_hdf5
from tests.support.reading import opened, values
from tests.support.writing import Arrays, Processes, write_all

DTYPES = tuple(HELD.values())
NO_NAMES = ("/absolute", "a//b", "trailing/", ".", "nul\0byte")
"""Names that HDF5 does not have: no component of a path is empty, and `.` is the group itself."""
NAMES_OF_LEAVES = tuple(name for name in NAMES if name not in (*NO_NAMES, ".."))
"""`..` is a name like any other, but there is a group of that name too."""
COMPRESSED: dict[str, Any] = {"chunks": True, "compression": "gzip", "shuffle": True}


class TestContiguous(Processes, conformance.Writing):
    """Arrays that lie in the file as they are."""

    format = "hdf5"
    dtypes = DTYPES
    names = NAMES_OF_LEAVES
    refused_names = NO_NAMES
    lies = LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        return save_hdf5(arrays, path.with_name(path.name + ".h5"))

    def load(self, path: Path) -> dict[str, np.ndarray]:
        assert [file.name for file in path.iterdir()] == ["checkpoint.h5"]
        return load_hdf5(path / "checkpoint.h5")


class TestCompressed(conformance.Reading):
    """Chunks that are compressed."""

    format = "hdf5"
    dtypes = ("bool", "float8_e4m3fn", "bfloat16", "float32", "complex128")
    names = NAMES_OF_LEAVES
    lies = LIES[:1]
    raw = False

    def save(self, arrays: Arrays, path: Path) -> Path:
        return save_hdf5(arrays, path.with_name(path.name + ".h5"), **COMPRESSED)

    def test_manifests_point_at_the_bytes(self, saved: Path) -> None:
        """The bytes of chunks that are encoded; the others, which have no chunks, are raw."""
        source = self.open(saved)
        names = {name: leaf.manifest.codec.name for name, leaf in source.leaves().items()}
        assert names == {n: "gzip" if v.size and v.ndim else "raw" for n, v in self.sample().items()}
        manifest = source.leaves()["dense/kernel"].manifest
        assert not manifest.codec.raw
        assert adopted_metadata(manifest, 2) is adopted_metadata(manifest, 3) is None
        (chunk,) = manifest.chunks.values()
        with h5py.File(saved) as file:
            found = file["dense/kernel"].id.get_chunk_info(0)
        assert (chunk.file, chunk.offset, chunk.length) == (str(saved), found.byte_offset, found.size)


# --- what arrays look like --------------------------------------------------------------------------------


@pytest.mark.each
@pytest.mark.parametrize(
    "how",
    [{}, {"chunks": (2, 3, 3)}, {"chunks": (6, 1, 3), "shuffle": True}, {**COMPRESSED, "chunks": (4, 2, 4)}],
)
def test_both_orders_of_bytes(how: dict[str, Any], tmp_path: Path) -> None:
    kinds = (">f4", ">i2", ">c8", ">c16", ">u8", ">f2", "<f4", "|b1")
    arrays = {kind: array((6, 5, 4), np.dtype(kind).newbyteorder("=").name) for kind in kinds}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for kind, value in arrays.items():
            file.create_dataset(kind, data=value.astype(kind), **how)
    source = opened(tmp_path / "x.h5")
    for kind, leaf in source.leaves().items():
        for region in random_regions((6, 5, 4), 20):
            assert same(source.read(leaf, region), arrays[kind][region.slices]), (kind, region)
        assert not (leaf.manifest.codec.raw and kind.startswith(">"))


def test_chunks_beyond_the_edge_and_of_arrays_that_grow(tmp_path: Path) -> None:
    value = array((5, 7), "float32")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=value, chunks=(8, 8), maxshape=(None, None))
        file["x"].resize((3, 7))
    source = opened(tmp_path / "x.h5")
    assert same(values(source)["x"], value[:3])
    assert source.leaves()["x"].manifest.chunk_shape == (8, 8)


@pytest.mark.parametrize("fill", [None, 7])
def test_what_was_never_written_has_the_fill_value(fill: int | None, tmp_path: Path) -> None:
    """A terabyte that is not there can be listed, and a region of it read."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        some = file.create_dataset("some", (10, 4), "f4", chunks=(3, 4), fillvalue=fill, compression="gzip")
        some[3:6] = 1
        file.create_dataset("none", (3, 4), ">i2", fillvalue=fill)
        file.create_dataset("huge", (2**20, 2**20), "u1", chunks=(64, 64), fillvalue=fill)
        put(file, "narrow", array((6,), "bfloat16"), chunks=(3,), maxshape=(None,))
        file["narrow"].resize((9,))
    source = opened(tmp_path / "x.h5")
    leaves, wanted = source.leaves(), fill or 0
    some = np.full((10, 4), wanted, np.float32)
    some[3:6] = 1
    assert same(source.read(leaves["some"], Region.whole((10, 4))), some)
    assert same(source.read(leaves["none"], Region.whole((3, 4))), np.full((3, 4), wanted, np.int16))
    narrow = np.append(array((6,), "bfloat16"), np.zeros(3, ml_dtypes.bfloat16))
    assert same(source.read(leaves["narrow"], Region.whole((9,))), narrow)
    with bounded(2**20):
        block = source.read(leaves["huge"], Region((2**19, 2**19), (2**19 + 100, 2**19 + 100)))
    assert same(block, np.full((100, 100), wanted, np.uint8))
    assert [leaf.manifest.complete for leaf in leaves.values()] == [False] * 4


def test_compact_arrays(tmp_path: Path) -> None:
    """Their elements are a part of the file's index."""
    value = array((3, 5), "float64")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_layout(h5py.h5d.COMPACT)
        for name, kind in (("x", "<f8"), ("y", ">f8")):
            file.create_dataset(name, data=value.astype(kind), dcpl=made)
    source = opened(tmp_path / "x.h5")
    assert_same(values(source), {"x": value, "y": value})
    (chunk,) = source.leaves()["x"].manifest.chunks.values()
    assert chunk.inline == value.tobytes()


def test_types_that_h5py_does_not_write(tmp_path: Path) -> None:
    """bfloat16 as a type of floats, enumerations, integers with fewer bits than their bytes have."""
    value = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    kinds = {"bf": h5py.h5t.IEEE_F16LE.copy(), "odd": h5py.h5t.STD_I32LE.copy()}
    kinds["bf"].set_fields(15, 7, 8, 0, 7)
    kinds["bf"].set_ebias(127)
    kinds["odd"].set_precision(20)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple((3,))
        for name, kind in kinds.items():
            made = h5py.h5d.create(file.id, name.encode(), kind, space)
            stored = value.view("u2") if name == "bf" else np.ones(3, np.int32)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, stored, kind)
        file.create_dataset("enum", data=[1, 2], dtype=h5py.enum_dtype({"A": 1, "B": 2}, "i2"))
    source = opened(tmp_path / "x.h5")
    leaves = source.leaves()
    assert same(source.read(leaves["bf"], Region((0,), (3,))), value)
    assert same(source.read(leaves["enum"], Region((0,), (2,))), np.array([1, 2], np.int16))
    with pytest.raises(SourceError, match="`odd`: it is an array of numbers of an unusual width"):
        source.read(leaves["odd"], Region((0,), (3,)))


def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path: Path) -> None:
    others = {
        "words": {"data": np.array(["abc", "b"], object)},
        "bytes": {"data": np.array([b"abc", b"b"])},
        "records": {"data": np.zeros(2, [("a", "f4")])},
        "narrow": {"data": np.zeros(2, "V1")},
        "untyped": {"data": np.zeros(2, "V3")},
        "arrays": {"data": np.zeros(2, [("a", "f4", (3,))])},
        "lists": {"shape": (2,), "dtype": h5py.vlen_dtype(np.int32)},
        "references": {"shape": (2,), "dtype": h5py.ref_dtype},
    }
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, how in others.items():
            file.create_dataset(name, **how)
        dates = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
        dates.insert(b"date", 0, h5py.h5t.UNIX_D32LE)
        h5py.h5d.create(file.id, b"dates", dates, h5py.h5s.create_simple((2,)))
        file.create_dataset("no value", data=h5py.Empty("f4"))
        file["type"] = np.dtype("f4")
        file["x"] = array((2, 3), "float32")
    source = opened(tmp_path / "x.h5")
    leaves = source.leaves()
    assert set(leaves) == {*others, "dates", "no value", "x"}
    assert (leaves["no value"].kind, leaves["no value"].spec) == (LeafKind.EMPTY, None)
    assert same(source.read(leaves["x"], Region.whole((2, 3))), array((2, 3), "float32"))
    for text in (*others, "dates"):
        assert leaves[text].manifest is None
        with pytest.raises(SourceError, match=f"`{text}`: it is "):
            source.read(leaves[text], Region.whole((2,)))


def test_links_within_the_file(tmp_path: Path) -> None:
    """Tied weights: hard links. Each soft link can be made one, as the hint says."""
    value = array((3, 4), "float32")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a/x"] = value
        file["b/hard"] = file["a/x"]
        file["b/it's soft"] = h5py.SoftLink("/a/x")
    with pytest.raises(SourceError) as refused:
        opened(path)
    (problem,) = refused.value.problems
    opening, change = re.findall("`(.*?)`", str(problem.hint))
    names: dict[str, Any] = {"h5py": h5py, "PATH": path}
    exec(f"{opening}; {change}; file.close()", names)
    source = opened(path)
    assert_same(values(source), dict.fromkeys(["a/x", "b/hard", "b/it's soft"], value))
    assert len({chunk for leaf in source.leaves().values() for chunk in leaf.manifest.chunks.values()}) == 1


def test_filters_that_are_not_decoded_are_listed_with_what_removes_them(tmp_path: Path) -> None:
    """`h5repack` leaves out what it cannot read, so it is named only where libhdf5 has all filters."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        put(file, "lzf", array((6, 4), "bfloat16"), compression="lzf", shuffle=True)
        file.create_dataset("both", data=np.ones(9), compression="lzf", fletcher32=True)
        file.create_dataset("sums", data=np.ones(9), compression="gzip", fletcher32=True)
        file.create_dataset("scaled", data=np.ones(9), scaleoffset=2)
        file["x"] = array((2, 3), "float32")
    source = opened(tmp_path / "x.h5")
    leaves = source.leaves()
    assert (leaves["lzf"].spec.shape, leaves["lzf"].spec.dtype.name) == ((6, 4), "bfloat16")
    assert same(source.read(leaves["x"], Region.whole((2, 3))), array((2, 3), "float32"))
    wanted = {
        "lzf": ("has the filter lzf", "with h5py"),
        "both": ("has the filter lzf", "with h5py"),
        "sums": ("has the filter fletcher32", "`h5repack -f NONE old.h5 new.h5`"),
        "scaled": ("has the filter scaleoffset", "`h5repack -f NONE old.h5 new.h5`"),
    }
    for text, (says, hint) in wanted.items():
        with pytest.raises(SourceError, match=f"`{text}`: it {says}") as refused:
            source.read(leaves[text], Region.whole(leaves[text].spec.shape))
        assert hint in str(refused.value.problems[0].hint)


@pytest.mark.parametrize("how", [{}, {"libver": "latest"}], ids=str)
@pytest.mark.parametrize("size", [512, 2048, 1 << 20])
def test_a_file_after_a_block_of_other_bytes(size: int, how: dict[str, Any], tmp_path: Path) -> None:
    arrays = {"whole": array((3, 4), "float32"), "chunked": array((8, 8), "float32")}
    path = tmp_path / ("x" if size <= 2048 else "x.h5")
    with h5py.File(path, "w", userblock_size=size, **how) as file:
        put(file, "whole", arrays["whole"])
        put(file, "chunked", arrays["chunked"], chunks=(3, 3))
        file.attrs["about"] = "some words"
    with path.open("r+b") as raw:
        raw.write(b"anything")
    assert FORMAT.recognizes(path)
    assert_same(values(opened(path)), arrays)
    assert opened(path).metadata == {"about": "some words"}


def test_the_newest_layout_of_the_index(tmp_path: Path) -> None:
    """Other indexes of chunks, groups and attributes; libhdf5 writes them where it is told to."""
    arrays = {f"group/{i}": array((9, i + 1), "float32") for i in range(20)}
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        for name, value in arrays.items():
            put(file, name, value, chunks=(2, 2) if "1" in name and value.shape[1] > 1 else None)
        put(file, "one", arrays["group/3"], chunks=(9, 4), compression="gzip")
        put(file, "grows", arrays["group/3"], chunks=(2, 2), maxshape=(None, None))
        file.attrs["about"] = "x" * 1000
    source = opened(tmp_path / "x.h5")
    assert_same(values(source), {**arrays, "one": arrays["group/3"], "grows": arrays["group/3"]})
    assert source.metadata == {"about": "x" * 1000}


# --- which files are taken for HDF5 files --------------------------------------------------------------


def test_detection_is_by_content(tmp_path: Path) -> None:
    data = save_hdf5({"x": np.ones(3)}, tmp_path / "whole").read_bytes()
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as file:
        file.writestr("config.json", "{}")
    archive = (tmp_path / "m.keras").read_bytes()
    known = {"x": data, "x.h5": b"", "x.H5": data[:5], "x.hdf5": data[:100]}
    known |= {"z.keras": archive, "y.keras": b""}
    unknown = {"x.npz": archive, "y.h5": archive, "y": b"", "y.bin": data[1:]}
    for name, content in (known | unknown).items():
        (tmp_path / name).write_bytes(content)
        assert FORMAT.recognizes(str(tmp_path / name)) == (name in known), name
    assert not FORMAT.recognizes(str(tmp_path / "missing.h5"))


def test_a_directory_with_one_file(tmp_path: Path) -> None:
    save_hdf5({"a": np.ones(3)}, tmp_path / "x.weights.h5")
    assert FORMAT.recognizes(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert not FORMAT.recognizes(str(tmp_path))
    assert list(opened(tmp_path, "hdf5").leaves()) == ["a"]


@pytest.mark.parametrize(
    ("weights", "method", "says"),
    [
        (None, zipfile.ZIP_STORED, "it has no member `model.weights.h5`"),
        (bytes(99), zipfile.ZIP_DEFLATED, "is compressed"),
        (bytes(99), zipfile.ZIP_STORED, "signature of HDF5 files"),
    ],
)
def test_archives_that_cannot_be_read(weights: bytes | None, method: int, says: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.keras", "w", method) as file:
        file.writestr("config.json", "{}")
        if weights is not None:
            file.writestr("model.weights.h5", weights)
    with pytest.raises(SourceError, match=says):
        opened(tmp_path / "m.keras")


# --- attributes of the root, which are custom metadata -------------------------------------------------


def test_simple_attributes_of_the_root_are_metadata(tmp_path: Path) -> None:
    given = {"text": "é", "empty": "", "int": 3, "float": 0.5, "flag": True, "big": 2**63 - 1}
    others = {"latin": np.bytes_(b"\xff"), "list": [1, 2], "complex": 1j, "nothing": h5py.Empty("f4")}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs.update(given | others | {"fixed": np.bytes_(b"abc"), "reference": file.ref})
        file.create_group("g").attrs["other"] = 1
    found = opened(tmp_path / "x.h5").metadata
    assert found == {**given, "fixed": "abc"}
    assert [type(found[name]) for name in given] == [type(value) for value in given.values()]


def test_metadata_of_every_kind_is_kept_or_becomes_json(tmp_path: Path) -> None:
    given = {"text": "λ", "int": -3, "float": 1.5, "flag": False, "list": [1, "a"], "none": None, "n": 2**70}
    given["long"] = "x" * 300_000
    write_all(open_sink("hdf5", tmp_path, SinkOptions(metadata=given), []), {})
    changed = {"list": '[1, "a"]', "none": "null", "n": str(2**70)}
    assert opened(tmp_path).metadata == {**given, **changed}


@pytest.mark.parametrize("metadata", [{"": 1}, {"a": "b\0c"}, {"a\0": 1}, {"a": "\ud800"}, {"a": {1, 2}}])
def test_metadata_that_cannot_be_attributes(metadata: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="custom metadata"):
        encoder("hdf5", SinkOptions(metadata=metadata))


# --- chunks, whatever index of them libhdf5 reads ------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (((8, 0), 100, 48), None),
        (((0, 3), 100, 48), "two chunks at"),
        (((0, 1), 0, 48), "outside of its grid"),
        (((12, 0), 0, 48), "outside of its grid"),
        (((4, 0), 160, 48), "begins at byte 160 of 200"),
        (((4, 0), 2**63, 48), "begins at byte"),
        (((4, 0), 0, 153), "several chunks share them"),
    ],
)
def test_chunks_by_their_index(other: tuple[tuple[int, ...], int, int], says: str | None) -> None:
    """Whatever index of them libhdf5 reads."""
    told = [
        SimpleNamespace(chunk_offset=offset, byte_offset=at, size=size, filter_mask=0)
        for offset, at, size in [((0, 3), 0, 48), other]
    ]
    dataset = SimpleNamespace(chunk_iter=lambda take: [take(info) for info in told])
    spec, view = ArraySpec((10, 6), np.dtype(np.float32)), SimpleNamespace(path="x.h5", start=1000, size=200)
    with pytest.raises(SourceError, match=says) if says else contextlib.nullcontext():
        found = chunks_of(dataset, spec, (4, 3), (), view)  # type: ignore[arg-type]
        assert found == {(0, 1): Chunk("x.h5", 1000, 48), (2, 0): Chunk("x.h5", 1100, 48)}


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for step in ({"hdf5": "gzip"}, {"hdf5": "shuffle", "size": 4}):
        try:
            assert len(decoded(data, [step], 20)) == 20
        except SourceError as error:
            assert str(error).startswith("a chunk")
