"""safetensors in and out, against the safetensors library and torch."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from safetensors import SafetensorError, TensorSpec, deserialize, safe_open, serialize

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.opening import detect_format, encoder, open_sink
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.safetensors import FORMAT
from ckpt_surgery.formats.safetensors.source import CODES as WRITTEN
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same
from tests.support.conformance import Lie
from tests.support.effort import examples
from tests.support.reading import opened, values
from tests.support.strategies import Damages, damaged, damages
from tests.support.writing import Arrays, leaf_of, output_of, write_all

CODES = {code: dtype.name for dtype, code in WRITTEN.items()}
"""Types by the library's names, but for those of less than a byte."""

INDEX = "model.safetensors.index.json"


def encoded(arrays: Arrays, metadata: Mapping[str, str] | None = None) -> bytes:
    """A file as the library writes it."""
    kept, specs = [], {}
    for name, value in arrays.items():
        stored = np.array(value, order="C")  # not np.ascontiguousarray, which makes one axis of none
        kept.append(stored)
        about = {"dtype": stored.dtype.name, "shape": stored.shape}
        specs[name] = TensorSpec(**about, data_ptr=stored.ctypes.data, data_len=stored.nbytes)
    return bytes(serialize(specs, metadata=dict(metadata) if metadata else None))


def decoded(data: bytes) -> dict[str, np.ndarray]:
    """What the library finds in a file."""
    found = {}
    for name, entry in deserialize(data):
        dtype, shape = CODES[entry["dtype"]], entry["shape"]
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        found[name] = np.frombuffer(bytes(entry["data"]), kind).reshape(shape)
    return found


def raw_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with any header: JSON text, or a value that is turned into it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(shape: Sequence[Any], start: Any, stop: Any, dtype: Any = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def file_lie(reason: str, says: str, *parts: Any, **more: Any) -> Lie:
    return conformance.file_lie("model.safetensors", reason, says, raw_file(*parts, **more))


def sharded(directory: Path, shards: Sequence[Arrays], files: Mapping[str, Any] | None = None) -> Path:
    """Shards by the library, none without a tensor, and an index, whose names of files may be changed."""
    directory.mkdir(exist_ok=True)
    shards = [arrays for arrays in shards if arrays]
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    weights: dict[str, Any] = {}
    for name, arrays in zip(names, shards, strict=True):
        (directory / name).write_bytes(encoded(arrays, {"format": "pt"}))
        weights |= dict.fromkeys(arrays, name)
    size = sum(value.nbytes for arrays in shards for value in arrays.values())
    index = {"metadata": {"total_size": size}, "weight_map": weights | dict(files or {})}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    return directory


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
A, B = {"a": array((2, 3), "float32")}, {"b": array((4,), "int32")}


def index_lie(reason: str, says: str, files: Mapping[str, Any]) -> Lie:
    return Lie(reason, lambda directory: sharded(directory / "x", [A, B], files), says)


def written(says: str, reason: str, name: str, data: bytes) -> Lie:
    def make(directory: Path) -> Path:
        sharded(directory / "x", [A, B])
        (directory / "x" / name).write_bytes(data)
        return directory / "x"

    return Lie(reason, make, says)


MANY = b",".join(b'"%d":""' % (i % 99_999) for i in range(100_000))
FILE_LIES = (
    file_lie("a header longer than the file", "header has 1000 bytes", {}, length=1000),
    file_lie("a header longer than is allowed", "allows 100000000", {}, length=2**63),
    file_lie("a header that is a list", "not a JSON object", []),
    file_lie("a header that is not JSON", "not valid JSON", b'{"a": }'),
    file_lie("a number of a million digits", "not valid JSON", b'{"a":' + b"9" * 1_000_000 + b"}"),
    file_lie("a hundred thousand names, one twice", "comes twice", b'{"__metadata__":{%s}}' % MANY),
    file_lie("bytes after the last tensor", "3 follow", {"a": entry([2], 0, 2)}, b"abc"),
    file_lie("a hole", "begins at byte 3", {"a": entry([2], 0, 2), "b": entry([2], 3, 5)}, b"abcde"),
    file_lie("an overlap", "begins at byte 1", {"a": entry([2], 0, 2), "b": entry([2], 1, 3)}, b"abc"),
    file_lie("offsets that run backwards", "apart", {"a": entry([2], 2, 0)}, b"ab"),
    file_lie("offsets beyond the file", "follow", {"a": entry([2**40], 0, 2**40)}, b"ab"),
    file_lie("negative offsets", "not all integers", {"a": entry([2], -2, 0)}, b"ab"),
    file_lie("one offset", "needs a dtype", {"a": {"dtype": "U8", "shape": [2], "data_offsets": [0]}}, b"ab"),
    file_lie("a size that the shape does not have", "takes 3 bytes", {"a": entry([3], 0, 2)}, b"ab"),
    file_lie("an axis that is a truth", "not all integers", {"a": entry([True, 2], 0, 2)}, b"ab"),
    file_lie("a product that overflows", "beyond all", {"a": entry([2**32, 2**32, 2], 0, 2)}, b"ab"),
    file_lie("too many axes", "40 axes", {"a": entry([1] * 40, 0, 1)}, b"a"),
    file_lie("an unknown type", "unknown type 'U9'", {"a": entry([2], 0, 2, "U9")}, b"ab"),
    file_lie("a type that is no text", "unknown type", {"a": entry([2], 0, 2, ["U8"])}, b"ab"),
    file_lie("a type without a packing", "F6_E2M3", {"a": entry([4], 0, 3, "F6_E2M3")}, b"abc"),
    file_lie("pairs without their bytes", "takes 3 bytes", {"a": entry([2, 3], 0, 2, "F4")}, b"ab"),
    file_lie("an entry without a type", "needs a dtype", {"a": {"shape": [], "data_offsets": [0, 1]}}, b"a"),
    file_lie("metadata that is not text", "__metadata__", {"__metadata__": {"a": 1}}),
    file_lie("a truth that is neither 0 nor 1", "has the byte 2", {"a": entry([3], 0, 3, "BOOL")}, b"\0\1\2"),
)

INDEX_LIES = (
    index_lie("a file with a path", "not a plain file name", {"a": "../x/model-00001-of-00002.safetensors"}),
    index_lie("the directory itself", "not a plain file name", {"a": "."}),
    index_lie("a file with a NUL", "not a plain file name", {"a": "x\0y"}),
    index_lie("a file that is missing", "No such file", {"c": "model-00003-of-00002.safetensors"}),
    index_lie("a name that its file lacks", "`c` is not in", {"c": FIRST}),
    index_lie("a name in the other file", "`a` is not in", {"a": SECOND}),
    written("places it elsewhere", "a name that only the file has", FIRST, encoded(A | {"c": B["b"]})),
    written("places it elsewhere", "a name in two files", SECOND, encoded(A | B)),
    written("not valid JSON", "an index that is not JSON", INDEX, b"{"),
    written("weight_map", "an index without a map", INDEX, b'{"metadata": {}}'),
    written("weight_map", "an index whose metadata is a list", INDEX, b'{"metadata": [1], "weight_map": {}}'),
    written("model.safetensors, model", "a file beside an index", "model.safetensors", encoded(A)),
)


class TestOneFile(conformance.Writing):
    """One file holds all."""

    format = "safetensors"
    dtypes = tuple(CODES.values())
    lies = FILE_LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        path.mkdir()
        (path / "model.safetensors").write_bytes(encoded(arrays))
        return path / "model.safetensors"

    def load(self, path: Path) -> dict[str, np.ndarray]:
        assert [file.name for file in path.iterdir()] == ["model.safetensors"]
        return decoded((path / "model.safetensors").read_bytes())


class TestShards(conformance.Writing):
    """An index, and a file for every few names."""

    format = "safetensors"
    dtypes = ("float32", "bfloat16", "bool")
    lies = INDEX_LIES
    more_options: ClassVar = {"shard_size": 24}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "other_dtype" in metafunc.fixturenames:
            metafunc.parametrize("other_dtype", ["int4"])
        else:
            super().pytest_generate_tests(metafunc)

    def save(self, arrays: Arrays, path: Path) -> Path:
        names = list(arrays)
        return sharded(path, [{n: arrays[n] for n in names[i::3]} for i in range(3)])

    def load(self, path: Path) -> dict[str, np.ndarray]:
        """As transformers does: the index tells which file to open."""
        if (path / "model.safetensors").exists():
            assert not (path / INDEX).exists()
            return decoded((path / "model.safetensors").read_bytes())
        files = json.loads((path / INDEX).read_text())["weight_map"]
        assert {p.name for p in path.iterdir()} == {INDEX, *files.values()}
        found = {file: decoded((path / file).read_bytes()) for file in set(files.values())}
        assert {name for arrays in found.values() for name in arrays} == set(files)
        return {name: found[file][name] for name, file in files.items()}


# --- what only safetensors has ----------------------------------------------------------------------------


def write(directory: Path, arrays: Arrays, options: SinkOptions) -> Path:
    directory.mkdir()
    outputs = [output_of(name, value) for name, value in arrays.items()]
    write_all(open_sink("safetensors", directory, options, outputs), arrays)
    return directory


def test_torch_agrees_on_narrow_floats(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    numbers = torch.tensor([[0.5, -1.5, 3.0, 448.0], [0.0, 1.0, -2.0, 6.0]])
    types = {name: getattr(torch, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    save_file({name: numbers.to(kind) for name, kind in types.items()}, tmp_path / "x.safetensors")
    source = opened(tmp_path / "x.safetensors")
    found = values(source)
    for name, kind in types.items():
        assert found[name].dtype.name == name
        np.testing.assert_array_equal(found[name].astype(np.float32), numbers.to(kind).float().numpy())
    path = write(tmp_path / "again", found, SinkOptions())
    again = load_file(path / "model.safetensors")
    assert all(torch.equal(again[n].float(), numbers.to(kind).float()) for n, kind in types.items())


def test_pairs_are_listed_and_not_read(tmp_path: Path) -> None:
    header = {"x": entry([2, 2], 0, 2, "F4"), "y": entry([2], 2, 4)}
    (tmp_path / "x.safetensors").write_bytes(raw_file(header, b"\x71\x2f\1\2"))
    source = opened(tmp_path / "x.safetensors")
    leaves = source.leaves()
    assert (str(leaves["x"].spec), leaves["x"].manifest) == ("float4_e2m1fn[2,2]", None)
    with pytest.raises(SourceError, match=r"`x`: it has two elements in each byte \(F4\)"):
        source.read(leaves["x"], Region.whole((2, 2)))
    assert source.read(leaves["y"], Region.whole((2,))).tolist() == [1, 2]


def test_metadata_is_written_as_text(tmp_path: Path) -> None:
    given_ = {"format": "pt", "step": 3, "nested": {"a": [1, None]}}
    path = write(tmp_path / "x", A, SinkOptions(metadata=given_)) / "model.safetensors"
    wanted = {"format": "pt", "step": "3", "nested": '{"a": [1, null]}'}
    with safe_open(path, "np") as file:
        assert file.metadata() == wanted
    assert opened(path).metadata == wanted


def test_metadata_of_shards_and_index(tmp_path: Path) -> None:
    path = sharded(tmp_path / "x", [A, B])
    index = json.loads((path / INDEX).read_text())
    index["metadata"] |= {"total_parameters": 10, "mergekit_version": "0.1", "format": "of the index"}
    (path / INDEX).write_text(json.dumps(index))
    assert opened(path).metadata == {"mergekit_version": "0.1", "format": "pt"}


def test_leaves_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    shards = [{f"layer_{i}.{name}": array((3,), "float32") for name in "ba"} for i in (1, 0)]
    leaves = opened(sharded(tmp_path / "x", shards)).leaves()
    assert list(leaves) == ["layer_1.a", "layer_1.b", "layer_0.a", "layer_0.b"]


@pytest.mark.parametrize(
    ("shard_size", "wanted"),
    [
        (None, [["a", "b", "c", "d"]]),
        (10**6, [["a", "b", "c", "d"]]),  # all fit into one file, which then has the usual name
        (80, [["a", "b"], ["c"], ["d"]]),  # c is larger than a file and has one to itself
        (40, [["a"], ["b"], ["c"], ["d"]]),
        (1, [["a"], ["b"], ["c"], ["d"]]),
    ],
)
def test_files_are_filled_in_order(shard_size: int | None, wanted: list[list[str]], tmp_path: Path) -> None:
    arrays = {n: array((size,), "float32") for n, size in {"a": 10, "b": 10, "c": 100, "d": 10}.items()}
    path = write(tmp_path / "x", arrays, SinkOptions(shard_size=shard_size))
    files = sorted(path.glob("*.safetensors"))
    assert [sorted(decoded(file.read_bytes())) for file in files] == wanted
    count = len(wanted)
    names = [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
    assert [file.name for file in files] == (names if count > 1 else ["model.safetensors"])
    if count > 1:
        assert json.loads((path / INDEX).read_text())["metadata"] == {"total_size": 520}
    assert_same(values(opened(path)), arrays)


def test_tensors_begin_at_multiples_of_their_elements(tmp_path: Path) -> None:
    dtypes = {"a": "uint8", "b": "bfloat16", "c": "float64", "d": "int8"}
    arrays = {name: array((3,), dtype) for name, dtype in dtypes.items()}
    for name, leaf in opened(write(tmp_path / "x", arrays, SinkOptions())).leaves().items():
        assert leaf.manifest.chunks[(0,)].offset % arrays[name].dtype.itemsize == 0, name


def test_what_is_no_header_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaves = [output_of(f"{i}" * 100, array((2,), "float32")).leaf for i in range(5)]
    exact = len(encoded({leaf.key.text: array((2,), "float32") for leaf in leaves})) - 40 - 8
    for limit, fine in ((exact, True), (exact - 8, False)):
        monkeypatch.setattr("ckpt_surgery.formats.safetensors.MOST_HEADER_BYTES", limit)
        told = encoder("safetensors", SinkOptions()).unsupported(leaves)
        assert (told == []) == fine
    assert told == [
        f"5 leaves need a header of {exact} bytes, and safetensors allows {exact - 8}; "
        "spread them over several files, by giving a shard size."
    ]
    assert encoder("safetensors", SinkOptions(shard_size=8)).unsupported(leaves) == []
    (told,) = encoder("safetensors", SinkOptions()).unsupported([leaf_of("__metadata__", np.ones(2))])
    assert told == "`__metadata__` is what safetensors calls its metadata; rename it."


# --- which file is meant ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        (["model.safetensors", "config.json"], "model.safetensors"),
        (["model.safetensors", "model.fp16.safetensors"], "model.safetensors"),  # a variant beside it
        (["adapter_model.safetensors", "README.md"], "adapter_model.safetensors"),
        (["model-00001-of-00001.safetensors"], "model-00001-of-00001.safetensors"),
    ],
)
def test_the_single_file_of_a_directory(names: list[str], meant: str, tmp_path: Path) -> None:
    for name in names:
        data = encoded({name: A["a"]}) if name.endswith(".safetensors") else b"{}"
        (tmp_path / name).write_bytes(data)
    assert detect_format(os.fspath(tmp_path)).name == "safetensors"
    assert list(opened(tmp_path).leaves()) == [meant]


def test_an_index_of_another_name(tmp_path: Path) -> None:
    path = sharded(tmp_path / "x", [A, B])
    (path / "consolidated.safetensors").write_bytes(encoded(A))
    assert sorted(opened(path).leaves()) == ["a", "b"]
    (path / INDEX).rename(path / "diffusion.safetensors.index.json")
    assert sorted(opened(path).leaves()) == ["a", "b"]
    assert sorted(opened(path / "diffusion.safetensors.index.json").leaves()) == ["a", "b"]
    assert list(opened(path / "model-00002-of-00002.safetensors").leaves()) == ["b"]


def test_detection_is_by_content(tmp_path: Path) -> None:
    known = {"blob": encoded(A), "a.safetensors": b"", "b.safetensors": b"\0" * 100}  # blobs have no suffix
    disguised = b"PK\x03\x04" + b"\0" * 100  # a PyTorch file
    unknown = {"c.safetensors": disguised, "x.bin": b"\0" * 100, "x.json": b"{}", "empty": b""}
    for name, data in (known | unknown).items():
        (tmp_path / name).write_bytes(data)
        assert FORMAT.recognizes(tmp_path / name) == (name in known), name
    assert not FORMAT.recognizes(tmp_path / "missing")


# --- at random --------------------------------------------------------------------------------------------

HEADERS = b'0123456789[]{}",:-eF \0\xff'
"""Bytes that mean something in a header, and two that do not."""


@examples(150)
@given(damages=damages(400, written=HEADERS))
def test_whatever_is_read_from_damaged_headers_the_library_reads_too(
    damages: Damages, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Overwritten bytes: a refusal, or exactly what the library finds. Only that may be more lenient."""
    arrays = {"a": array((2, 3), "float32"), "b/c": array((), "int16"), "d": array((0, 2), "uint8")}
    whole = encoded(arrays, {"k": "v"})
    data = damaged(whole, damages, end=8 + int.from_bytes(whole[:8], "little"))
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(data)
    try:
        found = values(opened(path))
    except SourceError:
        return
    try:
        wanted = decoded(data)
    except SafetensorError as error:
        pytest.fail(f"the library refuses: {error}")
    assert_same(found, wanted)
