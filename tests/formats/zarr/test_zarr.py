"""Zarr groups, against zarr-python and TensorStore as writers and as readers."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.protocols import Output, Source
from ckpt_surgery.formats.opening import detect_format, encoder, open_sink, open_source
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import EXTENDED
from ckpt_surgery.formats.zarr.source import foreign_files
from ckpt_surgery.storage import views
from ckpt_surgery.storage.store import store_of
from tests.formats.shared.zarr.codecs import regular, save_file
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.conformance import Lie
from tests.support.directories import copy_of, files_of
from tests.support.heavy import ts, zarr
from tests.support.key_value import requests_of, uploaded
from tests.support.libraries import save_zarr
from tests.support.reading import opened, values
from tests.support.writing import Arrays, Processes, leaf_of, output_of, write_all

NO_PATHS = (
    *("../../etc/passwd", "/absolute", "a//b", "trailing/", ".", "..", "a\\b", "C:\\x"),
    *("nul\0byte", "x" * 4000),
)
"""Names of other formats that are no paths of directories."""
PATHS = tuple(name for name in conformance.NAMES if name not in NO_PATHS)


def saved(arrays: Arrays, path: Path, version: int, **options: Any) -> Path:
    """Arrays in a group, by zarr-python; those of types that it does not have by TensorStore."""
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for name, value in arrays.items():
        if value.dtype.name in NUMPY_NAMES:
            # Chunks of zeros are left out otherwise.
            config = {"write_empty_chunks": True}
            group.create_array(name, data=value, config=config, **options)
        else:
            save_file(path / name, version, {}, value)
    for file in path.rglob(".zattrs"):  # version 2 of zarr-python writes them only where there are some
        if file.parent != path or json.loads(file.read_text()) == {}:
            file.unlink()
    return path


def loaded(path: Path, version: int) -> dict[str, np.ndarray]:
    """What TensorStore reads; and zarr-python the same, where it has the type."""
    group, found = zarr.open_group(path, mode="r", zarr_format=version), {}
    for file in sorted(path.rglob(FILE_NAMES[version])):
        name = str(file.parent.relative_to(path))
        if json.loads(file.read_text()).get("node_type") == "group":
            assert isinstance(group if name == "." else group[name], zarr.Group)
            continue
        kvstore = {"driver": "file", "path": f"{file.parent}/"}
        spec = {"driver": DRIVERS[version], "kvstore": kvstore, "fill_missing_data_reads": False}
        found[name] = np.asarray(ts.open(spec, open=True, read=True).result().read().result())
        if found[name].dtype.name in NUMPY_NAMES:
            again = group[name]
            assert isinstance(again, zarr.Array)
            assert same(np.asarray(again[...]), found[name]), name
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_large_regions_are_decoded_by_several_threads(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_surgery.formats.chunk_reading.PARALLEL_BYTES", 1)
    arrays = {"x": array((40, 60), "float32")}
    path = saved(arrays, tmp_path / "x.zarr", version, chunks=(7, 9))
    assert_same(values(opened(path)), arrays)


# --- lies -------------------------------------------------------------------------------------------------


def lie(
    version: int, reason: str, says: str, change: Mapping[str, Any] | Callable[[Path], object], **options: Any
) -> Lie:
    """A group with the array `a/x`, [4, 6] in chunks of [2, 3], whose metadata or files are changed."""

    def make(directory: Path) -> Path:
        path = directory / "x.zarr"
        value = array((4, 6), "float32")
        saved({"a/x": value}, path, version, chunks=(2, 3), **options)
        if callable(change):
            change(path)
        else:
            edit(path / "a" / "x" / (".zarray" if version == 2 else "zarr.json"), change)
        return path

    return Lie(reason, make, says)


def edit(file: Path, change: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(change)))


def replaced(name: str, text: str | bytes) -> Callable[[Path], object]:
    data = text if isinstance(text, bytes) else text.encode()

    def write(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)

    return write


def removed(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).unlink()


lie_3, lie_2 = partial(lie, 3), partial(lie, 2)
OTHER_CODEC = [{"name": "bytes"}, {"name": "numcodecs.lzma"}]
OTHER_CHAIN = [{"name": "bytes"}, {"name": "gzip"}]
LONG = {"shape": [2**40, 6], "chunk_grid": regular(2**40, 3)}
VERSION_4 = '{"zarr_format": 4, "node_type": "group"}'
NO_END = {"fill_value": None, "shape": [2**50, 2**50], "chunks": [1, 1], "dimension_separator": "/"}


def root(**fields: Any) -> Callable[[Path], object]:
    """Other metadata of the group itself."""
    return replaced("zarr.json", json.dumps({"zarr_format": 3, "node_type": "group", **fields}))


def incomplete(path: Path) -> None:
    edit(path / "a/x/.zarray", {"fill_value": None})
    (path / "a/x/1.0").unlink()


LIES_3 = (
    lie_3("a shape that overflows", "should decode to", LONG),
    lie_3("text", "`a/x`: its data type `string` cannot be read", {"data_type": "string"}),
    lie_3("an unknown codec", "`a/x`: its codec `numcodecs.lzma` cannot be read", {"codecs": OTHER_CODEC}),
    lie_3("another codec than it was written with", "cannot be decoded", {"codecs": OTHER_CHAIN}),
    lie_3("no group", "neither a group nor an array", replaced("a/zarr.json", VERSION_4)),
    lie_3("metadata that nest deeply", "not valid JSON", replaced("a/x/zarr.json", "[" * 10**6)),
    lie_3("chunks without an array", "looks like a chunk", removed("a/x/zarr.json")),
    lie_3("metadata of both versions", "has both", replaced("a/x/.zarray", "{}")),
    lie_3("attributes that are a list", "not a JSON object", root(attributes=[1])),
    lie_3("consolidated metadata that are a list", "malformed", root(consolidated_metadata=[1])),
    lie_3("no metadata at the root", "no zarr.json", removed("zarr.json")),
    lie_3("a long chunk", "25 .* to 24", replaced("a/x/c/0/0", b"x" * 25), compressors=None),
    lie_3("directories without end", "64 directories", replaced("/".join(["d"] * 80) + "/x", "")),
)

GONE = '{"metadata": {".zgroup": {}, "a/y/.zarray": {}}}'
LIES_2 = (
    lie_2("a shape that overflows", "should decode to", {"shape": [2**40, 6], "chunks": [2**40, 3]}),
    lie_2("objects", "`a/x`: its data type `object` cannot be read", {"dtype": "|O"}),
    lie_2("fields", "cannot be read", {"dtype": [["a", "<f4"], ["b", "<i4"]]}),
    lie_2(
        "filters",
        "`a/x`: its filters .*delta.* cannot be read",
        {"filters": [{"id": "delta", "dtype": "<f4"}]},
    ),
    lie_2("an unknown compressor", "its codec `lzma` cannot be read", {"compressor": {"id": "lzma"}}),
    lie_2("another compressor than it had", "cannot be decoded", {"compressor": {"id": "zstd"}}),
    lie_2("a missing chunk and no fill value", "`a/x`: its chunk 1.0 is missing", incomplete),
    lie_2("a grid without end and no fill value", "chunks, more than the .* values in all", NO_END),
    lie_2("no group", "not a group of zarr v2", replaced("a/.zgroup", '{"zarr_format": 3}')),
    lie_2("chunks without an array", "looks like a chunk", removed("a/x/.zarray")),
    lie_2("consolidated arrays that are gone", "`a/y` is in the cons", replaced(".zmetadata", GONE)),
    lie_2("consolidated metadata without nodes", "malformed", replaced(".zmetadata", "{}")),
    lie_2("attributes that are no JSON", "not valid JSON", replaced(".zattrs", "")),
)


# --- conformance ------------------------------------------------------------------------------------------


class Group(conformance.Writing):
    format = "zarr"
    dtypes = (*NUMPY_NAMES, *EXTENDED)
    names = PATHS
    raw = False
    refused_names: ClassVar = NO_PATHS
    version: ClassVar[int]

    def save(self, arrays: Arrays, path: Path) -> Path:
        return saved(arrays, path, self.version)

    def load(self, path: Path) -> dict[str, np.ndarray]:
        return loaded(path, self.version)

    def test_missing_files(self, saved: Path, tmp_path: Path) -> None:
        """What holds for zarr alone: a chunk without a file is the fill value."""
        path = copy_of(saved, tmp_path / "copy")
        wanted: dict[str, np.ndarray] = self.sample()
        for file in files_of(path):
            file.rename(tmp_path / "aside")
            found = self.outcome(path)
            name = next((n for n in wanted if file.is_relative_to(path / n)), "")
            if (name and file.parent != path / name) or file.name[0] in "0123456789c":
                assert_same(found, wanted | {name: np.zeros_like(wanted[name])})
            elif name == "none/of/it":  # of which there is nothing else
                assert_same(found, {n: v for n, v in wanted.items() if n != name})
            elif name or file.parent == path:
                assert isinstance(found, SourceError), file
            else:
                assert_same(found, wanted)
            (tmp_path / "aside").rename(file)
        assert_same(values(opened(path)), wanted)


class TestVersion3(Processes, Group):
    version = 3
    lies = LIES_3


class TestVersion2(Group):
    version = 2
    lies = LIES_2
    more_options: ClassVar = {"zarr": 2}


# --- what only zarr has: reading ----------------------------------------------------------------------------


def group_of(path: Path, version: int, **options: Any) -> "zarr.Group":
    return zarr.open_group(path, mode="w", zarr_format=version, **options)


@pytest.mark.parametrize("version", [2, 3])
def test_what_zarr_python_can_vary(version: int, tmp_path: Path) -> None:
    import numcodecs

    value, group = array((5, 7, 3), "float32"), group_of(tmp_path / "g", version)
    gzip, blosc = {
        2: (numcodecs.GZip(), numcodecs.Blosc()),
        3: (zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec()),
    }[version]
    filters = {"filters": [zarr.codecs.TransposeCodec(order=(2, 0, 1))]}
    varied: dict[str, dict[str, Any]] = {
        "raw": {"compressors": None},
        "gzip": {"compressors": gzip},
        "blosc": {"compressors": blosc},
        "zstd": {},
        "big": {"dtype": ">f4"},
        "transposed": {"order": "F"} if version == 2 else filters,
    }
    for name, options in varied.items():
        options = {"shape": value.shape, "chunks": (2, 3, 3), "dtype": "float32"} | options
        group.create_array(name, **options)[...] = value
    source = opened(tmp_path / "g")
    assert_same(values(source), dict.fromkeys(varied, value))
    codecs = {name: leaf.manifest.codec for name, leaf in source.leaves().items()}
    for name in ("raw", "gzip", "blosc"):
        assert codecs[name].name == name
    assert codecs["transposed"].order == ("F" if version == 2 else "2,0,1")


def test_shards_and_other_names_of_chunks(tmp_path: Path) -> None:
    group, value = group_of(tmp_path / "g", 3), array((9, 8), "int16")
    group.create_array("shards", data=value, chunks=(2, 2), shards=(4, 4))
    group.create_array("v2", data=value, chunks=(4, 4), chunk_key_encoding={"name": "v2", "separator": "."})
    dots = {"name": "default", "separator": "."}
    group.create_array("dots", data=value, chunks=(4, 4), chunk_key_encoding=dots)
    slashes = {"name": "v2", "separator": "/"}
    old = group_of(tmp_path / "old", 2)
    old.create_array("slashes", data=value, chunks=(4, 4), chunk_key_encoding=slashes)
    assert_same(values(opened(tmp_path / "g")), dict.fromkeys(("shards", "v2", "dots"), value))
    assert_same(values(opened(tmp_path / "old")), {"slashes": value})
    assert len(opened(tmp_path / "old").leaves()["slashes"].manifest.chunks) == 6


@pytest.mark.parametrize("version", [2, 3])
def test_attributes_of_the_root_are_the_metadata(version: int, tmp_path: Path) -> None:
    """Of a group, or of an array that is alone."""
    group = group_of(tmp_path / "g", version, attributes={"step": 3, "nested": {"λ": [1, None]}})
    group.create_array("a/x", data=np.ones(2), attributes={"its": "own"})
    assert opened(tmp_path / "g").metadata == {"step": 3, "nested": {"λ": [1, None]}}
    source = opened(tmp_path / "g" / "a" / "x")
    assert (source.format, source.metadata) == ("zarr", {"its": "own"})
    assert_same(values(source), {"array": np.ones(2)})


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fill", [0, 7, -0.5, np.nan, np.inf])
def test_a_missing_chunk_is_the_fill_value(version: int, fill: float, tmp_path: Path) -> None:
    group, wanted = group_of(tmp_path / "g", version), np.full((4, 6), fill, np.float32)
    x = group.create_array("x", shape=(4, 6), chunks=(2, 3), dtype="float32", fill_value=fill)
    x[2:, :3] = wanted[2:, :3] = array((2, 3), "float32")
    source = opened(tmp_path / "g")
    leaf = source.leaves()["x"]
    assert list(leaf.manifest.chunks) == [(1, 0)]
    assert not leaf.manifest.complete
    for region in conformance.random_regions((4, 6), 20):
        assert same(source.read(leaf, region), wanted[region.slices])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_chunk_that_vanishes_is_no_fill_value(sparse: bool, tmp_path: Path) -> None:
    x = group_of(tmp_path / "g", 3).create_array("x", shape=(4,), chunks=(2,), dtype="int32")
    x[:2] = [1, 2]
    x[2:] = [0, 0] if sparse else [3, 4]
    source = opened(tmp_path / "g")
    leaf = source.leaves()["x"]
    assert leaf.manifest.complete != sparse
    (tmp_path / "g/x/c/0").unlink()
    with pytest.raises(SourceError):
        source.read(leaf, Region((0,), (2,)))


def test_a_huge_array_without_chunks_costs_nothing(tmp_path: Path) -> None:
    group_of(tmp_path / "g", 3).create_array(
        "x", shape=(2**50, 2**12), chunks=(1, 1), dtype="int8", fill_value=3
    )
    source = opened(tmp_path / "g")
    with conformance.bounded(2**20):
        leaf = source.leaves()["x"]
        assert (leaf.spec.nbytes, leaf.manifest.chunks) == (2**62, {})
        assert source.read(leaf, Region((2**49, 5), (2**49 + 1, 7))).tolist() == [[3, 3]]


@pytest.mark.parametrize("version", [2, 3])
def test_consolidated_metadata(version: int, tmp_path: Path) -> None:
    arrays = {"a/x": array((4, 6), "float32"), "y": array((2,), "int8")}
    path = saved(arrays, tmp_path / "g", version)
    with pytest.warns(zarr.errors.ZarrUserWarning) if version == 3 else pytest.MonkeyPatch.context():
        zarr.consolidate_metadata(path)
    assert_same(values(opened(path)), arrays)
    zarr.open_group(path, mode="a", use_consolidated=False).create_array("later", data=arrays["y"])
    assert_same(values(opened(path)), arrays | {"later": arrays["y"]})
    shutil.rmtree(path / "a" / "x")
    with pytest.raises(SourceError, match="`a/x` is in the consolidated metadata"):
        opened(path)


def test_groups_without_metadata_and_files_of_others(tmp_path: Path) -> None:
    """TensorStore makes no groups, and neither a README nor what lies in an array's directory is an array."""
    group_of(tmp_path / "g", 3)
    value = array((3,), "bfloat16")
    save_file(tmp_path / "g/deep/down/x", 3, {}, value)
    for name in ("README.md", "deep/.DS_Store", "deep/down/x/c/notes", "deep/down/x/c/00", "deep/down/x/c/5"):
        (tmp_path / "g" / name).write_text("3")
    assert_same(values(opened(tmp_path / "g")), {"deep/down/x": value})


def test_what_is_taken_for_zarr(tmp_path: Path) -> None:
    (tmp_path / "damaged.zarr").mkdir()
    assert detect_format(os.fspath(tmp_path / "damaged.zarr")).name == "zarr"
    path = saved({"x": np.ones(2)}, tmp_path / "three", 3) / "zarr.json"
    for place, says in ((tmp_path / "damaged.zarr", "not a zarr group"), (path, "not a directory")):
        with pytest.raises(SourceError, match=says):
            opened(place, "zarr")


# --- what only zarr has: writing ----------------------------------------------------------------------------


def sink_of(directory: Path, outputs: Sequence[Output], zarr: int) -> Any:
    directory.mkdir(exist_ok=True)
    return open_sink("zarr", directory, SinkOptions(zarr=zarr), outputs)


def written(directory: Path, arrays: Arrays, version: int, chunks: tuple[int, ...]) -> Path:
    outputs = [output_of(name, value, chunks) for name, value in arrays.items()]
    write_all(sink_of(directory, outputs, version), arrays)
    return directory


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_lie_on_the_grid_that_was_asked_for(version: int, tmp_path: Path) -> None:
    path = written(tmp_path / "g", {"a/x": array((4, 6), "float32")}, version, (3, 4))
    files = {os.fspath(file.relative_to(path)) for file in files_of(path)}
    wanted = {
        2: {".zgroup", "a/.zgroup", "a/x/.zarray", "a/x/0.0", "a/x/0.1", "a/x/1.0", "a/x/1.1"},
        3: {"zarr.json", "a/zarr.json", "a/x/zarr.json", *(f"a/x/c/{i}/{j}" for i in (0, 1) for j in (0, 1))},
    }
    assert files == wanted[version]


def test_flipped_bits_are_found(tmp_path: Path) -> None:
    path = written(tmp_path / "g", {"x": array((64,), "float32")}, 3, (64,))
    chunk = path / "x" / "c" / "0"
    whole = chunk.read_bytes()
    for i in range(0, len(whole), 16):
        chunk.write_bytes(whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :])
        with pytest.raises(SourceError, match=r"`x`: its chunk .* cannot be decoded"):
            values(opened(path))


@pytest.mark.parametrize(
    ("name", "zarr", "says"),
    [
        ("a/zarr.json/b", 3, "has the part `zarr.json`, a name that version 3 of zarr or"),
        (".zarray", 3, "has the part `.zarray`, a name that version 3 of zarr or"),
        (".zgroup", 2, "a name that version 2 of zarr or"),
        ("a/.zattrs", 2, "a name that version 2 of zarr or"),
        ("x.__lock", 2, "has the part `x.__lock`, a name that version 2 of zarr or"),
        ("a/__params__", 3, "has the part `__params__`, a name that version 3 of zarr or TensorStore keeps"),
        ("a/../b", 3, "has the part `..`, which cannot be the name of a zarr node"),
        ("...", 2, "which cannot be the name of a zarr node"),
        ("", 3, "has an empty part, which cannot be the name of a zarr node"),
        ("é" * 128, 3, "… of 256 bytes, and a name may have 255"),
        ("/".join(["x" * 200] * 16), 3, "has 3215 bytes, too many for a path"),
    ],
)
def test_names_that_are_no_paths(name: str, zarr: int, says: str) -> None:
    (told,) = encoder("zarr", SinkOptions(zarr=zarr)).unsupported([leaf_of(name, np.ones(2))])
    assert says in told
    assert told.startswith(f"`{name}` ")
    assert told.endswith("; rename it.")


@pytest.mark.parametrize(
    ("name", "zarr"), [("c", 3), ("c/0", 3), ("0", 2), ("0.0", 2), ("__x", 2), ("é" * 127, 3)]
)
def test_names_that_only_look_like_chunks(name: str, zarr: int, tmp_path: Path) -> None:
    arrays = {name: array((4, 6), "float32"), "y": array((2, 3), "float32")}
    assert (
        encoder("zarr", SinkOptions(zarr=zarr)).unsupported([leaf_of(n, v) for n, v in arrays.items()]) == []
    )
    path = written(tmp_path / "g", arrays, zarr, (2, 3))
    assert_same(loaded(path, zarr), arrays)
    assert_same(values(opened(path)), arrays)


@pytest.mark.parametrize("zarr", [1, 4])
def test_other_versions_are_refused(zarr: int) -> None:
    with pytest.raises(UsageError, match=f"Not a version of zarr: {zarr}"):
        encoder("zarr", SinkOptions(zarr=zarr))


def test_directories_that_tensorstore_takes_for_others(tmp_path: Path) -> None:
    """`a\\b` is one directory, and TensorStore reads and writes `a/b`."""
    saved({"x": np.ones(2)}, tmp_path / "a" / "b", 3)
    saved({"x": np.zeros(2)}, tmp_path / "c", 3).rename(tmp_path / "a\\b")
    assert_same(values(opened(tmp_path / "a\\b")), {"x": np.zeros(2)})
    with pytest.raises(UsageError, match="backslash"):
        sink_of(tmp_path / "d\\e", [], 3)


# --- stored bytes -------------------------------------------------------------------------------------------


def adopted(source: Source, directory: Path, version: int) -> Path:
    """Every array by its stored bytes."""
    outputs = []
    for leaf in source.leaves().values():
        assert encoder("zarr", SinkOptions(zarr=version)).adopts(leaf, leaf.manifest)
        outputs.append(Output(leaf, leaf.manifest.chunk_shape, leaf.manifest, copied=True))
    write_all(sink_of(directory, outputs, version), {})
    return directory


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_are_copied_as_they_are(version: int, tmp_path: Path) -> None:
    arrays = {
        "a/x": array((4, 6), "float32"),
        "count": array((), "int32"),
        "none": array((0, 3), "float64"),
        "b": array((5,), "bool"),
    }
    path = saved(arrays, tmp_path / "from", version)
    copied = adopted(opened(path), tmp_path / "to", version)
    assert_same(loaded(copied, version), arrays)
    data = [f for f in files_of(path) if f.name[0] in "0123456789c"]
    assert len(data) == 3
    for file in data:
        assert (copied / file.relative_to(path)).read_bytes() == file.read_bytes()


def test_metadata_and_chunks_are_the_groups() -> None:
    own = [
        *("zarr.json", ".zattrs", "a/zarr.json", "a/c/0/1", "a/0.1", "a/c", "a/c.0.1"),
        *("layers/0/.zarray", "layers/0/0.0", "layers/0/1/2", "layers/.zgroup"),
    ]
    others = ["notes", "a/notes", "a/c/x", "a/c/0/x/1", "b/0.1", "b/c/0", "layers/notes", "a/0.1.part"]
    assert foreign_files("", own + others) == others
    assert foreign_files("", ["0/1", "c/0"]) == ["0/1", "c/0"]


# --- groups in stores ----------------------------------------------------------------------------------


def test_a_part_is_read_from_its_chunks_unless_they_are_missing_or_damaged(bucket: str) -> None:
    value = array((7, 5), "float32")
    sink = open_sink("zarr", f"{bucket}/out", SinkOptions(), [output_of("x", value, (3, 2))])
    write_all(sink, {"x": value})
    store, writer, region = store_of(bucket)[0], sink.attach("0"), Region((3, 2), (6, 5))
    requests_of(bucket).clear()
    assert same(writer.read(sink.outputs[0], region), value[region.slices])
    read = [request for request in requests_of(bucket) if request.startswith("read")]
    assert sorted(read) == ["read out/x/c/1/1", "read out/x/c/1/2"]
    store.put("out/x/c/1/1", store.read("out/x/c/1/1")[:-1])
    with pytest.raises(SourceError, match="`x`: its chunk c/1/1 cannot be decoded"):
        writer.read(sink.outputs[0], region)
    store.delete(["out/x/c/1/1"])
    with pytest.raises(SourceError, match="`x` lacks 1 of its chunks"):
        writer.read(sink.outputs[0], region)


def test_stored_bytes_are_copied_once(tmp_path: Path, bucket: str) -> None:
    arrays = {"a/x": array((7, 5), "float32"), "y": array((3,), "uint8")}
    leaves = open_source(uploaded(save_zarr(arrays, tmp_path / "in"), f"{bucket}/in")).leaves()
    outputs = {key: Output(leaf, leaf.manifest.chunk_shape, leaf.manifest) for key, leaf in leaves.items()}
    sink = open_sink("zarr", f"{bucket}/out", SinkOptions(), list(outputs.values()))
    writer, store = sink.attach("0"), store_of(bucket)[0]
    crcs = {key: writer.adopt(output).chunks for key, output in outputs.items()}
    sink.finish(["0"])
    assert_same(values(open_source(f"{bucket}/out")), arrays)
    requests_of(bucket).clear()
    store.put("out/y/c/0", b"damaged")
    assert {key: writer.adopt(output, crcs[key]).chunks for key, output in outputs.items()} == crcs
    assert [r for r in requests_of(bucket) if r.startswith("put")] == ["put out/y/c/0"] * 2
    views.forget()
    assert_same(values(open_source(f"{bucket}/out")), arrays)
