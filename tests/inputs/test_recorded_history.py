"""How a checkpoint was made, as `inspect` tells it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.version import VERSION
from tests.support.command_line import run

FORMATS = {"orbax": "new", "safetensors": "new.safetensors", "npz": "new.npz", "zarr3": "new.zarr"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.ones(6, np.float32)}, "old.safetensors")
    Path("rename.yaml").write_text("version: 1\nparams: {to: b}\nrules: [{match: a, to: '${to}'}]\n")
    Path("half.yaml").write_text("version: 1\nrules: [{match: '.*', value: x / 2}]\n")
    return tmp_path


@pytest.mark.parametrize("name", FORMATS.values())
def test_a_checkpoint_knows_how_it_was_made(here: Path, name: str) -> None:
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst=name, set={"to": "c"})
    history = ckpt_surgery.inspect(name).history
    assert history is not None
    assert [(one.name, dict(one.params)) for one in history.recipes] == [("rename.yaml", {"to": "c"})]
    assert [(one.path, one.format) for one in history.sources] == [("old.safetensors", "safetensors")]
    assert history.version == VERSION
    assert history.written is not None
    assert abs((history.written - datetime.now(UTC)).total_seconds()) < 600


def test_several_conversions_are_told_in_their_order(here: Path) -> None:
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst="one")
    ckpt_surgery.apply("half.yaml", "one", dst="two")
    history = ckpt_surgery.inspect("two").history
    assert history is not None
    assert [one.name for one in history.recipes] == ["rename.yaml", "half.yaml"]
    assert [one.path for one in history.sources] == ["one"]
    text = run("inspect", "two").stdout
    assert "made from one (orbax) by half.yaml" in text
    assert "before that by rename.yaml with to=b" in text
    assert history.recipes[1].sha256[:8] not in text
    assert "metadata" not in text


def test_json_has_the_history(here: Path) -> None:
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst="one")
    os.utime("one/ckpt_surgery.json", (1_000_000_000, 1_000_000_000))
    document = json.loads(run("inspect", "one", "--json").stdout)
    assert document["history"]["written"] == "2001-09-09T01:46:40+00:00"
    assert document["history"]["sources"][0]["path"] == "old.safetensors"
    assert "2001-09-09 01:46 UTC" in run("inspect", "one").stdout
    assert document["metadata"]["ckpt_surgery"]["recipes"]


def test_users_metadata_stay_as_they_are(here: Path) -> None:
    save_file({"a": np.ones(6, np.float32)}, "old.safetensors", metadata={"epoch": "3"})
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst="one")
    text = run("inspect", "one").stdout
    assert 'metadata {"epoch": "3"}' in text
    assert "sha256" not in text


def test_what_others_wrote_has_no_history(here: Path) -> None:
    assert ckpt_surgery.inspect("old.safetensors").history is None
    assert ckpt_surgery.inspect({"a": np.ones(3)}).history is None
    assert "history" not in run("inspect", "old.safetensors").stdout
    assert "history" not in json.loads(run("inspect", "old.safetensors", "--json").stdout)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"recipe": 3, "sources": {"a": 1}, "version": []}',
        '{"sources": [1, {"path": 3, "step": "x"}], "recipe": {"path": null}, "params": []}',
    ],
)
def test_a_record_that_is_malformed_does_not_get_in_the_way(here: Path, text: str) -> None:
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst="one")
    Path("one/ckpt_surgery.json").write_text(text)
    assert run("inspect", "one").exit_code == 0
    assert run("inspect", "one", "--json").exit_code == 0


def test_names_cannot_move_the_cursor(here: Path) -> None:
    save_file({"a": np.ones(6, np.float32)}, "o\x1b[31m.safetensors")
    ckpt_surgery.apply("rename.yaml", "o\x1b[31m.safetensors", dst="one")
    text = run("inspect", "one").stdout
    assert "\x1b" not in text
    assert r"o\x1b[31m.safetensors" in text
