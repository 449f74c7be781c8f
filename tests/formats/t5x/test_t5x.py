"""T5X and legacy Orbax, against files that flax and TensorStore write the way T5X lets them."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import safetensors.numpy

import ckpt_surgery
from ckpt_surgery.core.dtypes import NUMPY_NAMES
from ckpt_surgery.core.errors import PlanError, SourceError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.protocols import Choices, details_of
from ckpt_surgery.formats.known import formats
from ckpt_surgery.formats.opening import detect_format
from ckpt_surgery.formats.orbax import FORMAT as ORBAX
from ckpt_surgery.formats.shared.zarr.metadata import EXTENDED
from tests.support import conformance
from tests.support.arrays import ALL_DTYPES, array
from tests.support.checkpoints import save_pytree
from tests.support.comparing import assert_same
from tests.support.conformance import Arrays, Lie, file_lie
from tests.support.heavy import jnp, serialization
from tests.support.json_files import edit_json
from tests.support.reading import opened, values
from tests.support.t5x_files import spec_of, store, written
from tests.support.trees import nested

NAMES = tuple(name for name in conformance.NAMES if name not in ("a", ".."))
"""The names without those of leaves that other names would make containers of: `a//b`, `../../etc/passwd`."""
DIRECTORIES = tuple(
    name
    for name in NAMES
    # What is no name of a directory, and one of two that T5X would write into one directory.
    if name not in (".", "nul\0byte", "x" * 4000, "model/layers.0/weight", "a\\b", "C:\\x")
)


# --- lies -------------------------------------------------------------------------------------------------


def lie(reason: str, says: str, damage: Mapping[str, Any] | Callable[[Path], object]) -> Lie:
    """The array `target/x`, [4, 6] in chunks of [2, 3], with another spec or other files."""

    def make(directory: Path) -> Path:
        path = directory / "checkpoint_1"
        spec = spec_of(path, "target/x", array((4, 6), "float32"), (2, 3))
        written(path, {"target": {"x": spec if callable(damage) else spec | dict(damage)}})
        if callable(damage):
            damage(path / "target.x")
        return path

    return Lie(reason, make, says)


def tree_lie(reason: str, says: str, tree: Any) -> Lie:
    return file_lie("checkpoint", reason, says, tree if isinstance(tree, bytes) else msgpack.packb(tree))


def kvstore(path: Any, driver: str = "file") -> dict[str, Any]:
    return {"kvstore": {"driver": driver, "path": path}}


def metadata(**change: Any) -> Callable[[Path], object]:
    return lambda path: edit_json(path / ".zarray", lambda document: document.update(change))


def linked_away(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


ELSEWHERE = "which is not a path below the checkpoint"

SPEC_LIES = (
    lie("a path upwards", f"`target/x`: .*`../../etc`, {ELSEWHERE}", kvstore("../../etc/")),
    lie("an absolute path", ELSEWHERE, kvstore("/etc")),
    lie("the checkpoint itself", ELSEWHERE, kvstore("./")),
    lie("a path that is a number", "a path that is not text", kvstore(7)),
    lie("a path that leads nowhere", "`target/x`: .*No such file", kvstore("target.y")),
    lie("another driver", "the driver 'n5', which cannot be read", {"driver": "n5"}),
    lie("a store that is a text", "no kvstore with a driver", {"kvstore": "file://target.x"}),
    lie("another shape", r"has the shape \(4, 7\) in the tree", {"metadata": {"shape": [4, 7]}}),
    lie("an array as the shape", r"has the shape \(24,\) in", {"metadata": {"shape": np.array([24])}}),
    lie("a number as the shape", "not made of integers", {"metadata": {"shape": 24}}),
    lie("a long shape", r"spec is int64\[40\]", {"metadata": {"shape": np.ones(40, np.int64)}}),
    lie("another type", r"it is float32\[4,6\], but bfloat16 in the tree", {"dtype": "bfloat16"}),
    lie("no metadata", "`target/x`: .*has no .zarray", lambda path: (path / ".zarray").unlink()),
    lie("metadata of both versions", "has both", lambda path: (path / "zarr.json").write_text("{}")),
    lie("a chunk that is missing", "`target/x`: its chunk 1.0 is", lambda path: (path / "1.0").unlink()),
    lie("a huge grid", "chunks, more than the .* values in all", metadata(shape=[2**50, 2**50])),
    lie("huge chunks", "should decode to", metadata(shape=[2**50, 6], chunks=[2**50, 3])),
    lie("another compressor", "`target/x`: its chunk .* cannot be", metadata(compressor={"id": "zstd"})),
    lie("a directory that is a link", "outside the checkpoint", linked_away),
)

TREE_LIES = (
    tree_lie("a version to come", "4; the newest known version is 3", {"version": 4, "optimizer": {}}),
    tree_lie("a version that is a text", "its version is '3'", {"version": "3", "optimizer": {}}),
    tree_lie("no tree", "no tree of named leaves", {"version": 3, "optimizer": 5}),
    tree_lie("an empty file", "1 bytes belong here", b""),
    tree_lie("a text file", "more bytes follow|TensorFlow", b'model_checkpoint_path: "model.ckpt-0"\n'),
    tree_lie("a byte that begins nothing", "0xc1", b"\x82\xa7version\x03\xa9optimizer\xc1"),
    tree_lie("two leaves with one key", "two leaves have the key `a/b`", {"a/b": 1, "a": {"b": 2}}),
    tree_lie("bytes", "`a/b`: it is a byte string", {"a": {"b": b"x"}}),
)


# --- conformance ------------------------------------------------------------------------------------------


class TestInline(conformance.Reading):
    """All arrays in the tree's file."""

    format = "t5x"
    dtypes = ALL_DTYPES
    names = NAMES
    lies = TREE_LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        return written(path, nested(arrays))


class TestTensorStore(conformance.Reading):
    """All arrays in zarr."""

    format = "t5x"
    dtypes = (*NUMPY_NAMES, *EXTENDED)
    names = DIRECTORIES
    lies = SPEC_LIES
    raw = False

    def save(self, arrays: Arrays, path: Path) -> Path:
        return written(path, nested({name: spec_of(path, name, value) for name, value in arrays.items()}))


def save_legacy(directory: Path, arrays: Arrays) -> Path:
    """As Orbax did before `_METADATA`: placeholders for all arrays."""
    directory.mkdir(parents=True)
    for name, value in arrays.items():
        store(directory / name.replace("/", "."), value)
    tree = nested({name: f"PLACEHOLDER://{name.replace('/', '.')}" for name in arrays})
    (directory / "checkpoint").write_bytes(serialization.msgpack_serialize(tree))
    return directory


def test_placeholders_of_orbax(tmp_path: Path) -> None:
    arrays = {name: array((2, i % 3), "bfloat16", i) for i, name in enumerate(DIRECTORIES)}
    assert_same(values(opened(save_legacy(tmp_path / "saved", arrays))), arrays)
    paths = dict.fromkeys(("../x", "/etc", "", "a/../.."), ELSEWHERE) | {"gone": "`a`: .*No such file"}
    for path, says in paths.items():
        (tmp_path / "checkpoint").write_bytes(msgpack.packb({"a": f"PLACEHOLDER://{path}"}))
        with pytest.raises(SourceError, match=says):
            opened(tmp_path)


# --- T5X --------------------------------------------------------------------------------------------------

KERNEL, SCALE, STEP = array((8, 6), "bfloat16"), array((6,), "float32"), np.int32(7)


def train_state(directory: Path) -> Path:
    """Parameters and one slot in zarr, the rest in the tree, as T5X divides them."""
    kernel = spec_of(directory, "target/decoder/mlp.wi/kernel", KERNEL, (4, 6))
    slots = {"m": np.zeros(1, np.float32), "v_row": spec_of(directory, "state/v_row", SCALE)}
    states = {"decoder": {"mlp.wi": {"kernel": slots}}, "scale": None}
    return written(
        directory,
        {
            "target": {"decoder": {"mlp.wi": {"kernel": kernel}}, "scale": SCALE},
            "state": {"step": STEP, "param_states": states},
            "flax_mutables": {},
        },
    )


STATE = {
    "target/decoder/mlp.wi/kernel": KERNEL,
    "target/scale": SCALE,
    "state/step": np.array(7, np.int32),
    "state/param_states/decoder/mlp.wi/kernel/m": np.zeros(1, np.float32),
    "state/param_states/decoder/mlp.wi/kernel/v_row": SCALE,
}


def test_a_train_state(tmp_path: Path) -> None:
    source = opened(train_state(tmp_path / "checkpoint_7"))
    assert (source.format, source.step, source.item, source.metadata) == ("t5x", None, None, {})
    empty = {"flax_mutables": "<Dict>", "state/param_states/scale": "<None>"}
    assert_same(values(source), STATE | empty)
    leaves = source.leaves()
    assert leaves["state/step"].kind is LeafKind.SCALAR
    assert leaves["target/scale"].kind is LeafKind.ARRAY
    key = Key.of(["target", "decoder", "mlp.wi", "kernel"])
    kernel = leaves[key.text]
    assert kernel.key == key
    assert kernel.manifest.codec.name == "gzip"
    assert [c.file for c in kernel.manifest.chunks.values()] == [
        os.fspath(tmp_path / "checkpoint_7" / f"target.decoder.mlp.wi.kernel/{i}.0") for i in (0, 1)
    ]


def test_keys_start_below_the_optimizer(tmp_path: Path) -> None:
    """But for version 0, a bare tree, also where it has one of the names that a later version has."""
    for version in (1, 2, 3):
        path = written(tmp_path / f"checkpoint_{version}", {"target": {"x": SCALE}}, version)
        assert_same(values(opened(path)), {"target/x": SCALE})
    (tmp_path / "checkpoint").write_bytes(
        serialization.to_bytes({"optimizer": {"target": {"x": SCALE}}, "y": STEP})
    )
    assert_same(values(opened(tmp_path)), {"optimizer/target/x": SCALE, "y": np.array(7, np.int32)})
    tree = {"version": 3, "optimizer": {"x": SCALE}, "y": STEP}
    (tmp_path / "checkpoint").write_bytes(serialization.to_bytes(tree))
    assert list(opened(tmp_path).leaves()) == ["version", "optimizer/x", "y"]


@pytest.mark.parametrize(
    "spec",
    [
        {"kvstore": {"driver": "file", "path": "x/"}},
        {"kvstore": {"driver": "file", "path": "x"}},
        {"kvstore": {"driver": "gfile", "path": "x/"}},
        {"kvstore": {"driver": "gcs", "bucket": "t5x-dummy-bucket", "path": "x/"}},
        {"kvstore": {"driver": "gfile"}, "path": "x"},  # before 0.1.14
        {"kvstore": {"driver": "gcs", "bucket": "t5x-dummy-bucket"}, "path": "x/"},
        {"kvstore": {"driver": "file", "path": "."}, "path": "./x//"},
    ],
)
def test_where_a_spec_may_point(spec: dict[str, Any], tmp_path: Path) -> None:
    value = array((4, 3), "float32")
    about = store(tmp_path / "x", value)
    written(tmp_path, {"target": {"w": {"driver": "zarr", "dtype": "float32", "metadata": about} | spec}})
    assert_same(values(opened(tmp_path)), {"target/w": value})


@pytest.mark.parametrize("shape", [[4, 3], {"0": 4, "1": 3}, np.array([4, 3]), np.array([4, 3], np.int32)])
def test_how_a_shape_may_be_told(shape: Any, tmp_path: Path) -> None:
    """By arrays; as dicts, which flax makes of lists; and as lists, which its `msgpack_serialize` leaves."""
    value = array((4, 3), "float32")
    spec = spec_of(tmp_path, "x", value) | {"metadata": {"shape": shape, "chunks": shape}}
    data = serialization.msgpack_serialize({"version": 3, "optimizer": {"target": {"x": spec}}})
    (tmp_path / "checkpoint").write_bytes(data)
    assert_same(values(opened(tmp_path)), {"target/x": value})


# --- uint16 -----------------------------------------------------------------------------------------------


@pytest.fixture
def disguised(tmp_path: Path) -> Path:
    """bfloat16 as old versions of T5X stored it, beside integers in the tree's own file."""
    bits = KERNEL.view(np.uint16)
    state = {
        "zarr": spec_of(tmp_path / "old", "zarr", bits),
        "inline": bits,
        "scale": spec_of(tmp_path / "old", "s", SCALE),
    }
    return written(tmp_path / "old", state)


def rule(match: str, value: str) -> dict[str, Any]:
    return {"version": 1, "rules": [{"match": match, "value": value}]}


KEPT_SO = "1 leaf of uint16: T5X kept bfloat16 so; `input: {uint16: bfloat16}` reads them back"


def test_uint16_stays_uint16_with_a_warning(disguised: Path, tmp_path: Path) -> None:
    bits = KERNEL.view(np.uint16)
    assert_same(values(opened(disguised)), {"zarr": bits, "inline": bits, "scale": SCALE})
    assert ckpt_surgery.inspect(disguised).warnings == (KEPT_SO,)
    assert KEPT_SO in ckpt_surgery.apply(None, disguised, dst=tmp_path / "out").plan.warnings
    assert_same(values(opened(tmp_path / "out")), {"zarr": bits, "inline": bits, "scale": SCALE})
    (warning,) = ckpt_surgery.diff(disguised, tmp_path / "out", values=True).warnings
    assert warning.startswith(f"{disguised}: 1 leaf of uint16 compared as integers")


def test_uint16_is_read_as_bfloat16_by_its_bits(disguised: Path, tmp_path: Path) -> None:
    """By an option, by an entry of the recipe, or by a rule."""
    entry = {"version": 1, "input": {"uint16": "bfloat16"}}
    for recipe, uint16 in (
        (None, "bfloat16"),
        (entry, None),
        (rule("zarr|inline", "bitcast(x, 'bfloat16')"), None),
    ):
        out = tmp_path / "out"
        plan = ckpt_surgery.apply(recipe, disguised, dst=out, uint16=uint16, overwrite=True).plan
        assert plan.warnings == ()
        assert {s.leaf.key.text: s.transfer.value for s in plan.steps}["zarr"] == "link"
        assert_same(values(opened(out)), {"zarr": KERNEL, "inline": KERNEL, "scale": SCALE})
        difference = ckpt_surgery.diff(disguised, out, uint16="bfloat16", values=True)
        assert (difference.different, difference.warnings) == (False, ())


@pytest.mark.parametrize(
    "value",
    [
        *("cast(x, 'float32')", "cast(x, 'bfloat16')", "x / 2", "cast(x.T, 'float32')"),
        *("cast(cast(x, 'int32'), 'float32')", "cast(sum(x, axis=0), 'float32')", "cast(x @ x.T, 'float32')"),
    ],
)
def test_integers_that_are_bfloat16_do_not_become_floats(disguised: Path, value: str) -> None:
    with pytest.raises(PlanError, match="`zarr`: integers of uint16 would become floating-point numbers"):
        ckpt_surgery.plan(rule("zarr", value), disguised)
    assert not ckpt_surgery.plan(rule("zarr", value), disguised, uint16="bfloat16").warnings
    assert ckpt_surgery.plan(rule("inline", value), disguised).warnings == (KEPT_SO,)
    for fine in ("cast(x > 3, 'float32')", "cast(bitcast(x, 'bfloat16'), 'float32')"):
        ckpt_surgery.plan(rule("zarr", fine), disguised)


def test_a_draft_from_integers_that_are_bfloat16_reads_them_so(disguised: Path, tmp_path: Path) -> None:
    new = {"kernel": KERNEL.T.copy(), "scale": SCALE, "inline": KERNEL + KERNEL}
    target = tmp_path / "new.safetensors"
    safetensors.numpy.save_file(new, target)
    source = ckpt_surgery.open(disguised, uint16="bfloat16")
    by_option = ckpt_surgery.infer(disguised, target, uint16="bfloat16")
    for found in (by_option, ckpt_surgery.infer(source, target)):
        assert (found.decided, found.warnings, found.compared) == (True, (), 3)
        assert found.draft.document["input"] == {"uint16": "bfloat16"}
    ckpt_surgery.apply(found.recipe, disguised, dst=tmp_path / "out")
    assert_same(values(opened(tmp_path / "out")), new)
    (warning,) = ckpt_surgery.infer(disguised, target).warnings
    assert warning.startswith(f"{disguised}: 1 leaf of uint16 compared as integers")
    with pytest.raises(UsageError, match="uint16"):
        ckpt_surgery.infer(source, target, uint16="keep")


def test_a_draft_takes_integers_of_the_target_as_bfloat16_too(disguised: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", scale=SCALE)
    found = ckpt_surgery.infer(tmp_path / "in.npz", disguised, uint16="bfloat16")
    assert (found.decided, found.needs_target) == (True, True)
    ckpt_surgery.apply(found.recipe, tmp_path / "in.npz", target=disguised, dst=tmp_path / "out")
    assert_same(values(opened(tmp_path / "out")), {"scale": SCALE, "zarr": KERNEL, "inline": KERNEL})


def test_bits_of_integers_that_are_bfloat16_come_back(disguised: Path, tmp_path: Path) -> None:
    there = {"version": 1, "rules": [{"match": "zarr", "to": "kernel", "value": "cast(x.T, 'float32')"}]}
    back = ckpt_surgery.invert(there, disguised, uint16="bfloat16")
    assert (back.irreversible, back.problems) == ((), ())
    ckpt_surgery.apply(there, disguised, dst=tmp_path / "out", uint16="bfloat16")
    ckpt_surgery.apply(back.recipe, tmp_path / "out", dst=tmp_path / "back")
    bits = KERNEL.view(np.uint16)
    assert_same(values(opened(tmp_path / "back")), {"zarr": bits, "inline": bits, "scale": SCALE})


def test_verification_reads_bits_whatever_they_mean(disguised: Path) -> None:
    for uint16 in ("keep", "bfloat16", None):
        verified = ckpt_surgery.verify(disguised, uint16=uint16)  # type: ignore[arg-type]
        assert (verified.flaws, verified.leaves) == ((), 3)


def test_a_target_does_not_cast_integers_that_are_bfloat16(disguised: Path) -> None:
    target = {"zarr": np.zeros(KERNEL.shape, np.float32), "inline": KERNEL, "scale": np.zeros_like(SCALE)}
    with pytest.raises(PlanError, match="integers of uint16 would become floating-point numbers"):
        ckpt_surgery.restore(None, disguised, target=target)
    restored = ckpt_surgery.restore(None, disguised, target=target, uint16="bfloat16")
    assert_same({"zarr": np.asarray(restored["zarr"])}, {"zarr": KERNEL.astype(np.float32)})


@pytest.mark.slow("calls every function")
def test_functions_do_not_make_floats_of_integers_that_are_bfloat16(disguised: Path) -> None:
    def function(tree: Any) -> Any:
        return {"w": tree["zarr"].astype(np.float32)}

    with pytest.raises(PlanError, match="integers of uint16 would become floating-point numbers"):
        ckpt_surgery.restore(function, disguised)
    opened = ckpt_surgery.open(disguised, uint16="bfloat16")
    recipe = ckpt_surgery.from_function(function, opened)
    assert recipe.document["input"] == {"uint16": "bfloat16"}
    restored = ckpt_surgery.restore(recipe, disguised)
    assert_same({"w": np.asarray(restored["w"])}, {"w": KERNEL.astype(np.float32)})
    assert "input" not in ckpt_surgery.from_function(function, {"zarr": KERNEL}).document


def test_uint16_of_others_is_what_it_says(tmp_path: Path) -> None:
    bits = KERNEL.view(np.uint16)
    np.savez(tmp_path / "in.npz", ids=bits)
    for path in (tmp_path / "in.npz", save_legacy(tmp_path / "checkpoint_1", {"ids": bits})):
        assert ckpt_surgery.inspect(path).warnings == ()
        out = tmp_path / f"{path.name}.out"
        assert ckpt_surgery.apply(rule("ids", "cast(x, 'float32')"), path, dst=out).plan.warnings == ()
        assert_same(values(opened(out)), {"ids": bits.astype(np.float32)})


def test_lazy_arrays_of_integers_that_are_bfloat16_do_not_become_floats(disguised: Path) -> None:
    checkpoint = ckpt_surgery.open(disguised)
    array = checkpoint["zarr"]
    for cast in (
        lambda: array.astype("float32"),
        lambda: array.astype("bfloat16"),
        lambda: array.astype("int32").astype("float32"),
        lambda: np.asarray(array, np.float64),
        lambda: ckpt_surgery.restore(None, {"w": array}, target={"w": jnp.zeros(KERNEL.shape)}),
    ):
        with pytest.raises(PlanError, match="integers of uint16 would become floating-point numbers"):
            cast()
    by_bits = array.view("bfloat16").astype("float32").get()
    assert_same({"v": by_bits}, {"v": KERNEL.astype(np.float32)})
    assert ckpt_surgery.plan(None, {"w": array}).warnings == (KEPT_SO,)
    inline = checkpoint["inline"].astype("float32").get()  # in the tree's file they are what they say
    assert_same({"w": inline}, {"w": KERNEL.view(np.uint16).astype(np.float32)})


# --- steps and items ----------------------------------------------------------------------------------------


def steps(directory: Path) -> Path:
    for step in (9, 10, 200):
        written(directory / f"checkpoint_{step}", {"target": {"x": np.full(2, step, np.float32)}})
    shutil.copytree(directory / "checkpoint_200", directory / "checkpoint_300.tmp-1234")
    (directory / "checkpoint_400").mkdir()
    (directory / "train").mkdir()
    return directory


def test_the_latest_step_is_the_default(tmp_path: Path) -> None:
    steps(tmp_path)
    for step, wanted in ((None, 200), (9, 9)):
        source = opened(tmp_path, step=step)
        assert (source.step, source.path) == (wanted, os.fspath(tmp_path))
        assert_same(values(source), {"target/x": np.full(2, wanted, np.float32)})
        assert details_of(source).choices() == Choices((9, 10, 200))
    with pytest.raises(UsageError, match=r"no step 11\n.*`checkpoint_9`, `checkpoint_10`, `checkpoint_200`"):
        opened(tmp_path, step=11)
    for path in (tmp_path / "checkpoint_9", tmp_path / "checkpoint_9" / "checkpoint"):
        with pytest.raises(UsageError, match="no steps to choose from"):
            opened(path, step=9)
    with pytest.raises(UsageError, match="no items to choose from"):
        opened(tmp_path, item="default")


def test_a_step_that_is_a_link_elsewhere(tmp_path: Path) -> None:
    steps(tmp_path / "run")
    (tmp_path / "run" / "checkpoint_200").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "checkpoint_200").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "checkpoint").unlink()
    (tmp_path / "elsewhere" / "checkpoint").symlink_to(tmp_path / "run" / "checkpoint_10" / "checkpoint")
    with pytest.raises(SourceError, match="outside the checkpoint"):
        opened(tmp_path / "run")
    assert opened(tmp_path / "run", step=10).step == 10


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="neither a file `checkpoint` nor steps"):
        opened(tmp_path, format="t5x")
    with pytest.raises(SourceError, match="never finished"):
        opened(steps(tmp_path) / "checkpoint_300.tmp-1234")


def test_items_of_a_legacy_checkpoint(tmp_path: Path) -> None:
    """As a CheckpointManager wrote them."""
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "metadata").mkdir()
    save_legacy(tmp_path / "5" / "default", {"params/w": SCALE})
    for path, step in ((tmp_path, 5), (tmp_path / "5", None), (tmp_path / "5" / "default", None)):
        assert formats()["t5x"].recognizes(path)
        assert not ORBAX.recognizes(path)
        source = opened(path)
        assert (source.step, source.item) == (step, None if path.name == "default" else "default")
        assert_same(values(source), {"params/w": SCALE})
    assert details_of(opened(tmp_path)).choices() == Choices((5,), items=("default", "metadata"))
    assert details_of(source).choices() == Choices()


def test_what_is_taken_for_t5x(tmp_path: Path) -> None:
    train_state(tmp_path / "run" / "checkpoint_7")
    save_legacy(tmp_path / "old", {"params/w": SCALE})
    shutil.copy(tmp_path / "run/checkpoint_7/checkpoint", tmp_path / "renamed.msgpack")
    written(tmp_path / "cut", {"target": {"x": SCALE}})
    os.truncate(tmp_path / "cut" / "checkpoint", 30)
    for name in ("run", "run/checkpoint_7", "run/checkpoint_7/checkpoint", "old", "renamed.msgpack", "cut"):
        assert detect_format(os.fspath(tmp_path / name)).name == "t5x", name
    written(tmp_path / "alone", {"target": {"x": SCALE}})
    (tmp_path / "alone/checkpoint").rename(tmp_path / "alone/model.t5x")
    assert_same(values(opened(tmp_path / "alone/model.t5x")), {"target/x": SCALE})


def test_what_is_not_taken_for_t5x(tmp_path: Path) -> None:
    save_pytree(tmp_path / "orbax", {"x": SCALE})
    old = save_legacy(tmp_path / "models" / "old", {"params/w": SCALE})
    # For a while Orbax wrote both.
    shutil.copytree(tmp_path / "orbax", tmp_path / "both")
    shutil.copy(old / "checkpoint", tmp_path / "both" / "checkpoint")
    assert detect_format(os.fspath(tmp_path / "both")).name == "orbax"
    assert not ORBAX.recognizes(old)
    for name, data in {
        "tensorflow/checkpoint": b'model_checkpoint_path: "model.ckpt-0"\n',
        "flax/checkpoint_1": serialization.to_bytes({"optimizer": {"x": SCALE}, "z": 1}),
        "empty/empty.msgpack": b"",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    names = (
        *("orbax", "both", "tensorflow", "tensorflow/checkpoint", "flax", "flax/checkpoint_1"),
        *("empty", "empty/empty.msgpack", "models", "models/old/params.w", "gone"),
    )
    for name in names:
        assert not formats()["t5x"].recognizes(tmp_path / name), name
