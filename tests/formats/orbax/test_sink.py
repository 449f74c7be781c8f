"""What the Orbax sink writes, restored by stock Orbax in all its ways, and what it refuses."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.opening import encoder, open_sink, open_source
from ckpt_surgery.formats.registry import SinkOptions
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.conformance import file_size_limit
from tests.support.effort import examples
from tests.support.heavy import jax, ocp
from tests.support.reading import read, values
from tests.support.strategies import chunk_shapes, shapes
from tests.support.writing import Processes, Workers, leaf_of, write_all, write_chunks

Checkpoint = Callable[[str], Path]


def by_standard(path: Path, target: Any = None) -> Any:
    return ocp.StandardCheckpointer().restore(path, target)


def by_pytree(path: Path, target: Any = None) -> Any:
    args = target and ocp.checkpoint_utils.construct_restore_args(target)
    return ocp.PyTreeCheckpointer().restore(path, item=target, restore_args=args)


def by_v1(path: Path, target: Any = None) -> Any:
    return ocp.v1.load_pytree(path, target)


READERS = [by_standard, by_pytree, by_v1]


def restored(reader: Callable[..., Any], *args: Any) -> dict[str, Any]:
    with checkpoints.quiet():
        return checkpoints.restored_leaves(reader(*args))


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def write(path: Path, arrays: dict[str, np.ndarray], options: SinkOptions | None = None) -> Path:
    """Arrays by key text, each in one chunk."""
    path.mkdir()
    outputs = [Output(leaf_of(text, array), array.shape) for text, array in arrays.items()]
    write_all(open_sink("orbax", path, options or SinkOptions(), outputs), arrays)
    return path


class TestWorkers(Processes):
    """Several workers, whose chunks come together in one item."""

    format = "orbax"

    def load(self, path: Path) -> dict[str, np.ndarray]:
        return restored(by_pytree, path)


class TestWorkersOfZarr2(Workers):
    format = "orbax"
    more_options: ClassVar = {"zarr": 2, "item": "state", "step": 3}

    def load(self, path: Path) -> dict[str, np.ndarray]:
        return restored(by_pytree, path / "3" / "state")


@pytest.mark.parametrize("layout", ["ocdbt-zarr2", "v1"])
@pytest.mark.parametrize("zarr", [2, 3])
def test_stock_orbax_restores_what_we_wrote(
    layout: str, zarr: int, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    source = open_source(str(checkpoint(layout)))
    path = checkpoints.rewrite(source, tmp_path / "c", SinkOptions(source.metadata, zarr=zarr))
    for reader in READERS:
        value = restored(reader, path)
        assert_same(value, checkpoints.expected(strings=True))
    with checkpoints.quiet():
        tree = by_standard(path)
        assert ocp.PyTreeCheckpointer().metadata(path).custom_metadata == checkpoints.CUSTOM
    assert (tree["count"], tree["rate"], tree["flag"]) == (3, 1.5, True)
    assert [type(tree[name]) for name in ("count", "rate", "flag")] == [int, float, bool]
    assert tree["key"].dtype == jax.random.key(0).dtype
    places = jax.sharding.PartitionSpec("x", "y")
    assert tree["params"]["w"].sharding == jax.sharding.NamedSharding(checkpoints.mesh(), places)
    assert isinstance(tree["big"], np.ndarray)
    assert isinstance(tree["layers"], list)


@pytest.mark.parametrize("layout", checkpoints.LAYOUTS)
def test_nothing_is_lost_between_source_and_sink(layout: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    one = open_source(str(checkpoint(layout)))
    other = open_source(str(checkpoints.rewrite(one, tmp_path / "c")))
    assert_same(values(other), values(one))
    assert other.metadata == one.metadata
    without = {text: replace(leaf, manifest=None) for text, leaf in one.leaves().items()}
    assert {text: replace(leaf, manifest=None) for text, leaf in other.leaves().items()} == without


@pytest.mark.parametrize("reader", READERS)
def test_restores_onto_four_devices(
    reader: Callable[..., Any], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = checkpoints.rewrite(open_source(str(checkpoint("standard"))), tmp_path / "c")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("b", "a"))
    placed = ("params/w", "replicated", "big")  # the others do not divide by the mesh, or are no matrices

    def abstract(path: Any, value: Any) -> Any:
        if jax.tree_util.keystr(path, simple=True, separator="/") in placed:
            return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
        return value

    with checkpoints.quiet():
        tree = reader(path, jax.tree_util.tree_map_with_path(abstract, checkpoints.tree()))
    assert {tree["params"]["w"].sharding, tree["replicated"].sharding, tree["big"].sharding} == {sharding}
    assert_same(checkpoints.restored_leaves(tree), checkpoints.expected())


def test_a_manager_finds_step_item_and_metadata(checkpoint: Checkpoint, tmp_path: Path) -> None:
    source = open_source(str(checkpoint("steps")))
    path = checkpoints.rewrite(source, tmp_path / "c", SinkOptions(source.metadata, step=12))
    assert os.listdir(path) == ["12"]
    with checkpoints.quiet(), ocp.CheckpointManager(path) as manager:
        assert manager.all_steps() == [12]
        assert manager.metadata(12).custom_metadata == checkpoints.CUSTOM
        for value in (manager.restore(12), manager.restore(12, args=ocp.args.StandardRestore())):
            assert_same(checkpoints.restored_leaves(value), checkpoints.expected())
    again = open_source(str(path))
    assert (again.step, again.item, again.metadata) == (12, "default", checkpoints.CUSTOM)


@pytest.mark.parametrize("zarr", [2, 3])
def test_every_dtype_is_restored(zarr: int, tmp_path: Path) -> None:
    arrays = {name: numbers((2, 3), checkpoints.dtype(name)) for name in checkpoints.DTYPES}
    path = write(tmp_path / "c", arrays, SinkOptions(zarr=zarr))
    assert_same(read(path), arrays)
    assert_same(restored(by_pytree, path), arrays)


def test_hostile_names_are_stored_safely(tmp_path: Path) -> None:
    hostile = ("a\x00b", "a\\b", "\x1b[31m\n", "x" * 4096, "é", "e\u0301", "A", "a", "a b", "\u202e", ".")
    arrays = {name: np.array([float(i)]) for i, name in enumerate(hostile)}
    path = write(tmp_path / "c", arrays)
    assert_same(read(path), arrays)
    assert_same(restored(by_pytree, path), arrays)
    names = {name for _, folders, files in os.walk(path) for name in folders + files}
    assert all(name.isascii() and len(name) <= 32 for name in names)  # keys are never file names


def test_a_prng_key_without_a_sharding(tmp_path: Path) -> None:
    spec = ArraySpec((2,), np.dtype("uint32"))
    key = Leaf(Key.parse("key"), LeafKind.PRNG_KEY, spec, prng_impl="threefry2x32")
    sink = open_sink("orbax", tmp_path, SinkOptions(), [Output(key, (2,))])
    write_all(sink, {"key": np.array([0, 7], np.uint32)})
    with checkpoints.quiet():
        found = by_standard(tmp_path)["key"]
    assert jax.random.key_data(found).tolist() == [0, 7]
    assert found.dtype == jax.random.key(7).dtype


# Writing.


@examples(25)
@given(data=st.data())
def test_any_chunk_grid(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    shape = data.draw(shapes(7, 1, max_ndim=3))
    chunks = data.draw(chunk_shapes(shape))
    array = np.asarray(numbers(shape, data.draw(st.sampled_from(["int16", "float64"]))))
    path = tmp_path_factory.mktemp("grid")
    output = Output(leaf_of("x", array), chunks)
    sink = open_sink("orbax", path, SinkOptions(zarr=data.draw(st.sampled_from([2, 3]))), [output])
    # Chunk by chunk in no order, or all in one region.
    data.draw(st.sampled_from([write_all, write_chunks]))(sink, {"x": array})
    source = open_source(str(path))
    manifest = source.leaves()["x"].manifest
    assert manifest.chunk_shape == chunks
    assert_same(values(source), {"x": array})


def test_nothing_is_valid_before_finish(tmp_path: Path) -> None:
    sink = open_sink("orbax", tmp_path, SinkOptions(), [Output(leaf_of("x", np.arange(4.0)), (4,))])
    sink.create()
    writer = sink.attach("0")
    writer.write(sink.outputs[0], Region((0,), (4,)), np.arange(4.0))
    writer.flush()
    with pytest.raises(SourceError):
        open_source(str(tmp_path))
    sink.finish(["0"])
    assert open_source(str(tmp_path)).leaves()


def test_a_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    array = checkpoints.random((2048, 1100))
    says = f"^{tmp_path}/c/ocdbt.*: File too large\n"
    with pytest.raises(StorageError, match=says), file_size_limit(1 << 20):
        write(tmp_path / "c", {"x": array})


def test_flipped_bits_are_caught_by_us_and_by_orbax(tmp_path: Path) -> None:
    array = checkpoints.random((64, 64))
    path = write(tmp_path / "c", {"x": array})
    manifest = open_source(str(path)).leaves()["x"].manifest
    chunk = manifest.chunks[0, 0]
    data = bytearray((path / chunk.file).read_bytes())
    for place in np.random.default_rng(0).integers(0, 8 * chunk.length, 60):
        damaged = data.copy()
        damaged[chunk.offset + place // 8] ^= 1 << (place % 8)
        (path / chunk.file).write_bytes(damaged)
        with pytest.raises(SourceError, match=r"`x`: its chunk .* cannot be decoded"):
            read(path)
    with checkpoints.quiet(), pytest.raises(ValueError, match="Digest mismatch"):
        by_pytree(path)


# Refusals.


def one(text: str | Key, shape: tuple[int, ...] = (1,), dtype: str = "float32") -> Leaf:
    key = text if isinstance(text, Key) else Key.parse(text)
    return Leaf(key, LeafKind.ARRAY, ArraySpec(shape, checkpoints.dtype(dtype)))


def string(text: str) -> Leaf:
    return Leaf(Key.parse(text), LeafKind.STRING, string="s")


def in_list(*names: str, kinds: str) -> Leaf:
    """`kinds`: `l` or `d` for each component."""
    return one(Key(names, tuple(kind == "l" for kind in kinds)))


@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        ([one("a", (0, 3))], ["`a`", "[0, 3]", "without elements"]),
        ([replace(one("a", (), "complex64"), kind=LeafKind.SCALAR)], ["`a`", "complex scalar"]),
        ([one("a", dtype="uint4")], ["`a`", "uint4", "cast"]),
        ([one("a", dtype="float8_e4m3")], ["`a`", "float8_e4m3"]),
        ([one("a.b"), one("a/b")], ["`a.b` and `a/b`", "the stored array `a.b`"]),
        ([one(Key.of(["a/"])), one("a")], [r"`a\/` and `a`"]),  # TensorStore adds the slash
        ([one("a//b")], ["`a//b`", "empty component"]),
        ([one(Key.of(["../x"]))], [r"`..\/x`", "leaves the checkpoint"]),
        ([one(Key.of(["a", "b/../c"]))], ["leaves the checkpoint"]),
        ([one(Key.of(["/abs"]))], ["leaves the checkpoint"]),
        ([one(Key.of([".", "/x"]))], ["leaves the checkpoint"]),  # as `../x`
        ([one("a\ud800")], ["Unicode"]),
        ([in_list("a", "0", kinds="dl"), in_list("a", "2", kinds="dl")], ["`a`", "index 1"]),
        ([in_list("a", "01", kinds="dl")], ["`01`", "not a decimal"]),
        ([in_list("a", "0", kinds="dl"), in_list("a", "x", kinds="dd")], ["`a`", "a list and a dict"]),
        ([string("a~b")], ["`a~b`", "`~`"]),
        ([string("a"), Leaf(Key.of(["a/b"]), LeafKind.STRING)], ["overwrite"]),
        ([Leaf(Key.parse("e"), LeafKind.EMPTY, empty="Set")], ["`e`", "Set"]),
        ([one("b/0"), one("b/2"), one("c", (), "complex64"), string("s.t")], []),  # `b` is a dict
        ([one(Key((), ()))], []),  # a tree that is one array
    ],
)
def test_refusals(leaves: list[Leaf], words: list[str]) -> None:
    """One sentence for what is wrong, and none for what is not."""
    (sentence,) = encoder("orbax", SinkOptions()).unsupported(leaves) or [""]
    assert all(word in sentence for word in words), sentence
    assert bool(sentence) == bool(words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SinkOptions(zarr=4), "version of zarr: 4"),
        (SinkOptions(step=-1), "negative"),
        (SinkOptions(step=1, item="../x"), "`../x`"),
        (SinkOptions({"x": object()}), "cannot be stored as JSON"),
    ],
)
def test_options_that_make_no_checkpoint(options: SinkOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encoder("orbax", options)


@pytest.mark.parametrize(
    ("name", "options"),
    [("a\\b", SinkOptions()), ("c", SinkOptions(item="a\\b")), ("a\\b/c", SinkOptions(step=1))],
)
def test_places_that_tensorstore_takes_for_others(name: str, options: SinkOptions, tmp_path: Path) -> None:
    """`a\\b` is one directory, and TensorStore would write to `a/b`."""
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UsageError, match=r"a\\+b.* without a backslash"):
        open_sink("orbax", tmp_path / name, options, [])
    assert [path.name for path in (tmp_path / name).iterdir()] == []
    assert not (tmp_path / "a").exists()
