"""What `overwrite` replaces: one checkpoint as its library, or this program, left it; and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import leftovers
from ckpt_surgery.engine.staging.checks import state_of
from ckpt_surgery.runs.destination import Publication, check_step_is_new, replacement
from ckpt_surgery.storage.record_files import RECORD_NAME
from tests.formats.tensorflow.bundles import Piece, save_pieces
from tests.support import checkpoints, directories
from tests.support.checkpoints import LAYOUTS
from tests.support.directories import names
from tests.support.libraries import ORIGINS, save_state
from tests.support.models import ARRAYS

Checkpoint = Callable[[str], Path]
ARRAYS_TO_SAVE = {"a.kernel": np.arange(12.0).reshape(3, 4), "b": np.ones(3, np.float32)}
OF_ORBAX = Path(__file__).parents[1] / "data" / "orbax_versions"
STEPS = {"steps", "steps-prefixed", "composite"}


def replaceable(path: Path) -> str | None:
    """The state of what `overwrite` would replace at a path."""
    found = replacement(Publication(str(path), False), overwrite=True)
    return None if found is None else found.state


def refused(path: Path) -> str:
    """The message that refuses to replace what is at a path, which stays what it is."""
    before = state_of(path)
    with pytest.raises(DestinationError) as caught:
        replaceable(path)
    assert caught.value.exit_code == 4
    assert state_of(path) == before
    return str(caught.value)


# --- one checkpoint ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "step"),
    [
        *((layout, "") for layout in sorted(set(LAYOUTS) - STEPS)),
        ("steps", "10"),
        ("steps-prefixed", "ckpt_00000003"),
    ],
)
def test_checkpoints_of_orbax_and_named_steps_are_replaced(
    layout: str, step: str, checkpoint: Checkpoint
) -> None:
    path = checkpoint(layout) / step
    assert replaceable(path) == state_of(path)


@pytest.mark.parametrize("name", sorted(path.name for path in OF_ORBAX.iterdir() if path.is_dir()))
def test_checkpoints_of_older_versions_of_orbax_are_replaced(name: str, tmp_path: Path) -> None:
    shutil.copytree(OF_ORBAX / name, tmp_path / name)
    assert replaceable(tmp_path / name) is not None


def test_a_step_of_several_items_is_one_checkpoint(tmp_path: Path) -> None:
    checkpoints.save_composite(tmp_path / "run", 5, state={"x": np.ones(3)}, averaged={"x": np.ones(3)})
    assert replaceable(tmp_path / "run" / "5") is not None
    (tmp_path / "run" / "5" / "averaged" / "notes.txt").touch()
    assert "holds 1 file besides its orbax checkpoint (averaged/notes.txt)" in refused(tmp_path / "run" / "5")


def of(name: str) -> Callable[[Path], object]:
    return lambda path: ORIGINS[name].save(ORIGINS[name].arrays, path)


def of_tensorflow(path: Path) -> None:
    path.mkdir()
    save_pieces(path / "model.ckpt-3", [Piece("w", np.ones(3))])
    (path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    (path / "model.ckpt-3.meta").touch()


def of_dcp(path: Path) -> None:
    """Of two ranks, the second of which has nothing to write."""
    save_state({"a": torch.ones(3)}, path)
    (path / "__1_0.distcp").touch()


WRITTEN: dict[str, Callable[[Path], object]] = {
    "x.safetensors": of("safetensors"),
    "x.npz": of("npz"),
    "x.npy": lambda path: np.save(path, np.ones(3)),
    "x.msgpack": of("flax"),
    "x.pt": of("torch"),
    "t5x": of("t5x"),
    "x.zarr": of("zarr3"),
    "v2.zarr": of("zarr2"),
    "tf": of_tensorflow,
    "dcp": of_dcp,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_checkpoints_of_other_libraries_are_replaced(name: str, tmp_path: Path) -> None:
    WRITTEN[name](tmp_path / name)
    state = replaceable(tmp_path / name)
    assert state is not None
    assert state == state_of(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("out", {}),
        ("out", {"dst_item": "state"}),
        ("out", {"format": "safetensors"}),
        ("out", {"format": "safetensors", "shard_size": 4800}),
        *((f"out.{suffix}", {}) for suffix in ("safetensors", "npz", "msgpack", "zarr")),
    ],
)
def test_what_this_program_writes_is_replaced(
    name: str, options: dict[str, str | int], model: Path, tmp_path: Path
) -> None:
    out = tmp_path / name
    for _ in range(2):
        ckpt_surgery.convert(model, out, overwrite=True, **options)  # type: ignore[arg-type]
        of = out if out.is_dir() else None
        (tmp_path / f"{name}.{RECORD_NAME}" if of is None else of / RECORD_NAME).write_text("{}")
    assert ckpt_surgery.inspect(out).leaves
    ckpt_surgery.convert(model, out, overwrite=True, **options)  # type: ignore[arg-type]


def test_the_record_beside_a_file_in_the_directory_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    of("flax")(tmp_path / "out" / "checkpoint_1")
    (tmp_path / "out" / f"checkpoint_1.{RECORD_NAME}").touch()
    assert replaceable(tmp_path / "out") is not None
    (tmp_path / "out" / f"checkpoint_2.{RECORD_NAME}").touch()
    assert f"(checkpoint_2.{RECORD_NAME})" in refused(tmp_path / "out")


def test_nothing_and_an_empty_directory(model: Path, tmp_path: Path) -> None:
    assert replaceable(tmp_path / "out") is None
    (tmp_path / "out").mkdir()
    assert replaceable(tmp_path / "out") is not None
    ckpt_surgery.convert(model, tmp_path / "out", overwrite=True)


def test_what_a_killed_run_moved_aside_is_looked_at(tmp_path: Path) -> None:
    """The run puts it back before it publishes, and then replaces it."""
    out = tmp_path / "out.npz"
    np.savez(out, **ARRAYS_TO_SAVE)
    state = replaceable(out)
    moved = leftovers.directory_of(out, "0" * 16) / leftovers.ASIDE
    moved.parent.mkdir()
    out.rename(moved)
    assert replaceable(out) == state
    moved.write_text("notes")
    assert "it is not replaced" in refused(out)


# --- anything else ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", sorted(STEPS))
def test_a_directory_of_steps_is_not_replaced(layout: str, checkpoint: Checkpoint) -> None:
    path = checkpoint(layout)
    one = {"steps": "`dst_step=10`", "steps-prefixed": f"{path}/ckpt_00000010", "composite": "`dst_step=5`"}
    said = refused(path)
    assert "a directory of steps is not replaced" in said
    assert f"Replace one of them: {one[layout]};" in said


def of_hugging_face(path: Path) -> None:
    path.mkdir()
    save_file(ARRAYS_TO_SAVE, path / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "merges.txt", "z"):
        (path / name).write_text("{}")


def with_file(name: str, layout: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        layout(path)
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("notes")

    return make


def directory_of(*names: str) -> Callable[[Path], None]:
    """Makes a directory with a checkpoint of each name, in the format of its suffix, or else of Flax."""

    def make(path: Path) -> None:
        path.mkdir()
        for name in names:
            WRITTEN[f"x{Path(name).suffix or '.msgpack'}"](path / name)

    return make


def two_of_tensorflow(path: Path) -> None:
    of_tensorflow(path)
    save_pieces(path / "model.ckpt-2", [Piece("w", np.ones(3))])


def unfinished(path: Path) -> None:
    LAYOUTS["standard"](path)
    (path / "commit_success.txt").unlink(missing_ok=True)
    about = json.loads((path / "_CHECKPOINT_METADATA").read_text())
    (path / "_CHECKPOINT_METADATA").write_text(json.dumps(about | {"commit_timestamp_nsecs": None}))


def without_index(path: Path) -> None:
    LAYOUTS["ocdbt-zarr3"](path)
    (path / "manifest.ocdbt").write_bytes(b"")


def cut(path: Path) -> None:
    save_file(ARRAYS_TO_SAVE, path)
    path.write_bytes(path.read_bytes()[:-4])


BESIDES = "holds 1 file besides its"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "hugging face": (
        of_hugging_face,
        "holds 6 files besides its safetensors checkpoint "
        "(config.json, merges.txt, tokenizer.json, tokenizer_config.json, vocab.txt, …); it is not replaced",
    ),
    "flat": (with_file("notes.txt", LAYOUTS["ocdbt-zarr3"]), f"{BESIDES} orbax checkpoint (notes.txt)"),
    "plain": (with_file("params.w/notes", LAYOUTS["plain-zarr2"]), f"{BESIDES} orbax checkpoint (params.w/n"),
    "v1": (with_file("mine/a.txt", LAYOUTS["v1"]), f"{BESIDES} orbax checkpoint (mine/a.txt)"),
    "chunks": (with_file("ids/c/x", WRITTEN["x.zarr"]), f"{BESIDES} zarr checkpoint (ids/c/x)"),
    "ranks": (with_file("common.pt", of_dcp), f"{BESIDES} dcp checkpoint (common.pt)"),
    "hidden": (with_file(".git/HEAD", of("t5x")), f"{BESIDES} t5x checkpoint (.git/HEAD)"),
    "two files": (
        directory_of("a.npz", "b.npz"),
        "is not a checkpoint itself, but holds some: a.npz, b.npz (npz); it is not replaced",
    ),
    "two formats": (directory_of("x.npz", "x.safetensors"), f"{BESIDES} safetensors checkpoint (x.npz)"),
    "two bundles": (two_of_tensorflow, "besides its tensorflow checkpoint (model.ckpt-2."),
    "text": (lambda path: path.write_text("notes"), "it looks like a text file; it is not replaced"),
    "nothing": (
        with_file("a/b.txt", lambda path: path.mkdir()),
        "is not a checkpoint of a known format; it is not replaced",
    ),
    "pipe": (os.mkfifo, "is neither a file nor a directory; it is not replaced"),
    "unfinished": (unfinished, "was never committed"),
    "index": (without_index, "manifest.ocdbt"),
    "damaged.safetensors": (cut, "it is not replaced\n  Remove it yourself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_with_what_is_there(name: str, tmp_path: Path) -> None:
    make, says = REFUSED[name]
    path = tmp_path / (name if "." in name else "out")
    make(path)
    said = refused(path)
    assert says in said
    assert said.startswith(str(path))


def test_a_file_that_needs_others_is_not_replaced_alone(model: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    ckpt_surgery.convert(model, shards, format="safetensors", shard_size=4800)
    save_pieces(tmp_path / "tf", [Piece("w", np.ones(3))])
    assert "belongs to a checkpoint of several files" in refused(shards / "model.safetensors.index.json")
    assert "belongs to a checkpoint of several files" in refused(tmp_path / "tf.index")
    said = refused(shards / "model-00001-of-00002.safetensors")
    assert f"is a part of the checkpoint {shards}; it is not replaced alone" in said
    of("zarr3")(tmp_path / "x.zarr")
    assert f"is a part of the checkpoint {tmp_path / 'x.zarr'}" in refused(tmp_path / "x.zarr" / "ids")


def test_a_checkpoint_beside_others_is_no_part_of_them(tmp_path: Path) -> None:
    directory_of("a.npz", "b.npz")(tmp_path / "out")
    assert replaceable(tmp_path / "out" / "a.npz") is not None
    of_hugging_face(tmp_path / "hf")
    assert replaceable(tmp_path / "hf" / "model.safetensors") is not None


def test_a_step_is_not_put_beside_one_of_the_same_number(
    checkpoint: Checkpoint, model: Path, tmp_path: Path
) -> None:
    run = directories.copy_of(checkpoint("steps-prefixed"), tmp_path / "run")
    check_step_is_new(str(run), 4)
    for overwrite in (False, True):
        with pytest.raises(DestinationError, match="has the step 10 already, in ckpt_00000010"):
            ckpt_surgery.convert(model, run, dst_step=10, overwrite=overwrite)
    assert names(run) == ["ckpt_00000003", "ckpt_00000010"]


# --- the whole way ----------------------------------------------------------------------------------------


def test_one_step_is_replaced_and_the_others_stay(
    checkpoint: Checkpoint, model: Path, tmp_path: Path
) -> None:
    run = directories.copy_of(checkpoint("steps"), tmp_path / "run")
    before = directories.state_of(run / "3")
    ckpt_surgery.convert(model, run, dst_step=10, overwrite=True)
    assert directories.state_of(run / "3") == before
    assert {leaf.key.text for leaf in ckpt_surgery.inspect(run, step=10).leaves} == set(ARRAYS)
    (run / "10" / "notes.txt").touch()
    with pytest.raises(DestinationError, match=r"holds 1 file besides its orbax checkpoint \(notes.txt\)"):
        ckpt_surgery.convert(model, run, dst_step=10, overwrite=True)


def test_what_changes_during_the_run_is_not_replaced(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ckpt_surgery.convert(model, out)

    def meddle(plan: object) -> None:
        (out / "notes.txt").write_text("kept")

    with pytest.raises(DestinationError, match="out: changed during this run, so it was not replaced"):
        ckpt_surgery.convert(model, out, overwrite=True, on_plan=meddle)
    assert (out / "notes.txt").read_text() == "kept"
    assert names(tmp_path) == ["model", "out"]
