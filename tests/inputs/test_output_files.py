"""Documents are written over nothing that a command reads or writes, whole or not at all."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import StorageError, UsageError
from ckpt_surgery.inputs import output_files
from ckpt_surgery.inputs.output_files import CheckpointPath, check_documents, write_document
from tests.formats.tensorflow.bundles import Piece, save_pieces
from tests.support.command_line import run
from tests.support.directories import names, state_of
from tests.support.failing import raising
from tests.support.recipes import write_recipe

REFUSED = "a document cannot be written over or into"


# --- where ------------------------------------------------------------------------------------------------


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file can be called so"):
        check_documents([f"{tmp_path}/a\0b"], [])
    with pytest.raises(StorageError, match="name too long"):
        check_documents([tmp_path / ("x" * 300)], [])


def test_a_file_without_write_permission_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").touch()
    monkeypatch.setattr(  # root may write everywhere
        os, "access", lambda path, mode: Path(path).name != "x.json"
    )
    with pytest.raises(StorageError, match=r"x\.json: may not be written"):
        check_documents([tmp_path / "x.json"], [])


def of_shards(directory: Path) -> Path:
    """An index whose shards lie elsewhere, as in a cache of Hugging Face."""
    (directory / "blobs").mkdir(parents=True)
    snapshot = directory / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for number, (key, name) in enumerate(shards.items()):
        save_file({key: np.ones(3)}, directory / "blobs" / str(number))
        (snapshot / name).symlink_to(f"../../blobs/{number}")
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return index


def test_a_checkpoint_that_only_its_format_opens(tmp_path: Path) -> None:
    """It is looked at as the command does: here several formats claim the directory."""
    save_file({"a": np.ones(3)}, tmp_path / "blob")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.zarr").touch()
    (tmp_path / "src" / "model.safetensors").symlink_to("model.bin")
    os.link(tmp_path / "blob", tmp_path / "src" / "model.bin")
    (tmp_path / "src" / ".zgroup").write_text('{"zarr_format": 2}')
    source = str(tmp_path / "src")
    check_documents([tmp_path / "blob"], [CheckpointPath(source)])  # nobody can tell
    with pytest.raises(UsageError, match=REFUSED):
        check_documents([tmp_path / "blob"], [CheckpointPath(source, "safetensors")])


# --- the commands -----------------------------------------------------------------------------------------

HOOKS = "import numpy as np\n\n\ndef double(x: np.ndarray) -> np.ndarray:\n    return x * 2\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with sources, recipes, a saved plan and an empty destination. Nothing may change it."""
    tmp_path = tmp_path_factory.mktemp("place")
    (tmp_path / "made").mkdir()
    save_pieces(tmp_path / "m", [Piece("w", np.ones(3))])
    (tmp_path / "m.meta").touch()
    of_shards(tmp_path / "hf")
    write_recipe(tmp_path, "version: 1\n").rename(tmp_path / "copy.yaml")
    (tmp_path / "hooks.py").write_text(HOOKS)
    write_recipe(tmp_path, "version: 1\nhooks: hooks.py\n").rename(tmp_path / "hooked.yaml")
    (tmp_path / "keys.txt").write_text("w float64[3]\n")
    ckpt_surgery.convert(tmp_path / "hf" / "snapshots" / "main", tmp_path / "orbax")
    out = {"dst": tmp_path / "planned.npz", "out": tmp_path / "plan.json"}
    ckpt_surgery.plan(tmp_path / "copy.yaml", tmp_path / "m", **out)
    os.link(tmp_path / "orbax" / "_METADATA", tmp_path / "hard.json")
    (tmp_path / "soft.json").symlink_to("orbax/_METADATA")
    (tmp_path / "way").symlink_to("orbax")
    return tmp_path


SHARD = "hf/snapshots/main/model-00002-of-00002.safetensors"
OVER = [
    ("plan copy.yaml orbax {}", "orbax/_METADATA"),
    ("plan copy.yaml orbax {}", "orbax/new.json"),
    ("plan copy.yaml orbax {}", "hard.json"),
    ("plan copy.yaml orbax {}", "soft.json"),
    ("plan copy.yaml orbax {}", "copy.yaml"),
    ("plan copy.yaml m {}", "m.index"),
    ("plan copy.yaml m {}", "m.data-00000-of-00001"),
    ("plan copy.yaml m {}", "config.json"),
    ("plan copy.yaml m {}", "m.ckpt_surgery.json"),
    ("plan copy.yaml m --target keys.txt {}", "keys.txt"),
    ("plan copy.yaml m out.npz {}", "out.npz"),
    ("plan copy.yaml m made --overwrite {}", "made/x.json"),
    ("plan hooked.yaml m --allow-hooks {}", "hooks.py"),
    ("plan copy.yaml hf/snapshots/main {}", "hf/blobs/0"),
    ("plan copy.yaml hf/snapshots/main/model.safetensors.index.json {}", "hf/blobs/1"),
    ("plan copy.yaml hf/snapshots/main/model.safetensors.index.json {}", SHARD),
]
APPLIED = [
    ("apply copy.yaml m out.npz {}", "m.index"),
    ("apply copy.yaml orbax made --overwrite {}", "made/x.json"),
    ("apply copy.yaml orbax out {}", "out.ckpt_surgery.json"),
    ("apply hooked.yaml orbax out --allow-hooks {}", "hooks.py"),
    ("apply plan.json {}", "m.index"),
    ("apply plan.json {}", "planned.npz"),
    ("apply plan.json {}", "plan.json"),
    ("apply plan.json out.npz {}", "out.npz"),
    ("convert orbax out {}", "orbax/_METADATA"),
    ("plan copy.yaml m --out new.json {}", "new.json"),  # over the other document
    ("inspect orbax {}", "orbax/_METADATA"),
    ("inspect orbax {}", "way/new.json"),
    ("inspect orbax/ {}", "orbax.ckpt_surgery.json"),
    ("inspect m {}", "orbax/../m.index"),
    ("diff m orbax {}", "hard.json"),
    ("diff m orbax --values {}", "orbax/d/new"),
]


@pytest.mark.parametrize(
    ("command", "document"),
    [
        *(
            (command.format(f"{option} {{}}"), over)
            for command, over in OVER
            for option in ("--json", "--out")
        ),
        *((command.format("--json {}"), over) for command, over in APPLIED),
    ],
)
def test_commands_write_documents_over_nothing(
    command: str, document: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = state_of(place)
    for path in (document, place / document):
        done = run(*command.format(path).split())
        assert done.exit_code == 2, done.output
        assert done.stdout == ""
        assert REFUSED in done.stderr or "is a directory" in done.stderr
        assert state_of(place) == before


def test_neither_the_packaged_recipe_nor_the_given_config_is_replaced(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    recipes = tmp_path_factory.mktemp("recipes")
    (recipes / "some.yaml").write_text("version: 1\n")
    monkeypatch.setattr(output_files, "recipe_path", lambda name: str(recipes / "some.yaml"))
    with pytest.raises(UsageError, match=REFUSED):
        ckpt_surgery.plan(place / "copy.yaml", place / "m", out=recipes / "some.yaml")
    config = {"config": recipes / "c.json", "out": recipes / "c.json"}
    config["config"].write_text("{}")
    with pytest.raises(UsageError, match=REFUSED):
        ckpt_surgery.plan(place / "copy.yaml", place / "m", **config, overwrite=True)


# --- how --------------------------------------------------------------------------------------------------


def test_a_document_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.link(path, tmp_path / "linked")
    write_document(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "linked").read_bytes() == b"old"
    write_document(str(tmp_path / "new.json"), b"new")
    (tmp_path / "usual").touch()
    assert (tmp_path / "new.json").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert names(tmp_path) == ["linked", "new.json", "usual", "x.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("old", "none"):
        (tmp_path / name).symlink_to(f"there/{name}.json")
    (tmp_path / "there" / "old.json").write_bytes(b"old")
    for name in ("old", "none"):
        write_document(tmp_path / name, b"new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / f"{name}.json").read_bytes() == b"new"
    assert names(tmp_path / "there") == ["none.json", "old.json"]


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("failing", "failure"),
    [("fsync", FULL), ("replace", FULL), ("chmod", FULL), ("fsync", KeyboardInterrupt())],
)
def test_a_document_that_fails_leaves_the_old_one(
    failing: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.json").write_bytes(b"old")
    monkeypatch.setattr(os, failing, raising(lambda: failure))
    with pytest.raises((StorageError, KeyboardInterrupt)) as caught:
        write_document(tmp_path / "x.json", b"new")
    if failure is FULL:
        assert "x.json: No space left on device\n  Free some space" in str(caught.value)
    assert (tmp_path / "x.json").read_bytes() == b"old"
    assert names(tmp_path) == ["x.json"]
