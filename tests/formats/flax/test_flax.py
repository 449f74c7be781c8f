"""Flax's MessagePack in and out, against flax itself."""

import contextlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import msgpack
import numpy as np
import pytest
from flax import config, serialization, traverse_util
from flax.training import checkpoints
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.core.protocols import Output, Source
from ckpt_surgery.formats.flax import FORMAT, writing
from ckpt_surgery.formats.opening import detect_format, encoder, open_sink, open_source
from ckpt_surgery.formats.registry import SinkOptions
from tests.formats.bounds import bounded
from tests.formats.shared.msgpack.test_tree import LIES, one, packed_array
from tests.support import conformance
from tests.support.arrays import ALL_DTYPES, array
from tests.support.comparing import assert_same
from tests.support.conformance import file_lie
from tests.support.directories import copy_of, files_of, names
from tests.support.reading import values
from tests.support.trees import nested
from tests.support.writing import Arrays, leaf_of, output_of, write_all

NAMES = tuple(name for name in conformance.NAMES if name not in ("a", ".."))
"""The names without those of leaves that other names would make containers of: `a//b`, `../../etc/passwd`."""
A, B = {"a/x": array((2, 3), "float32")}, {"b": array((4,), "int32")}


def encoded(leaves: Mapping[str, Any]) -> bytes:
    data: bytes = serialization.to_bytes(nested(leaves))
    return data


def restored(data: bytes) -> Any:
    return serialization.msgpack_restore(data)


def decoded(data: bytes) -> dict[str, Any]:
    """What flax finds in a file, by name."""
    flat = traverse_util.flatten_dict(restored(data), keep_empty_nodes=True)
    return {"/".join(key): value for key, value in flat.items()}


def opened(path: Path, step: int | None = None) -> Source:
    return open_source(os.fspath(path), "flax", step)


def in_file(name: str, data: bytes, directory: Path) -> Path:
    (directory / name).write_bytes(data)
    return directory / name


in_model = partial(file_lie, "model.msgpack")
in_stream = partial(file_lie, "streaming_params")

FILE_LIES = (
    *(in_model(*lie) for lie in LIES),
    in_model("an empty file", "is empty", b""),
    in_model("a single array", "holds an array without a name", serialization.to_bytes(np.ones(3))),
    in_model("a single number", "holds a Python int and no tree", msgpack.packb(3)),
    in_model("a byte string", "`a/b`: it is a byte string of the length 3", encoded({"a/b": b"abc"})),
    in_model("one key twice", "two leaves have the key `a/b`", msgpack.packb({"a": {"b": 1}, "a/b": 2})),
    in_model("a number and its text as keys", "two leaves have", msgpack.packb({"a": {"1": 1, 1: 2}})),
    in_model("a placeholder of Orbax", "`a`: it stands for an array", encoded({"a": "PLACEHOLDER://a"})),
    in_model("a truth that is neither 0 nor 1", "has the byte 2", one(packed_array([3], "bool", b"\0\1\2"))),
)


class TestOneFile(conformance.Writing):
    """One file holds all."""

    format = "flax"
    dtypes = ALL_DTYPES
    names = NAMES
    lies = FILE_LIES
    refused_kinds = (LeafKind.PRNG_KEY,)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "other_dtype" in metafunc.fixturenames:
            metafunc.parametrize("other_dtype", [np.dtype(np.longdouble).name])
        else:
            super().pytest_generate_tests(metafunc)

    def save(self, arrays: Arrays, path: Path) -> Path:
        return in_file(f"{path.name}.msgpack", encoded(arrays), path.parent)

    def load(self, path: Path) -> dict[str, np.ndarray]:
        assert names(path) == ["flax_model.msgpack"]
        return decoded((path / "flax_model.msgpack").read_bytes())

    def test_metadata_is_kept(self, tmp_path: Path) -> None:
        """It has no place in the file, which the format says."""
        outputs = [output_of("x", np.ones(3))]
        write_all(self.sink(tmp_path / "written", outputs, {"author": "a"}), {"x": np.ones(3)})
        assert self.open(tmp_path / "written").metadata == {}
        assert not FORMAT.holds_metadata


def test_shards_of_a_model(tmp_path: Path) -> None:
    """As transformers' `save_pretrained` of Flax models writes them."""
    names = [f"flax_model-0000{number}-of-00002.msgpack" for number in (1, 2)]
    for name, arrays in zip(names, (A, B), strict=True):
        (tmp_path / name).write_bytes(encoded(arrays))
    index = {"metadata": {"total_size": 40}, "weight_map": dict(zip(A | B, names, strict=True))}
    (tmp_path / "flax_model.msgpack.index.json").write_text(json.dumps(index))
    for path in (tmp_path, tmp_path / "flax_model.msgpack.index.json"):
        assert detect_format(os.fspath(path)).name == "flax"
        assert_same(values(opened(path)), A | B)
        assert len(list(opened(path).files())) == 3
    (tmp_path / names[1]).write_bytes(encoded(B)[:-1])
    with pytest.raises(SourceError, match=names[1]):
        opened(tmp_path)


def test_a_model_of_hugging_face(tmp_path: Path) -> None:
    (tmp_path / "flax_model.msgpack").write_bytes(encoded(A))
    (tmp_path / "config.json").write_text("{}")
    assert FORMAT.recognizes(tmp_path)
    assert_same(values(opened(tmp_path)), A)
    (tmp_path / "other.msgpack").write_bytes(encoded(B))
    assert_same(values(opened(tmp_path)), A)
    assert_same(values(opened(tmp_path / "other.msgpack")), B)
    for path in (tmp_path, tmp_path / "other.msgpack"):
        with pytest.raises(UsageError, match="no steps"):
            opened(path, step=3)


# --- flax.training.checkpoints ----------------------------------------------------------------------------


def save_step(
    directory: Path, tree: Any, step: float, prefix: str = "checkpoint_", orbax: bool = False
) -> None:
    """By `flax.training.checkpoints`, as a file of its own or as a directory of Orbax."""
    with warnings.catch_warnings(), config.temp_flip_flag("use_orbax_checkpointing", orbax):
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="orbax")
        checkpoints.save_checkpoint(os.fspath(directory), tree, step, prefix, keep=100)


def save_steps(directory: Path, steps: Sequence[float], prefix: str = "checkpoint_") -> Path:
    """Each step holds its own number."""
    directory.mkdir(exist_ok=True)
    for step in steps:
        tree = {"params": {"w": np.full((2, 3), step, np.float32)}, "step": step}
        # Apart, because flax takes the `-` of a prefix for a sign, and steps for going backwards.
        save_step(directory / "apart", tree, step, prefix)
        (directory / "apart" / f"{prefix}{step}").rename(directory / f"{prefix}{step}")
        (directory / "apart").rmdir()
    return directory


@pytest.mark.parametrize("prefix", ["checkpoint_", "best_", "run2_v1.5_", "model-", "streaming_params_"])
def test_steps(prefix: str, tmp_path: Path) -> None:
    path = save_steps(tmp_path / "x", [1, 2, 10], prefix)
    (path / f"{prefix}tmp").write_bytes(b"unfinished")
    (path / "notes.txt").write_text("not a step")
    assert detect_format(os.fspath(path)).name == "flax"
    for step, wanted in ((None, 10), (2, 2)):
        source = opened(path, step)
        assert source.step == wanted
        weights = np.full((2, 3), wanted, np.float32)
        assert_same(values(source), {"params/w": weights, "step": np.asarray(wanted)})
        restored = checkpoints.restore_checkpoint(os.fspath(path), None, wanted, prefix)
        assert np.array_equal(restored["params"]["w"], weights)


def test_steps_that_are_fractions_negative_or_large(tmp_path: Path) -> None:
    path = save_steps(tmp_path / "x", [-3.0, 0.25, 4.0, -0.5])
    assert opened(path).step == 4
    assert opened(path, -3).step == -3
    with pytest.raises(UsageError, match=r"no step 0\s+It has `checkpoint_-3.0`, `checkpoint_-0.5`, `"):
        opened(path, 0)
    (path / "checkpoint_4.0").unlink()
    assert opened(path).step is None
    assert values(opened(path))["step"] == 0.25
    assert checkpoints.latest_checkpoint(os.fspath(path)).endswith("checkpoint_0.25")
    save_steps(path, [2**53, 2**53 + 1])
    (path / "loss_1e400").touch()  # infinite, and no number of a step
    assert (opened(path).step, opened(path, 2**53).step) == (2**53 + 1, 2**53)


def test_the_usual_prefix_goes_first(tmp_path: Path) -> None:
    path = save_steps(tmp_path / "x", [5])
    save_steps(path, [9], "best_")
    assert opened(path).step == 5
    (path / "checkpoint_5").unlink()
    save_steps(path, [7], "ema_")
    with pytest.raises(SourceError, match=r"several prefixes: best_, ema_"):
        opened(path)
    assert values(opened(path / "ema_7"))["step"] == 7


def test_a_step_that_orbax_wrote(tmp_path: Path) -> None:
    """Both libraries' steps in one directory: none is silently passed over."""
    path = save_steps(tmp_path / "x", [1, 2])
    save_step(path, {"w": np.ones(2)}, 10, orbax=True)
    with pytest.raises(SourceError, match="checkpoint_10 is a directory that Orbax wrote"):
        opened(path)
    assert opened(path, 2).step == 2
    for step in (1, 2):
        (path / f"checkpoint_{step}").unlink()
    source = open_source(os.fspath(path))  # what `flax.training.checkpoints` writes by default
    assert (source.format, source.step) == ("orbax", 10)


# --- arrays of several hosts ------------------------------------------------------------------------------


HOSTS = {
    "params/w": array((5, 6), "float32"),
    "params/b": array((4,), "bfloat16"),
    "scale": array((), "float32"),
    "a.b": array((2,), "int32"),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By flax, as if each array were spread over hosts: zarr beside the file."""
    directory, manager = tmp_path_factory.mktemp("hosts") / "x", GlobalAsyncCheckpointManager()
    tree = nested({name: jax.numpy.asarray(value) for name, value in HOSTS.items()}) | {"step": 3}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        patch.setattr(checkpoints, "_is_multiprocess_array", lambda value: isinstance(value, jax.Array))
        with config.temp_flip_flag("use_orbax_checkpointing", False):
            checkpoints.save_checkpoint_multiprocess(os.fspath(directory), tree, 5, gda_manager=manager)
        manager.wait_until_finished()
    return directory


def test_arrays_of_several_hosts(hosts: Path) -> None:
    for path in (hosts, hosts / "checkpoint_5"):
        assert detect_format(os.fspath(path)).name == "flax"
        source = opened(path)
        found = values(source)
        assert found.pop("step") == 3
        assert_same(found, HOSTS)
    leaf = source.leaves()["params/w"]
    assert all(os.path.isfile(chunk.file) for chunk in leaf.manifest.chunks.values())
    for region in conformance.random_regions((5, 6), 20):
        assert np.array_equal(source.read(leaf, region), HOSTS["params/w"][region.slices])


def test_every_file_of_several_hosts_is_needed(hosts: Path, tmp_path: Path) -> None:
    path = copy_of(hosts, tmp_path / "copy")
    files = files_of(path / "checkpoint_5_gda")
    assert len(files) == 2 * len(HOSTS)
    for file in files:
        data = file.read_bytes()
        os.truncate(file, len(data) // 2)
        with pytest.raises(SourceError):
            values(opened(path))
        file.unlink()
        with pytest.raises(SourceError):
            opened(path)
        file.symlink_to("/etc/passwd")
        with pytest.raises(SourceError, match="symbolic link"):
            opened(path)
        file.unlink()
        file.write_bytes(data)
    before = opened(path).fingerprint()
    os.utime(files[0], ns=(0, 0))
    assert opened(path).fingerprint() != before


def test_paths_out_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no Flax checkpoint"):
        opened(tmp_path)
    outside = ("../x", "/etc", "a/../../b", "", "a//b", ".", "nul\0")
    says = dict.fromkeys(outside, "its array should be in .*not a path below") | {"a": ".*checkpoint_1_gda"}
    for path, told in says.items():
        with pytest.raises(SourceError, match=f"`a`: {told}"):
            opened(in_file("checkpoint_1", encoded({"a": f"//GDAPlaceholder:{path}"}), tmp_path))


def stream(leaves: Mapping[Any, Any]) -> bytes:
    """As EasyLM's `StreamingCheckpointer.save_train_state_to_file` does."""
    packer = msgpack.Packer()
    return b"".join(packer.pack((key, serialization.to_bytes(value))) for key, value in leaves.items())


ONE = stream({("a", "b"): np.ones(3, np.float32)})


class TestStreams(conformance.Reading):
    """A record for each array."""

    format = "flax"
    dtypes = ("float32", "bfloat16", "bool")
    names = conformance.NAMES
    lies = (
        in_stream("an empty file", "is empty", b""),
        in_stream("bytes after the last record", "is not a key and a byte string", ONE + b"\0"),
        in_stream("a record twice", "two leaves have the key `a/b`", ONE + ONE),
        in_stream("a record of three", "not a key and a byte", ONE + msgpack.packb((["a"], b"\xc0", 1))),
        in_stream("a record without key", "not a key and a byte", ONE + msgpack.packb(([], b"\xc0"))),
        in_stream("a key that is a fraction", "not a key and a byte", ONE + msgpack.packb(([1.5], b"\xc0"))),
        in_stream("a document that is a string", "not a key and a byte", ONE + msgpack.packb((["a"], "x"))),
        in_stream("bytes in a record", "more follows", ONE + msgpack.packb((["a"], b"\xc0\xc0"))),
        in_stream("a document that is cut", "are left", ONE + msgpack.packb((["a"], b"\xda\xff\xff"))),
    )  # fmt: skip

    def save(self, arrays: Arrays, path: Path) -> Path:
        return in_file(path.name, stream({tuple(k.split("/")): v for k, v in arrays.items()}), path.parent)

    def sample(self) -> dict[str, np.ndarray]:
        """Of such a length that no cut falls between two records: what is left is then a whole stream."""
        return super().sample() | {"pad": array((7,), "uint8")}


def test_streams_of_other_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys as text, scalars, and an array in pieces, whose document is a map."""
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 40)
    big = array((7, 5), "float32")
    leaves = {"params/w": big, ("step",): np.int32(4), ("rate",): 0.5, ("l", 0): np.ones(2), ("none",): None}
    (tmp_path / "streaming_train_state_100").write_bytes(stream(leaves))
    assert detect_format(os.fspath(tmp_path)).name == "flax"
    source = opened(tmp_path)
    assert source.step == 100
    kinds = [leaf.kind.value for leaf in source.leaves().values()]
    assert kinds == ["array", "scalar", "scalar", "array", "empty"]
    scalars = {"step": np.asarray(4, "int32"), "rate": np.asarray(0.5)}
    assert_same(values(source), {"params/w": big, **scalars, "l/0": np.ones(2), "none": "<None>"})


# --- leaves of every kind ---------------------------------------------------------------------------------


def test_kinds_of_leaves(tmp_path: Path) -> None:
    numbers = {"step": 7, "big": 2**64 - 1, "negative": -(2**63), "rate": 1e-3, "done": True, "z": 1 - 2j}
    dtypes = ("int64", "uint64", "int64", "float64", "bool", "complex128")
    tree = {
        "layers": [{"w": np.ones((2,), np.float32)}],
        "pair": (np.int8(3), np.float16(1.5)),
        **numbers,
        "zero_axes": np.ones((), np.float32),
        "nothing": None,
        "text": "é\n",
        "empty": {},
        "no_list": [],
    }
    source = opened(in_file("x.msgpack", serialization.to_bytes(tree), tmp_path))
    leaves, found = source.leaves(), values(source)
    assert {text: f"{leaf.kind} {leaf.spec or found[text]}" for text, leaf in leaves.items()} == {
        "layers/0/w": "array float32[2]",
        "pair/0": "scalar int8[]",
        "pair/1": "scalar float16[]",
        **{name: f"scalar {dtype}[]" for name, dtype in zip(numbers, dtypes, strict=True)},
        "zero_axes": "array float32[]",
        "nothing": "empty <None>",
        "text": "string é\n",
        "empty": "empty <Dict>",
        "no_list": "empty <Dict>",
    }
    assert {name: found[name].item() for name in numbers} == numbers
    assert leaves["layers/0/w"].key == Key.of(["layers", "0", "w"])


def test_lists_of_messagepack(tmp_path: Path) -> None:
    """`msgpack_serialize` keeps lists; those are sequences."""
    data = serialization.msgpack_serialize({"l": [np.ones(2), [3]], "none": []})
    leaves = opened(in_file("x.msgpack", data, tmp_path)).leaves()
    assert leaves["l/0"].key == Key(("l", "0"), (False, True))
    assert leaves["l/1/0"].key == Key(("l", "1", "0"), (False, True, True))
    assert leaves["none"].empty == "List"


def copied(source: Source, directory: Path) -> Any:
    """A checkpoint through source and sink; what flax restores."""
    directory.mkdir()
    options, leaves = SinkOptions(file_name="y.msgpack"), source.leaves()
    assert encoder("flax", options).unsupported(list(leaves.values())) == []
    outputs = [Output(leaf, leaf.spec.shape if leaf.spec else ()) for leaf in leaves.values()]
    arrays = {k: source.read(leaf, Region.whole(leaf.spec.shape)) for k, leaf in leaves.items() if leaf.spec}
    write_all(open_sink("flax", directory, options, outputs), arrays)
    assert names(directory) == ["y.msgpack"]
    return restored((directory / "y.msgpack").read_bytes())


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_numpy_scalars_of_every_dtype(dtype: str, tmp_path: Path) -> None:
    """Python's own types come back as such: flax writes no others for them that it reads differently."""
    value = array((), dtype)
    natives = {"bool": bool, "int64": int, "float64": float, "complex128": complex}
    native = natives.get(dtype, value.dtype.type)
    data = serialization.to_bytes({"x": value[()], "y": native(value[()])})
    found = copied(opened(in_file("x.msgpack", data, tmp_path)), tmp_path / "y")
    assert type(found["x"]) is type(found["y"]) is native
    assert np.asarray(found["x"]).astype(value.dtype).tobytes() == value.tobytes()


@pytest.mark.parametrize(("most", "long"), [(40, []), (2**30, [*range(236, 260), *range(65_514, 65_540)])])
def test_the_file_is_byte_for_byte_flax_s(
    most: int, long: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of arrays, NumPy scalars, floats, truths, strings and empty nodes; in pieces or not."""
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", most)
    monkeypatch.setattr("ckpt_surgery.formats.flax.writing.PIECE_BYTES", most)
    tree = {
        "b": {"w": array((3, 5), "float32"), "x" * 300: array((2, 4), "bfloat16")},
        "no_elements": array((0, 2), "int8"),
        "a": {str(i): np.full((3,), i, np.float32) for i in range(20)},
        **{f"u{n}": array((n,), "uint8") for n in range(40)},
        # Byte strings and extensions have three forms, by length.
        **{f"u{n}": array((n,), "uint8") for n in long},
        "s": np.float32(3),
        "f": 2.5,
        "n": -(2**40),
        "c": 2j,
        "t": True,
        "text": "x" * 300,
        "none": None,
        "empty": {},
    }  # fmt: skip
    data = serialization.to_bytes(tree)
    copied(opened(in_file("x.msgpack", data, tmp_path)), tmp_path / "y")
    assert (tmp_path / "y" / "y.msgpack").read_bytes() == data


# --- writing ----------------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_refused_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.tree.MOST_TEXT_BYTES", 40)
    keys = [
        *(Key.of(["a", "b"]), Key(("a", "b"), (False, True)), Key.of(["a", "b", "c"]), Key.of(["a/b"])),
        *(Key.of(["x", "__msgpack_chunked_array__", "y"]), Key.of(["d"] * 101)),
    ]
    leaves = [
        *(Leaf(key, LeafKind.ARRAY, ArraySpec((2,), np.dtype("f4"))) for key in keys),
        Leaf(Key.of(["t"]), LeafKind.STRING, string="lone\ud800"),
        Leaf(Key.of(["long"]), LeafKind.STRING, string="x" * 11),
    ]
    assert encoder("flax", SinkOptions()).unsupported(leaves) == [
        "`t` is a string that is not valid Unicode, so it cannot be stored as UTF-8; drop it.",
        "`x/__msgpack_chunked_array__/y` has the component `__msgpack_chunked_array__`, "
        "by which Flax knows arrays in pieces; rename it.",
        f"`{'/'.join(['d'] * 101)}` is nested 101 deep, and 100 is the limit; rename it.",
        "`long` is a string of 11 characters, too long to be read back; drop it.",
        "2 leaves would have the name `a/b`; rename all but one.",
    ]


def test_too_many_leaves_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly where the source would refuse to read them."""
    arrays = {name: np.ones(3) for name in ("a/b/c", "a/b/d", "e")}
    leaves = [leaf_of(*item) for item in arrays.items()]
    path = in_file("x.msgpack", encoded(arrays), tmp_path)
    says = "3 leaves in 3 containers are too many to be read back: 5 is the limit; drop some."
    for most, told in ((6, []), (5, [says])):
        monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.tree.MOST_VALUES", most)
        assert encoder("flax", SinkOptions()).unsupported(leaves) == told
        with pytest.raises(SourceError, match="more than 5 values") if told else contextlib.nullcontext():
            assert len(opened(path).leaves()) == 3


def test_sequences_become_dicts(tmp_path: Path) -> None:
    """As in flax: what was a list comes back as one where the target has one."""
    value, key = array((3,), "float32"), Key(("l", "0"), (False, True))
    output = Output(Leaf(key, LeafKind.ARRAY, ArraySpec((3,), value.dtype)), (3,))
    empty = Output(Leaf(Key.parse("e"), LeafKind.EMPTY, empty="Tuple"), ())
    write_all(open_sink("flax", tmp_path, SinkOptions(), [output, empty]), {"l/0": value})
    data = (tmp_path / "flax_model.msgpack").read_bytes()
    assert restored(data)["e"] == {}
    back = serialization.from_bytes({"l": [np.zeros(3, np.float32)], "e": ()}, data)
    assert isinstance(back["l"], list)
    assert back["e"] == ()
    assert np.array_equal(back["l"][0], value)


def test_python_s_numbers_are_not_adopted() -> None:
    """They are big endian in the file."""
    spec = ArraySpec((), np.dtype(np.int64))
    manifest = Manifest(spec, (), raw_codec(0), {(): Chunk("", 0, 8, b"12345678")})
    made = encoder("flax", SinkOptions())
    assert not made.adopts(Leaf(Key.parse("a"), LeafKind.SCALAR, spec), manifest)
    assert made.adopts(Leaf(Key.parse("a"), LeafKind.ARRAY, spec), manifest)


def test_large_arrays_are_cut_as_flax_cuts_them(tmp_path: Path) -> None:
    """The real length of pieces, in a file that is nearly all hole; headers alone are read."""
    assert writing.PIECE_BYTES == serialization.MAX_CHUNK_SIZE
    spec = ArraySpec((100_003, 12_288), np.dtype(np.float16))
    output = Output(Leaf(Key.parse("rows"), LeafKind.ARRAY, spec), spec.shape)
    open_sink("flax", tmp_path, SinkOptions(), [output]).create()
    list(opened(tmp_path).leaves())
    with bounded(2**20):
        source = opened(tmp_path)
        leaf = source.leaves()["rows"]
    assert leaf.spec == spec
    edge = 2**30 // 2 // 12_288  # the row in which the second piece begins
    assert not source.read(leaf, Region((edge, 0), (edge + 1, 12_288))).any()


@pytest.mark.parametrize(
    ("name", "data", "known"),
    [
        ("blob", encoded(A), True),  # a Hugging Face blob has no suffix
        ("x.msgpack", b"", True),
        ("x.msgpack", b"\xc1" * 100, True),
        ("x.msgpack", encoded(A)[:20], True),
        ("checkpoint_5", b"", True),
        ("checkpoint_5", encoded(A)[:3], True),
        ("empty", b"\x80", True),
        ("streaming_params", ONE, True),
        ("x.msgpack", b"PK\x03\x04" + b"\0" * 100, False),  # others in disguise
        ("x.msgpack", b"\x80\x04\x95" + b"\0" * 100, False),
        ("x.msgpack", b"\x40\0\0\0\0\0\0\0{" + b" " * 100, False),
        ("checkpoint_5", b'{"a": 1}', False),
        ("checkpoint", encoded(A), False),  # T5X, or Orbax of old
        ("x.msgpack", msgpack.packb({"version": 3, "optimizer": {}}), False),  # T5X under any name
        ("x.msgpack", msgpack.packb({"optimizer": {}, "version": 3}), False),
        ("x.msgpack", msgpack.packb({"optimizer": {}}), True),
        ("x", b"\x84\xa3\0\0\0\0\0\0{" + b" " * 50_000, False),  # safetensors, its length like a map's head
        ("x", b"\x80\x02}q\0.", False),  # pickle
        ("x", b'\x89"\x88\0\x06\x08\x02\x1a\x02\x08\x01\0+\x17decoder/block', False),  # TensorFlow's index
        ("blob", msgpack.packb({"k" * 40: {"x" * 300: 1}}), True),
        ("blob", msgpack.packb({str(i): i for i in range(20)}), True),
        ("x", b"\x81\xa5abc\x01\x02\xc0", False),
        ("x", b"\x81\xa1a\xc1", False),
        ("x", b"\x93\xa1a\xa1b\xa1c", False),
        ("x", b"", False),
    ],
)
def test_detection_is_by_content(name: str, data: bytes, known: bool, tmp_path: Path) -> None:
    path = in_file(name, data, tmp_path)
    assert FORMAT.recognizes(path) == known
    assert FORMAT.recognizes(tmp_path) == (known and name not in ("blob", "empty", "streaming_params"))
    assert not FORMAT.recognizes(tmp_path / "missing")


def test_directories_of_other_things(tmp_path: Path) -> None:
    in_file("img_10", b"\x89PNG\r\n\x1a\n", tmp_path)
    # A chunk of a zarr array; TensorFlow's; what was never finished; T5X's.
    for name in (
        "0.0",
        "model.ckpt-5.data-00000-of-00001",
        "checkpoint_3.orbax-checkpoint-tmp-1",
        "checkpoint",
    ):
        file = in_file(name, encoded(A), tmp_path)
        assert not FORMAT.recognizes(tmp_path), name
        file.unlink()
