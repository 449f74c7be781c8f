"""Open checkpoints: the mapping, its values, what reading them reads, and files that change meanwhile."""

import asyncio
import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections import UserDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy
import zarr

import ckpt_surgery
from ckpt_surgery import Checkpoint, LazyArray, Statistics, Unread
from ckpt_surgery.core.errors import KeyNotFound, SourceError, UsageError
from tests.support import checkpoints
from tests.support.json_files import edit_json
from tests.support.trees import nested

FLAT: dict[str, np.ndarray] = {
    "params/layer0/bias": np.ones(3, np.float32),
    "params/layer0/kernel": np.arange(12, dtype=np.float32).reshape(4, 3),
    "params/layer1/kernel": np.full((4, 3), 2, ml_dtypes.bfloat16),
    "step": np.array(7, np.int32),
}
TREE = nested(FLAT)
WIDE = {key: array.astype(np.float32) if "layer1" in key else array for key, array in FLAT.items()}


def save_zarr(path: Path) -> None:
    group = zarr.open_group(path, mode="w")
    for key, array in WIDE.items():
        group.create_array(key, data=np.asarray(array))


FORMATS: dict[str, tuple[Callable[[Path], Any], Mapping[str, np.ndarray]]] = {
    "orbax": (lambda path: checkpoints.save_pytree(path, TREE), FLAT),
    "orbax without ocdbt": (lambda path: checkpoints.save_pytree(path, TREE, ocdbt=False), FLAT),
    "a.safetensors": (lambda path: safetensors.numpy.save_file(FLAT, path), FLAT),
    "a.msgpack": (lambda path: path.write_bytes(flax.serialization.msgpack_serialize(TREE)), FLAT),
    "a.npz": (lambda path: np.savez_compressed(path, **WIDE), WIDE),
    "a.zarr": (save_zarr, WIDE),
}
"""What saves the arrays with a format's own library, and the arrays, by the name of the checkpoint."""


@pytest.fixture(params=FORMATS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Mapping[str, Any]]:
    """A checkpoint that a format's own library wrote, and its values by key."""
    path, (save, arrays) = tmp_path / request.param, FORMATS[request.param]
    save(path)
    return path, arrays


@pytest.fixture
def orbax(tmp_path: Path) -> Path:
    checkpoints.save_pytree(tmp_path / "orbax", TREE)
    return tmp_path / "orbax"


# --- the mapping ------------------------------------------------------------------------------------------


def test_a_checkpoint_is_a_mapping_of_lazy_arrays(saved: tuple[Path, Mapping[str, Any]]) -> None:
    path, expected = saved
    opened = ckpt_surgery.open(path)
    assert {*opened} == {*expected}
    assert [*opened] == [leaf.key.text for leaf in ckpt_surgery.inspect(path).leaves]
    assert len(opened) == 4
    for key, lazy in opened.items():
        assert isinstance(lazy, LazyArray)
        assert (lazy.key, lazy.shape, lazy.dtype) == (key, expected[key].shape, expected[key].dtype)
        np.testing.assert_array_equal(lazy.get(), expected[key], strict=True)
    kernel = opened["params/layer0/kernel"]
    np.testing.assert_array_equal(kernel[1:3, ::-1], expected["params/layer0/kernel"][1:3, ::-1], strict=True)
    np.testing.assert_array_equal(kernel[[3, 0]], expected["params/layer0/kernel"][[3, 0]], strict=True)
    np.testing.assert_array_equal(kernel.astype("bfloat16").get(), kernel.get().astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(asyncio.run(kernel.get_async()), expected["params/layer0/kernel"])
    assert kernel is opened["params/layer0/kernel"]
    assert int(opened["step"]) == 7


def test_the_key_of_a_subtree_gives_a_view(saved: tuple[Path, Mapping[str, Any]]) -> None:
    path, _ = saved
    opened = ckpt_surgery.open(path)
    view = opened["params/layer0"]
    assert isinstance(view, Checkpoint)
    assert {*view} == {"bias", "kernel"}
    assert (view.path, view.format, view.nbytes, view.parameters) == (opened.path, opened.format, 60, 15)
    lazy = opened["params"]["layer0"]["kernel"]
    assert lazy is view["kernel"] is opened["params/layer0/kernel"]
    assert lazy.key == "params/layer0/kernel"
    for key in ("params", "params/layer0", "params/layer0/bias", "step"):
        assert key in opened
    for key in ("param", "params/", "layer0", "kernel", 3, None):
        assert key not in opened
        assert opened.get(key) is None  # type: ignore[call-overload]


def test_a_missing_key_is_named_with_the_nearest(orbax: Path) -> None:
    opened = ckpt_surgery.open(orbax)
    with pytest.raises(KeyNotFound, match="`params/layer0/kernal`; did you mean `params/layer0/kernel`"):
        opened["params/layer0/kernal"]
    with pytest.raises(KeyError, match="`layr0` in `params`; did you mean `layer0`"):
        opened["params"]["layr0"]
    with pytest.raises(UsageError):
        opened[0]  # type: ignore[index]


def test_what_a_checkpoint_says_of_itself(orbax: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with checkpoints.quiet(), ocp.CheckpointManager(run, item_names=("state", "note")) as manager:
        for step in (2, 5):
            state, note = ocp.args.StandardSave(TREE), ocp.args.JsonSave({"a": 1})
            manager.save(step, args=ocp.args.Composite(state=state, note=note))
        manager.wait_until_finished()
    shutil.copytree(run / "5", run / "9")
    (run / "9" / "commit_success.txt").unlink(missing_ok=True)
    edit_json(run / "9" / "_CHECKPOINT_METADATA", lambda about: about.update(commit_timestamp_nsecs=None))
    opened = ckpt_surgery.open(run)
    assert (opened.path, opened.format, opened.step, opened.item) == (str(run), "orbax", 5, "state")
    assert (opened.steps, opened.unfinished, opened.item_names) == ((2, 5), (9,), ("note", "state"))
    assert (opened.nbytes, opened.parameters) == (48 + 12 + 24 + 4, 12 + 3 + 12)
    assert dict(opened.metadata) == dict(ckpt_surgery.inspect(run).metadata)
    assert ckpt_surgery.open(run, step=2, item="state").step == 2
    with pytest.raises(UsageError):
        ckpt_surgery.open(run, step=3)
    assert ckpt_surgery.open(orbax).steps == ()


def test_a_checkpoint_is_equal_to_itself_alone_and_its_attributes_stay() -> None:
    opened = ckpt_surgery.open({"step": 3})
    assert opened == opened
    assert opened != UserDict({"step": 3})
    assert len({opened, ckpt_surgery.open({"step": 3})}) == 2
    for name in ("path", "format", "step", "item", "metadata"):
        with pytest.raises(AttributeError):
            setattr(opened, name, None)


def test_texts_empty_nodes_and_random_keys(tmp_path: Path) -> None:
    key = jax.random.key(3)
    plain = {"e": {}, "n": None, "t": (), "s": "text"}
    tree = {**plain, "l": [1, 2.5], "k": key, "p": (jnp.ones(2), jnp.zeros(1))}
    checkpoints.save_pytree(tmp_path / "a", tree)
    opened = ckpt_surgery.open(tmp_path / "a")
    assert (opened["e"], opened["n"], opened["t"], opened["s"]) == ({}, None, (), "text")
    assert (opened["k"].dtype, opened["k"].shape, opened["k"].prng_impl) == (np.uint32, (2,), "threefry2x32")
    np.testing.assert_array_equal(opened["k"].get(), jax.random.key_data(key))
    assert (float(opened["l/1"]), opened["l"].tree[1]) == (2.5, opened["l/1"])
    lists = {"l": [opened["l/0"], opened["l/1"]], "p": [opened["p/0"], opened["p/1"]]}
    assert opened.tree == {**plain, "k": opened["k"], **lists}
    shapes = jax.tree.map(lambda leaf: getattr(leaf, "shape", leaf), opened.tree)
    assert shapes["p"] == [(2,), (1,)]
    assert opened["p/0"].sharding == opened["p/0"]._leaf.sharding is not None


def test_a_component_with_a_slash_can_be_cut(tmp_path: Path) -> None:
    checkpoints.save_pytree(tmp_path / "a", {"a/b": {"c": np.ones(1)}, "d": np.ones(1)})
    view = ckpt_surgery.open(tmp_path / "a")["a"]
    assert [*view] == ["b/c"]
    assert view.tree == {"b": {"c": view["b/c"]}}


def test_a_tree_in_memory_can_be_opened() -> None:
    opened = ckpt_surgery.open({"a": [np.arange(3), jnp.ones(2)], "s": "text"})
    assert (opened.path, opened.format) == ("(tree)", "tree")
    np.testing.assert_array_equal(opened["a/0"][1:], [1, 2])
    assert opened.tree == {"a": [opened["a/0"], opened["a/1"]], "s": "text"}
    with pytest.raises(UsageError, match="tree in memory"):
        pickle.dumps(opened)


# --- what is read -----------------------------------------------------------------------------------------


def bytes_read() -> int:
    """Bytes that this process has read from files so far."""
    [line] = [text for text in Path("/proc/self/io").read_text().splitlines() if text.startswith("rchar")]
    return int(line.split()[1])


linux = pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads"
)


@linux
def test_a_row_reads_only_its_chunks(tmp_path: Path) -> None:
    big = np.arange(2**22, dtype=np.float32).reshape(2**12, 2**10)
    args = ocp.args.PyTreeSave({"w": big}, save_args={"w": ocp.SaveArgs(chunk_byte_size=2**20)})
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True)
    with checkpoints.quiet():
        ocp.Checkpointer(handler).save(tmp_path / "big", args=args)
    lazy = ckpt_surgery.open(tmp_path / "big")["w"]
    chunks = 2 * 2**20  # two decoded ones; compressed, they are smaller
    before = bytes_read()
    row = lazy[3000]
    assert bytes_read() - before < 1.1 * chunks + 256 * 2**10
    np.testing.assert_array_equal(row, big[3000], strict=True)
    before = bytes_read()
    few = lazy[[3001, 9], 3:5]
    assert bytes_read() - before < 2 * 1.1 * chunks + 256 * 2**10
    np.testing.assert_array_equal(few, big[[3001, 9], 3:5], strict=True)
    before = bytes_read()
    with pytest.raises(IndexError):
        lazy[2**12]
    assert lazy[3:3].shape == (0, 2**10)
    assert bytes_read() - before < 2**10


def open_files(below: Path) -> list[str]:
    """Files below a path that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the directory
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(below))]


@linux
def test_no_file_stays_open_between_reads(saved: tuple[Path, Mapping[str, Any]]) -> None:
    path, _ = saved
    opened = ckpt_surgery.open(path)
    for lazy in opened.values():
        lazy.get()
        lazy[..., :1] if lazy.ndim else lazy[()]
    for _ in range(100):  # threads of TensorStore close their files a moment later
        if not open_files(path):
            return
        time.sleep(0.05)
    assert open_files(path) == []


# --- values -----------------------------------------------------------------------------------------------


def test_statistics_are_those_of_inspect(saved: tuple[Path, Mapping[str, Any]]) -> None:
    path, _ = saved
    opened, listed = ckpt_surgery.open(path), ckpt_surgery.inspect(path, stats=True)
    assert opened.statistics() == listed.statistics
    assert listed.statistics is not None
    kernel = listed.statistics["params/layer0/kernel"]
    assert opened["params"].statistics(".*/kernel")["layer0/kernel"] == kernel
    assert opened["params/layer0/kernel"].statistics() == kernel
    assert opened["params/layer0/kernel"].astype(np.float64).statistics() == kernel
    with pytest.raises(UsageError, match="matches none of 4 keys"):
        opened.statistics("kernel")


def test_arrays_without_numbers_have_no_statistics(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", words=np.array(["x"]), w=np.ones(1))
    opened = ckpt_surgery.open(tmp_path / "a.npz")
    assert isinstance(opened.statistics()["words"], Unread)
    assert isinstance(opened.statistics("w")["w"], Statistics)
    with pytest.raises(UsageError, match="no statistics"):
        opened["words"].statistics()
    with pytest.raises(SourceError):
        opened["words"].get()


def test_uint16_can_be_read_as_bfloat16(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    safetensors.numpy.save_file({"w": bits, "b": np.ones(1, np.float32)}, tmp_path / "a.safetensors")
    kept = ckpt_surgery.open(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(kept["w"].get(), bits, strict=True)
    read = ckpt_surgery.open(tmp_path / "a.safetensors", uint16="bfloat16")
    numbers = np.array([1, 2], ml_dtypes.bfloat16)
    for lazy in (read["w"], pickle.loads(pickle.dumps(read))["w"], kept["w"].view("bfloat16")):
        assert lazy.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(lazy.get(), numbers, strict=True)
        np.testing.assert_array_equal(lazy[1:], numbers[1:], strict=True)
    found = read.statistics()["w"]
    assert isinstance(found, Statistics)
    assert found.maximum == 2
    np.testing.assert_array_equal(ckpt_surgery.restore(None, read)["w"], numbers, strict=True)
    np.testing.assert_array_equal(ckpt_surgery.restore(None, ckpt_surgery.open(read))["w"], numbers)
    np.testing.assert_array_equal(ckpt_surgery.restore(None, kept)["w"], bits, strict=True)
    with pytest.raises(UsageError, match="uint16"):
        ckpt_surgery.restore(None, read, uint16="keep")
    tree = {"w": bits, "shape": jax.ShapeDtypeStruct((2,), np.uint16)}
    read = ckpt_surgery.open(tree, uint16="bfloat16")
    np.testing.assert_array_equal(read["w"].get(), numbers, strict=True)
    drop = {"version": 1, "rules": [{"match": "shape", "drop": True}]}
    np.testing.assert_array_equal(ckpt_surgery.restore(drop, read)["w"], numbers, strict=True)
    difference = ckpt_surgery.diff(read, {"w": numbers}, values=True)
    assert (difference.changed, difference.only_a[0].key.text) == ((), "shape")
    assert [value.equal for value in difference.values or ()] == [True]


# --- closing, changes -------------------------------------------------------------------------------------


def test_nothing_is_read_once_it_is_closed(saved: tuple[Path, Mapping[str, Any]]) -> None:
    path, expected = saved
    with ckpt_surgery.open(path) as opened:
        lazy, view, narrow = opened["params/layer0/kernel"], opened["params"], opened["step"].astype(np.int8)
        assert not opened.closed
    assert opened.closed
    assert view.closed
    reads: list[Callable[[], Any]] = [lazy.get, narrow.get, opened.statistics, view.statistics]
    reads += [lambda: lazy[0], lambda: asyncio.run(lazy.get_async()), lambda: ckpt_surgery.plan(None, opened)]
    for read in reads:
        with pytest.raises(UsageError, match="was closed"):
            read()
    assert (lazy.shape, narrow.dtype, len(opened)) == ((4, 3), np.int8, 4)
    assert view["layer0/kernel"] is lazy
    opened.close()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(opened))["step"].get(), expected["step"])


def test_a_file_that_changed_is_refused_with_its_name(saved: tuple[Path, Mapping[str, Any]]) -> None:
    path, _ = saved
    opened = ckpt_surgery.open(path)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    names = [file.name for file in files]
    for file in files:
        os.utime(file, ns=(0, 1))
    refused = 0
    for key in opened:
        if opened[key].ndim:  # arrays without axes can be a part of an index that was read
            with pytest.raises(SourceError, match="|".join(names)):
                opened[key].get()
            refused += 1
    assert refused == 3
    with pytest.raises(SourceError, match=f"changed since it was opened: .*({'|'.join(names)})"):
        ckpt_surgery.plan(None, opened)
    with pytest.raises(SourceError, match="changed since it was opened"):
        pickle.loads(pickle.dumps(opened))


def test_a_checkpoint_that_was_replaced_is_refused(tmp_path: Path) -> None:
    for name in ("orbax", "orbax without ocdbt", "a.zarr"):
        path, (save, _) = tmp_path / name, FORMATS[name]
        save(path)
        opened = ckpt_surgery.open(path)
        opened["params/layer0/bias"].get()
        shutil.rmtree(path)
        save(path)
        for lazy in opened.values():
            with pytest.raises(SourceError):
                lazy.get()


def test_a_chunk_that_was_written_since_is_refused(tmp_path: Path) -> None:
    array = zarr.open_group(tmp_path / "a.zarr", mode="w").create_array(
        "w", shape=(4,), dtype="f4", chunks=(2,)
    )
    array[:2] = 1
    lazy = ckpt_surgery.open(tmp_path / "a.zarr")["w"]
    np.testing.assert_array_equal(lazy.get(), [1, 1, 0, 0])
    array[2:] = 2
    with pytest.raises(SourceError, match="new"):
        lazy[2:]


def test_reads_while_it_is_closed_end_in_data_or_a_refusal(orbax: Path) -> None:
    opened = ckpt_surgery.open(orbax)
    started = threading.Barrier(5)

    def read() -> bool:
        started.wait()
        try:
            while True:
                np.testing.assert_array_equal(opened["params/layer0/bias"].get(), np.ones(3))
        except UsageError:
            return True

    with ThreadPoolExecutor(4) as pool:
        refused = [pool.submit(read) for _ in range(4)]
        started.wait()
        opened.close()
    assert all(one.result() for one in refused)


# --- copies -----------------------------------------------------------------------------------------------

PICKLED = """
import pickle, sys
for opened, key in pickle.load(sys.stdin.buffer):
    print(opened.path, opened.step, opened.item, opened[key].get().sum())
"""


def test_a_pickled_checkpoint_opens_again(tmp_path: Path) -> None:
    with checkpoints.quiet():
        checkpoints.save_composite(tmp_path / "run", 3, state=TREE)
    opened = ckpt_surgery.open(tmp_path / "run")
    given = pickle.dumps([(opened, "params/layer0/kernel"), (opened["params"], "layer0/kernel")])
    found = subprocess.run([sys.executable, "-c", PICKLED], input=given, capture_output=True, check=True)
    assert found.stdout.decode().split() == [str(tmp_path / "run"), "3", "state", "66.0"] * 2
    with pytest.raises(UsageError, match="Pickle the checkpoint"):
        pickle.dumps(opened["step"])


# --- as a source ------------------------------------------------------------------------------------------


def test_a_checkpoint_is_a_source(saved: tuple[Path, Mapping[str, Any]], tmp_path: Path) -> None:
    path, expected = saved
    opened, new = ckpt_surgery.open(path), tmp_path / "new"
    recipe = "version: 1\nrules:\n- {match: 'params/(.*)', to: 'model/\\1'}\n"
    plans = [ckpt_surgery.plan(recipe, source) for source in (opened, path)]
    assert plans[0].inputs == plans[1].inputs
    assert [step.transfer for step in plans[0].steps] == [step.transfer for step in plans[1].steps]
    ckpt_surgery.apply(recipe, opened, dst=new)
    kernel, restored = expected["params/layer0/kernel"], ckpt_surgery.restore(recipe, opened)
    np.testing.assert_array_equal(ckpt_surgery.open(new)["model/layer0/kernel"].get(), kernel)
    np.testing.assert_array_equal(restored["model"]["layer0"]["kernel"], kernel)
    assert ckpt_surgery.inspect(opened) == ckpt_surgery.inspect(path)
    assert not ckpt_surgery.diff(opened, path, values=True).changed
    assert ckpt_surgery.infer(opened, new).recipe == ckpt_surgery.infer(path, new).recipe
    assert ckpt_surgery.explain(None, opened, key="step").key == "step"
    ckpt_surgery.invert(recipe, opened)
    ckpt_surgery.plan(None, path, target=opened)
    assert not ckpt_surgery.verify(opened).flaws
    ckpt_surgery.convert(opened, tmp_path / "c.msgpack", match="params/.*")
    assert len(ckpt_surgery.open(tmp_path / "c.msgpack")) == 3


def test_a_source_is_read_at_the_step_that_is_open(tmp_path: Path) -> None:
    checkpoints.save_steps(tmp_path / "run", {1: {"w": np.ones(1)}, 2: {"w": np.full(1, 2)}})
    first, last = ckpt_surgery.open(tmp_path / "run", step=1), ckpt_surgery.open(tmp_path / "run")
    assert ckpt_surgery.restore(None, first)["w"] == 1
    checkpoints.save_steps(tmp_path / "run", {3: {"w": np.full(1, 3)}})
    assert ckpt_surgery.restore(None, last, step=2)["w"] == 2
    assert ckpt_surgery.inspect(last).step == 2
    with pytest.raises(UsageError, match="open with the step 2, and 3 is given"):
        ckpt_surgery.plan(None, last, step=3)


def test_a_part_of_a_checkpoint_is_no_source(orbax: Path) -> None:
    with pytest.raises(UsageError, match=r"`params` is a part of .*\n.*`\.tree`"):
        ckpt_surgery.plan(None, ckpt_surgery.open(orbax)["params"])
    with pytest.raises(UsageError, match="stands where a recipe is read"):
        ckpt_surgery.plan(ckpt_surgery.open(orbax))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the target is the path"):
        ckpt_surgery.restore(None, orbax, target=ckpt_surgery.open(orbax))
