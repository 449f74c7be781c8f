"""TensorFlow's checkpoints in: conformance against TensorFlow, and what only they have."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.formats.opening import detect_format, open_source
from ckpt_surgery.formats.tensorflow import FORMAT
from tests.formats.tensorflow import bundles
from tests.formats.tensorflow.bundles import Piece, bundle, entry, header, nested, number, slices
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.conformance import Arrays, Lie, random_regions
from tests.support.directories import copy_of, files_of
from tests.support.reading import opened, values

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float4_e2m1fn", "int2", "int4", "uint2", "uint4"),
)


def parts_by_row(name: str, value: np.ndarray) -> list[Piece]:
    """In two equal parts, or as many as there are rows; whole where it cannot be divided."""
    if value.ndim == 0 or value.size == 0 or len(value) == 1:
        return [Piece(name, value)]
    step = len(value) // 2 if len(value) % 2 == 0 else 1
    cuts = [[*range(0, len(value), step), len(value)], *([0, n] for n in value.shape[1:])]
    return bundles.parts_of(name, value, cuts)


# --- lies -------------------------------------------------------------------------------------------------


def lie(
    reason: str, says: str, *pairs: tuple[bytes, bytes], data: bytes = b"ab", head: bytes | None = None
) -> Lie:
    return Lie(reason, lambda directory: bundle(directory, pairs, data, head), says)


def one(reason: str, says: str, value: bytes, data: bytes = b"ab") -> Lie:
    return lie(reason, says, (b"a", value), data=data)


def partitioned(reason: str, says: str, parts: Sequence[bytes], *stored: tuple[bytes, bytes]) -> Lie:
    """A variable `a` of two bytes with such slices, and such entries for its parts."""
    return lie(reason, says, *stored, (b"a", entry(size=0, more=b"".join(parts))))


def key(start: int, length: int) -> bytes:
    """Of a part of `a`, which has one axis."""
    return b"\0a\0\1\1\1" + bytes([0x80 + start, 0x7F if length < 0 else 0x80 + length])


def half(start: int, **changes: Any) -> tuple[bytes, bytes]:
    return key(start, 1), entry(**{"axes": (1,), "size": 1, "offset": start, **changes})


def state(text: str) -> Callable[[Path], Path]:
    def make(directory: Path) -> Path:
        (directory / "checkpoint").write_text(text)
        return bundle(directory, [(b"a", entry(checksum=bundles.crc(b"ab")))])

    return make


def table_alone(*pairs: tuple[bytes, bytes]) -> Callable[[Path], Path]:
    def make(directory: Path) -> Path:
        (directory / "x.index").write_bytes(bundles.table([(bundles.block(pairs), 0)]))
        return directory

    return make


HALVES = [slices((0, 1)), slices((1, 1))]

LIES = (
    Lie("no header", table_alone((b"a", entry())), "no header"),
    Lie("an empty table", table_alone(), "table is empty"),
    lie("a header that is no message", "field of 127 bytes", head=b"\x0a\x7f"),
    lie("a newer format", "version 2 of the format", head=header(needed=2)),
    lie("no data file", "0 data files", head=header(0)),
    lie("more data files than names for them", "1000000 data files", head=header(1_000_000)),
    lie("an unknown byte order", "byte order 2", head=header(1, 2)),
    lie("a big-endian host", "only little endian is read", head=header(1, 1)),
    lie("a name that is not UTF-8", "not UTF-8", (b"\xff", entry())),
    one("a field beyond its message", "1 are left", b"\x12\x02\x12"[:2] + b"x"),
    one("a field of an unknown kind", "unknown kind 3", b"\x0b"),
    one("a shape that is no message", "not a message", number(2, 1)),
    one("an axis of a negative length", "not known", entry((-1,))),
    one("too many axes", "40 axes", entry([1] * 40)),
    one("a product that overflows", "beyond all memory", entry([2**32, 2**32, 2])),
    one("a size that the shape does not have", "takes 3 bytes, not 2", entry((3,))),
    one("a negative size", "-2 bytes from byte 0", entry(size=-2)),
    one("an offset beyond the data file", "end at byte 1099511627778", entry(offset=2**40)),
    one("a data file too many", "data file 1 of 1", entry(shard=1)),
    one("an unknown type", "unknown DataType 99", entry(type=99)),
    one("a type that no array has", "it has the TensorFlow type qint8", entry(type=11)),
    one("a wrong checksum", "checksum", entry(checksum=1)),
    one("a truth that is neither 0 nor 1", "has the byte 98", entry(type=10, checksum=bundles.crc(b"ab"))),
    lie("one place for two variables", "share bytes", (b"a", entry()), (b"b", entry())),
    Lie("a state without a latest checkpoint", state('all_model_checkpoint_paths: "x"\n'), "does not name"),
    Lie("a state that is no text", state("model_checkpoint_path: \x00\x01"), "does not belong to a"),
    Lie("a state of a megabyte", state('model_checkpoint_path: "x"\n' * 50_000), "1048576 is the limit"),
    Lie("a state without names", state('model_checkpoint_path: ""'), "names the checkpoint b''"),
    Lie("a state that names what is gone", state('model_checkpoint_path: "y"'), "y.index does not exist"),
)

PART_LIES = (
    partitioned("a part without an entry", r"part at \[1\] is missing", HALVES, half(0)),
    partitioned("a part named twice", "named twice", [slices((0, 1))] * 2, half(0)),
    partitioned("a part that nobody names", "no variable has the part", HALVES, half(0), half(1), half(2)),
    partitioned("parts that leave a hole", r"no chunk has the element \[1\]", HALVES[:1], half(0)),
    partitioned("a part outside", r"ends at \[3\], outside", [slices((2, 1))], half(2)),
    partitioned("a part of a negative length", "length", [slices((0, -5))], half(0)),
    partitioned("a late part without a length", "begins at 1", [nested(7, nested(1, number(1, 1)))]),
    partitioned("a part of another shape", r"uint8\[2\] where", HALVES, half(0), half(1, axes=(2,), size=2)),
    partitioned("a part with too many axes", "has 2 axes, and it has 1", [slices((0, 1), (0, 1))]),
    partitioned("a part in parts", "where uint8", HALVES, half(0), half(1, more=slices((0, 1)))),
)


# --- conformance ------------------------------------------------------------------------------------------


class TestOneDataFile(conformance.Reading):
    """As a single host writes it."""

    format = "tensorflow"
    dtypes = DTYPES
    lies = LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        path.mkdir()
        bundles.save_pieces(path / "model.ckpt-7", [Piece(*item) for item in arrays.items()])
        return bundles.note_state(path, path / "model.ckpt-7")

    def test_missing_files(self, saved: Path, tmp_path: Path) -> None:
        """The index is enough to list, and a directory that holds one checkpoint needs no state."""
        path = copy_of(saved, tmp_path / "copy")
        (path / "checkpoint").unlink()
        assert_same(values(self.open(path)), self.sample())
        for file in files_of(path):
            if file.suffix != ".index":
                file.rename(tmp_path / "aside")
                specs = {name: leaf.spec for name, leaf in self.open(path).leaves().items()}
                assert specs == {n: ArraySpec(v.shape, v.dtype) for n, v in self.sample().items()}
                assert isinstance(self.outcome(path), SourceError)
                (tmp_path / "aside").rename(file)
        (path / "model.ckpt-7.index").unlink()
        assert isinstance(self.outcome(path), SourceError)


class TestPartsInDataFiles(TestOneDataFile):
    """As several hosts write it, most variables in parts."""

    dtypes = ("float32", "bool", "int4", "complex64")
    lies = PART_LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        path.mkdir()
        pieces = [piece for item in arrays.items() for piece in parts_by_row(*item)]
        bundles.save_shards(path / "model.ckpt-7", [pieces[i::3] for i in range(min(3, len(pieces)))])
        for part in path.glob("part*"):
            part.unlink()
        return bundles.note_state(path, path / "model.ckpt-7")


# --- partitioned variables --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuts", "chunks"),
    [
        ([[0, 4, 8], [0, 6]], (4, 6)),
        ([[0, 2, 4, 6, 8], [0, 2, 4, 6]], (2, 2)),
        ([[0, 8], [0, 6]], (8, 6)),
        ([[0, 3, 8], [0, 6]], None),  # uneven parts are no grid of chunks
        ([[0, 1, 8], [0, 5, 6]], None),
    ],
)
def test_a_partitioned_variable(
    cuts: list[list[int]], chunks: tuple[int, int] | None, tmp_path: Path
) -> None:
    value, other = array((8, 6), "bfloat16"), array((3,), "int32")
    pieces = [*bundles.parts_of("a/b", value, cuts), Piece("other", other)]
    bundles.save_shards(tmp_path / "x", [pieces[::2], pieces[1::2]])
    source = opened(tmp_path / "x")
    assert_same(values(source), {"a/b": value, "other": other})
    leaf = source.leaves()["a/b"]
    assert (leaf.manifest and leaf.manifest.chunk_shape) == chunks
    for region in random_regions((8, 6), 60):
        assert same(source.read(leaf, region), value[region.slices]), region


def test_bytes_are_held_to_their_checksum_when_they_are_read_whole(tmp_path: Path) -> None:
    value = array((4, 6), "float32")
    pieces = [Piece("whole", value), *bundles.parts_of("parts", value, [[0, 2, 4], [0, 6]])]
    prefix = bundles.save_pieces(tmp_path / "x", pieces)
    data = tmp_path / "x.data-00000-of-00001"
    stored = bytearray(data.read_bytes())
    stored[60] ^= 1
    stored[150] ^= 1  # in the second part
    data.write_bytes(stored)
    source = opened(prefix)
    leaves = source.leaves()
    assert same(source.read(leaves["parts"], Region((0, 0), (2, 6))), value[:2])
    assert same(source.read(leaves["parts"], Region((0, 0), (3, 6)))[:2], value[:2])  # a row cannot be told
    for name, place in (("parts", "48 bytes from byte 144"), ("whole", "96 bytes from byte 0")):
        with pytest.raises(SourceError, match=f"`{name}`: its {place} of .* have the checksum"):
            source.read(leaves[name], Region.whole((4, 6)))


# --- what is no array of numbers --------------------------------------------------------------------------


VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_saved_model_is_read_by_its_variables(tmp_path: Path) -> None:
    """Those of an object, with a table of words, a text, and a text that is no Unicode."""
    tf = bundles.tensorflow()
    module = tf.Module()
    module.w = tf.Variable(np.arange(6.0).reshape(2, 3))
    module.words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    module.words.insert(["one", "three"], [1, 3])
    texts = {"text": "ein Täxt", "bytes": b"\xff\xfe", "empty": "", "long": "x" * 2**21}
    for name, value in texts.items():
        setattr(module, name, tf.Variable(value))
    saved = tmp_path / "saved"
    tf.saved_model.save(module, os.fspath(saved))
    for path in (saved, saved / "variables", saved / "variables" / "variables"):
        assert detect_format(os.fspath(path)).name == "tensorflow"
        source = opened(path)
        leaves = source.leaves()
        assert {name: str(leaf.spec) for name, leaf in leaves.items()} == {
            f"bytes{VALUE}": "object[]",
            f"empty{VALUE}": "None",
            f"long{VALUE}": "object[]",
            f"text{VALUE}": "None",
            f"w{VALUE}": "float64[2,3]",
            "words/.ATTRIBUTES/table-keys": "object[2]",
            "words/.ATTRIBUTES/table-values": "int64[2]",
        }
    w = source.read(leaves[f"w{VALUE}"], Region((0, 0), (2, 3)))
    assert same(w, np.arange(6.0).reshape(2, 3))
    assert leaves[f"text{VALUE}"].kind is LeafKind.STRING
    assert [leaves[f"{name}{VALUE}"].string for name in ("text", "empty")] == ["ein Täxt", ""]
    for name, leaf in leaves.items():  # strings that no leaf holds
        if leaf.spec is not None and leaf.spec.dtype == object:
            with pytest.raises(SourceError, match=f"`{name}`: it has the TensorFlow type string"):
                source.read(leaf, Region.whole(leaf.spec.shape))


def test_a_damaged_text_is_refused(tmp_path: Path) -> None:
    prefix = bundles.save_pieces(tmp_path / "x", [Piece("a", np.array(b"text", object))])
    data = tmp_path / "x.data-00000-of-00001"
    whole = data.read_bytes()
    assert opened(prefix).leaves()["a"].string == "text"
    for at in range(len(whole)):
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SourceError, match=r"`a`: .*a text"):
            opened(prefix).leaves()


def test_an_iterator_is_listed(tmp_path: Path) -> None:
    """A variant, as TensorFlow calls it."""
    tf = bundles.tensorflow()
    saved = tf.train.Checkpoint(it=iter(tf.data.Dataset.range(10)), v=tf.Variable([1.0, 2.0]))
    source = opened(Path(saved.write(os.fspath(tmp_path / "x"))))
    leaf = source.leaves()["it/.ATTRIBUTES/ITERATOR_STATE"]
    assert leaf.spec.dtype == object
    with pytest.raises(SourceError, match="it has the TensorFlow type variant"):
        source.read(leaf, Region.whole(leaf.spec.shape))
    assert list(source.leaves()) == [leaf.key.text, f"v{VALUE}"]


# --- places -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps, of which the state names the last two."""
    path = tmp_path_factory.mktemp("run")
    saved = [bundles.save_pieces(path / f"model.ckpt-{n}", [Piece("step", np.int64(n))]) for n in (5, 10, 15)]
    return bundles.note_state(path, saved[2], saved[1:2])


def step_of(path: Path, **options: Any) -> tuple[int | None, int]:
    source = open_source(os.fspath(path), **options)
    return source.step, int(source.read(source.leaves()["step"], Region((), ())))


def test_a_directory_has_steps(run: Path) -> None:
    assert step_of(run) == (15, 15)
    assert step_of(run, step=10) == (10, 10)
    assert step_of(run, step=5) == (5, 5)  # not in the state any more, but there
    with pytest.raises(UsageError, match=r"no step 7\n  It has `model.ckpt-5`, `model.ckpt-10`, `mod"):
        step_of(run, step=7)


@pytest.mark.parametrize("name", ["model.ckpt-5", "model.ckpt-5.index", "model.ckpt-5.data-00000-of-00001"])
def test_a_prefix_or_a_file_is_one_checkpoint(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_of(run / name) == (None, 5)
    assert FORMAT.recognizes(run / name)
    monkeypatch.chdir(run)
    assert step_of(Path(name)) == (None, 5)
    with pytest.raises(UsageError, match="has no steps"):
        step_of(run / name, step=5)
    with pytest.raises(UsageError, match="have no items"):
        step_of(run / name, item="default")


def test_a_bundle_knows_its_files_that_are_missing(run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "model.ckpt-5.index", tmp_path / "x.index")
    names = {os.path.basename(file) for file in opened(tmp_path / "x").files()}
    assert names == {"x.index", "x.data-00000-of-00001", "x.meta"}


def test_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        opened(tmp_path / "model.ckpt-1")
    with pytest.raises(SourceError, match="holds no TensorFlow checkpoint"):
        opened(tmp_path, "tensorflow")


@pytest.mark.parametrize(
    "told",
    [
        "{here}/model.ckpt-5",
        "/elsewhere/run/model.ckpt-5",  # where it was written, before it was moved
        "gs://bucket/run/model.ckpt-5",
        "../run/model.ckpt-5",
        "./model.ckpt-5",
        r"model.\143kpt-5",
        "below/model.ckpt-5",
    ],
)
def test_what_a_state_names_is_looked_for_beside_it(told: str, run: Path, tmp_path: Path) -> None:
    path = copy_of(run, tmp_path / "copy")
    copy_of(run, path / "below")
    (path / "checkpoint").write_text(f'model_checkpoint_path: "{told.format(here=path)}"\n')
    assert step_of(path) == (5, 5)


def test_a_state_as_a_newer_tensorflow_writes_it(tmp_path: Path) -> None:
    tf = bundles.tensorflow()
    saved = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]))
    manager = tf.train.CheckpointManager(saved, os.fspath(tmp_path / 'é "q" \\'), max_to_keep=2)
    for _ in range(3):
        manager.save()
    state = Path(manager.directory, "checkpoint").read_text()
    assert "last_preserved_timestamp" in state
    source = opened(Path(manager.directory))
    assert source.step == 3
    assert same(source.read(source.leaves()[f"v{VALUE}"], Region((0,), (2,))), np.array([1, 2], np.float32))
    assert list(source.leaves()) == [f"save_counter{VALUE}", f"v{VALUE}"]


def test_a_directory_of_several_checkpoints_without_a_state(run: Path, tmp_path: Path) -> None:
    path = copy_of(run, tmp_path / "copy")
    (path / "checkpoint").unlink()
    with pytest.raises(SourceError, match="holds 3 TensorFlow checkpoints"):
        opened(path)
    assert step_of(path, step=10) == (10, 10)
    (path / "other-10.index").write_bytes((path / "model.ckpt-10.index").read_bytes())
    with pytest.raises(SourceError, match=r"step 10 more than once: `model\.ckpt-10`, `other-10`"):
        step_of(path, step=10)


@pytest.mark.parametrize("name", ["old.ckpt", "old.ckpt-00000-of-00001"])
def test_checkpoints_of_version_1_are_refused_by_that_name(name: str, tmp_path: Path) -> None:
    tf = bundles.tensorflow()
    tf.raw_ops.Save(filename=os.fspath(tmp_path / name), tensor_names=["a"], data=[tf.zeros([3])])
    (tmp_path / "x.index").write_bytes((tmp_path / name).read_bytes())
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    for path in (tmp_path / name, tmp_path, tmp_path / "x.index"):
        assert FORMAT.recognizes(path)
        with pytest.raises(SourceError, match=r"checkpoint of version 1.*\n.*write_version"):
            opened(path)


@pytest.mark.parametrize(
    ("files", "known"),
    [
        ({"checkpoint": b"\x82\xa7version\x03\xa9optimizer"}, False),  # T5X
        ({"checkpoint_5": b"\x81", "checkpoint": b"\x80"}, False),  # flax.training.checkpoints
        ({"model.safetensors.index.json": b"{}", "pytorch_model.bin.index.json": b"{}"}, False),
        ({"faiss.index": b"IxFI" * 100}, False),
        ({"flax_model.msgpack": b"\x81", "tf_model.h5": b"\x89HDF"}, False),
        ({"checkpoint": b'model_checkpoint_path: "m"\n'}, True),
        ({"checkpoint": b"", "m.index": b"", "m.data-00000-of-00001": b""}, True),  # damaged
        ({"m.index": b"x" * 100}, False),
        ({"m.index": bundles.footer(b"\0\0")}, True),
        ({"saved_model.pb": b""}, True),
        ({}, False),
    ],
)
def test_detection_in_directories(files: dict[str, bytes], known: bool, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert FORMAT.recognizes(tmp_path) == known


def test_detection_never_fails(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.index")
    (tmp_path / "y.index").symlink_to("nowhere")
    os.mkfifo(tmp_path / "checkpoint")
    for path in (tmp_path, tmp_path / "x.index", tmp_path / "y.index", tmp_path / "x", tmp_path / "\0"):
        assert not FORMAT.recognizes(path)


def test_listing_and_planning_need_the_index_only(tmp_path: Path) -> None:
    pieces = [Piece("global_step", np.int64(3)), Piece("w", array((4, 6), "float32"))]
    prefix = bundles.save_shards(tmp_path / "model.ckpt-3", [pieces[:1], pieces[1:]])
    (tmp_path / "model.ckpt-3.data-00001-of-00002").unlink()
    assert [str(leaf.spec) for leaf in ckpt_surgery.inspect(prefix).leaves] == ["int64[]", "float32[4,6]"]
    assert len(ckpt_surgery.plan(None, prefix, dst=tmp_path / "out").steps) == 2
    with pytest.raises(SourceError, match=r"`w`: its data file .*data-00001-of-00002 is missing"):
        ckpt_surgery.convert(prefix, tmp_path / "out")
