"""Config and tokenizer files come along into directories of safetensors, and only what was copied counts."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, UsageError
from ckpt_surgery.core.protocols import Companion
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.runs import run as runs
from ckpt_surgery.runs import sidecars
from ckpt_surgery.verification.record import SIDECAR_ROOM, load_record
from tests.support.command_line import run
from tests.support.key_value import key_value

FILES = {
    "config.json": b'{"model_type": "t5"}',
    "generation_config.json": b"{}",
    "merges.txt": b"a b\n",
    "spiece.model": bytes(range(256)),
    "tokenizer.json": b"{}",
}
OTHERS = ("README.md", "modeling_x.py", "special.json", "optimizer.state", "LICENSE")
Made = Callable[..., Path]


def names(directory: Path) -> set[str]:
    """Relative paths of all files."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A directory with weights, and with other files."""

    def make(name: str = "src", files: dict[str, bytes] = FILES) -> Path:
        place = tmp_path / name
        place.mkdir()
        save_file({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, place / "model.safetensors")
        for file, content in files.items():
            (place / file).write_bytes(content)
        return place

    return make


def copied(src: object, dst: object, **options: Any) -> ckpt_surgery.Result:
    return ckpt_surgery.apply(None, src, dst=dst, **{"format": "safetensors"} | options)


# --- what comes along -------------------------------------------------------------------------------------


def test_files_of_known_names_come_along_and_no_others(made: Made, tmp_path: Path) -> None:
    src = made(files=FILES | dict.fromkeys(OTHERS, b"x"))
    (src / "tokenizer_dir.json").mkdir()
    done = copied(src, tmp_path / "dst")
    assert done.companions == tuple(
        Companion(name, str(src / name), len(content)) for name, content in FILES.items()
    )
    assert {n: (tmp_path / "dst" / n).read_bytes() for n in FILES} == FILES
    assert names(tmp_path / "dst") == {*FILES, "model.safetensors"}


def test_a_file_of_weights_has_the_files_beside_it(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(made() / "model.safetensors", tmp_path / "dst")
    assert names(tmp_path / "dst") == {*FILES, "model.safetensors"}
    monkeypatch.chdir(tmp_path / "src")  # a path without a directory
    copied(Path("model.safetensors"), tmp_path / "two")
    assert names(tmp_path / "two") == {*FILES, "model.safetensors"}


@pytest.mark.parametrize(
    ("dst", "options"),
    [
        ("dst", {"copy_config": False}),
        ("dst.safetensors", {}),  # a file
        ("dst", {"format": "orbax"}),
        ("dst", {"format": "flax"}),
    ],
)
def test_nothing_comes_along_elsewhere(dst: str, options: dict[str, Any], made: Made, tmp_path: Path) -> None:
    assert copied({"w": np.ones(3, np.float32)}, tmp_path / "tree").companions == ()
    assert copied(made(), tmp_path / dst, **options).companions == ()
    place = tmp_path / dst
    assert not place.is_dir() or names(place).isdisjoint(FILES)


def test_without_a_config_files_come_along_only_where_they_are_wanted(made: Made, tmp_path: Path) -> None:
    src = made(files={"vocab.txt": b"a"})
    assert copied(src, tmp_path / "one").companions == ()
    done = copied(src, tmp_path / "two", copy_config=True)
    assert [one.name for one in done.companions] == ["vocab.txt"]


def test_the_first_source_has_the_files(made: Made, tmp_path: Path) -> None:
    base, other = made("base"), made("other", {"config.json": b"{}", "vocab.txt": b"x"})
    rules = [{"match": "w", "value": "x + other['w']"}]
    recipe = {"version": 1, "sources": ["base", "other"], "rules": rules}
    done = ckpt_surgery.apply(recipe, base, other, dst=tmp_path / "dst", format="safetensors")
    assert {os.path.dirname(one.source) for one in done.companions} == {str(base)}


def test_a_target_with_a_config_has_the_files(made: Made, tmp_path: Path) -> None:
    """The result has its structure."""
    src, target = made(), made("target", {"config.json": b'{"of": "target"}'})
    done = copied(src, tmp_path / "dst", target=target)
    assert done.companions == (Companion("config.json", str(target / "config.json"), 16),)
    (target / "config.json").unlink()
    done = copied(src, tmp_path / "two", target=target)
    assert [one.name for one in done.companions] == list(FILES)


# --- what cannot come along -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        (FILES, {"format": "orbax"}, "config files are copied only into directories of safetensors"),
        ({}, {"format": "safetensors"}, "no config or tokenizer files lie beside the source"),
    ],
)
def test_what_is_wanted_and_impossible_is_refused(
    files: dict[str, bytes], options: dict[str, Any], told: str, made: Made, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=told):
        copied(made(files=files), tmp_path / "dst", copy_config=True, **options)
    assert names(tmp_path) == {f"src/{name}" for name in (*files, "model.safetensors")}


def test_a_link_out_of_the_source_is_refused_before_anything_is_written(made: Made, tmp_path: Path) -> None:
    src = made()
    (tmp_path / "secret").write_text("s")
    (src / "tokenizer_config.json").symlink_to("../secret")
    with pytest.raises(SourceError, match="outside the checkpoint"):
        copied(src, tmp_path / "dst")
    assert not (tmp_path / "dst").exists()
    assert copied(src, tmp_path / "dst", copy_config=False).companions == ()


# --- publication ------------------------------------------------------------------------------------------


def test_nothing_is_there_where_copying_fails(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are published with the weights, or not at all; and what another attempt copied is gone."""
    src = made()

    def fail(files: Any, directory: str) -> Any:
        sidecars.copy_sidecars(files, directory)
        raise StorageError("the disk is full")

    monkeypatch.setattr(runs, "copy_sidecars", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        copied(src, tmp_path / "dst")
    assert not (tmp_path / "dst").exists()
    monkeypatch.undo()
    done = copied(src, tmp_path / "dst", resume=True, copy_config=False)
    assert done.companions == ()
    assert names(tmp_path / "dst") == {"model.safetensors"}


def test_overwrite_replaces_what_came_along_and_nothing_else(made: Made, tmp_path: Path) -> None:
    src, dst = made(), tmp_path / "dst"
    with pytest.raises(DestinationError, match="holds 5 files besides its safetensors checkpoint"):
        copied(made("other"), src, overwrite=True)  # nobody copied these
    copied(src, dst)
    (dst / "config.json").write_text("{}")  # edited
    copied(src, dst, overwrite=True)
    assert (dst / "config.json").read_bytes() == FILES["config.json"]
    (dst / "notes.txt").write_text("mine")
    with pytest.raises(DestinationError, match=r"holds 1 file besides .*notes\.txt"):
        copied(src, dst, overwrite=True)
    (dst / "notes.txt").unlink()
    copied(src, dst, overwrite=True, copy_config=False)
    assert names(dst) == {"model.safetensors"}


@pytest.mark.parametrize("shard_size", [None, 1])
def test_the_record_lies_in_the_checkpoint(shard_size: int | None, made: Made, tmp_path: Path) -> None:
    src = made()
    save_file({name: np.ones(3, np.float32) for name in "ab"}, src / "model.safetensors")
    copied(src, tmp_path / "dst", shard_size=shard_size)
    record = load_record(open_source(str(tmp_path / "dst")))
    assert record is not None
    assert [(one.name, one.size) for one in record.companions] == [(n, len(c)) for n, c in FILES.items()]
    assert not (tmp_path / "dst.ckpt_surgery.json").exists()


def test_a_record_of_very_many_files_lies_beside_the_checkpoint(made: Made, tmp_path: Path) -> None:
    many = {f"tokenizer_{i}.json": b"{}" for i in range(SIDECAR_ROOM // 32)}
    src, dst = made(files=FILES | many), tmp_path / "dst"
    copied(src, dst)
    assert (tmp_path / "dst.ckpt_surgery.json").exists()
    copied(src, dst, overwrite=True)
    assert names(dst) == {*FILES, *many, "model.safetensors"}
    assert ckpt_surgery.verify(dst).notices == ()


def test_verify_tells_of_files_that_were_edited_without_finding_fault(made: Made, tmp_path: Path) -> None:
    """Where a recipe changes the shape of the model, its config has to be edited."""
    dst = tmp_path / "dst"
    copied(made(), dst)
    for path in (dst, dst / "model.safetensors"):
        found = ckpt_surgery.verify(path)
        assert (found.flaws, found.notices) == ((), ())
    (dst / "config.json").write_text("{}")
    (dst / "merges.txt").unlink()
    found = ckpt_surgery.verify(dst)
    assert found.flaws == ()
    assert found.notices == ("edited or removed since the checkpoint was written: config.json, merges.txt",)


# --- the command line -------------------------------------------------------------------------------------


def test_the_summary_and_the_documents_have_the_files(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(files={"config.json": b"{}", "vocab.txt": b"a"})
    monkeypatch.chdir(tmp_path)
    done = run("convert", "src", "d", "--format=safetensors", "--json", "d.json", "--report", "d.html")
    assert "copied beside the weights: config.json, vocab.txt (from src)\n" in done.stdout
    assert json.loads(Path("d.json").read_text())["companions"] == [
        {"file": "config.json", "source": "src/config.json", "size": 2},
        {"file": "vocab.txt", "source": "src/vocab.txt", "size": 1},
    ]
    assert '>vocab.txt</td><td data-label="copy of">src/vocab.txt</td>' in Path("d.html").read_text()
    bare = run("convert", "src", "e", "--format=safetensors", "--no-copy-config")
    assert "copied beside the weights" not in bare.stdout
    assert names(tmp_path / "e") == {"model.safetensors"}
    refused = run("convert", "src", "f", "--copy-config")
    assert refused.exit_code == 2
    assert "`--copy-config`" in refused.stderr


def test_saved_plans_and_shards_bring_the_files_at_the_end(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text("version: 1\nrules: []\n")
    assert run("plan", "r.yaml", "src", "--format=safetensors", "--out", "p.json").exit_code == 0
    assert run("apply", "p.json", "one").exit_code == 0
    assert names(tmp_path / "one") == {*FILES, "model.safetensors"}
    assert run("apply", "p.json", "two", "--shard", "0/1").exit_code == 0
    assert run("commit", "two").exit_code == 0
    assert names(tmp_path / "two") == {*FILES, "model.safetensors"}
    assert run("apply", "p.json", "three", "--shard", "0/1").exit_code == 0
    assert run("commit", "three", "--no-copy-config").exit_code == 0
    assert names(tmp_path / "three") == {"model.safetensors"}
    refused = run("apply", "p.json", "four", "--shard", "0/1", "--no-copy-config")
    assert "--copy-config does not go with --shard" in refused.stderr


# --- buckets ----------------------------------------------------------------------------------------------


def test_files_come_along_from_and_into_buckets(made: Made, tmp_path: Path) -> None:
    src = made()
    with key_value(tmp_path / "bucket") as root:
        for name, shard_size in (("one", None), ("two", 1)):
            first = copied(src, f"{root}/{name}", shard_size=shard_size)
            assert [one.name for one in first.companions] == list(FILES)
            copied(src, f"{root}/{name}", overwrite=True)
            assert ckpt_surgery.verify(f"{root}/{name}").notices == ()
        back = copied(f"{root}/one", tmp_path / "back")
        assert back.companions[0] == Companion("config.json", f"{root}/one/config.json", 20)
        assert copied(src, f"{root}/one", overwrite=True, copy_config=False).companions == ()
        copied(f"{root}/one", tmp_path / "bare")
    assert {n: (tmp_path / "back" / n).read_bytes() for n in FILES} == FILES
    assert names(tmp_path / "bare") == {"config.json", "model.safetensors"}  # as recorded, without the rest
