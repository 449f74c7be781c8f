"""Files that commands write besides checkpoints: which names they may have, and which files they replace."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DestinationError
from tests.support.command_line import run

EDITED = "version: 1\n# edited by hand\nrules: [{match: a, to: b}]\n"
MERGE = "merge_method: linear\nmodels:\n- {model: model, parameters: {weight: 1}}\ndtype: float32\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text("version: 1\nrules: [{match: a, to: b}]\n")
    Path("model").mkdir()
    for file, key in (("old.safetensors", "a"), ("new.safetensors", "b"), ("model/model.safetensors", "a")):
        save_file({key: np.arange(6, dtype=np.float32)}, file)
    Path("model/config.json").write_text("{}")
    Path("merge.yaml").write_text(MERGE)
    return tmp_path


DRAFTS = [
    ("infer old.safetensors new.safetensors --out {}", "draft.yaml"),
    ("invert r.yaml old.safetensors --out {}", "back.yaml"),
    ("merge merge.yaml merged --dry-run --recipe {}", "recipe.yaml"),
]
PRODUCTS = [
    ("plan r.yaml old.safetensors --out {}", "plan.json"),
    ("plan r.yaml old.safetensors --report {}", "plan.html"),
    ("apply r.yaml old.safetensors x.npz --dry-run --report {}", "page.html"),
    ("convert old.safetensors x.npz --dry-run --report {}", "page.html"),
    ("merge merge.yaml merged --dry-run --report {}", "page.html"),
]


@pytest.mark.parametrize(("command", "file"), [*DRAFTS, *PRODUCTS])
def test_a_file_that_a_person_may_have_edited_is_kept_without_overwrite(
    command: str, file: str, place: Path
) -> None:
    Path(file).write_text(EDITED)
    refused = run(*command.format(file).split())
    assert refused.exit_code == 4
    assert file in refused.stderr
    assert "--overwrite" in refused.stderr
    assert "True" not in refused.stderr
    assert Path(file).read_text() == EDITED
    assert run(*command.format(file).split(), "--overwrite").exit_code == 0
    assert Path(file).read_text() != EDITED


@pytest.mark.parametrize(("command", "file"), PRODUCTS)
def test_what_is_made_again_replaces_what_was_made_before(command: str, file: str, place: Path) -> None:
    """As CI jobs do."""
    for _ in range(2):
        assert run(*command.format(file).split()).exit_code == 0


@pytest.mark.parametrize(("command", "file"), [*DRAFTS, *PRODUCTS])
def test_an_empty_file_has_nothing_to_lose(command: str, file: str, place: Path) -> None:
    Path(file).touch()
    assert run(*command.format(file).split()).exit_code == 0
    assert Path(file).stat().st_size > 0


def test_functions_refuse_the_same(place: Path) -> None:
    out = Path("draft.yaml")
    out.write_text(EDITED)
    for draft in (
        lambda **options: ckpt_surgery.infer("old.safetensors", "new.safetensors", out=out, **options),
        lambda **options: ckpt_surgery.invert("r.yaml", "old.safetensors", out=out, **options),
        lambda **options: ckpt_surgery.plan("r.yaml", "old.safetensors", out=out, **options),
    ):
        with pytest.raises(DestinationError) as caught:
            draft()
        assert "`overwrite=True`" in (caught.value.problems[0].hint or "")
        assert out.read_text() == EDITED
        draft(overwrite=True)
        assert out.read_text() != EDITED
        out.write_text(EDITED)


def test_links_and_pipes(place: Path) -> None:
    """A file behind a link is as good as one that is named; a device keeps nothing."""
    Path("edited.yaml").write_text(EDITED)
    Path("draft.yaml").symlink_to("edited.yaml")
    arguments = ("infer", "old.safetensors", "new.safetensors", "--out")
    assert run(*arguments, "draft.yaml").exit_code == 4
    assert Path("edited.yaml").read_text() == EDITED
    assert run(*arguments, os.devnull).exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        "plan r.yaml old.safetensors --json {}",
        "apply r.yaml old.safetensors x.npz --json {}",
        "convert old.safetensors x.npz --json {}",
        "merge merge.yaml merged --json {}",
        "explain r.yaml old.safetensors a --json {}",
        "infer old.safetensors new.safetensors --json {}",
        "invert r.yaml old.safetensors --json {}",
        "inspect old.safetensors --json {}",
        "diff old.safetensors new.safetensors --json {}",
        "verify old.safetensors --json {}",
        "commit x --json {}",
    ],
)
@pytest.mark.parametrize("name", ["new", "notes.yaml", "x.safetensors", "new.json/"])
def test_a_json_document_is_called_so(command: str, name: str, place: Path) -> None:
    before = sorted(os.listdir())
    refused = run(*command.format(name).split())
    assert refused.exit_code == 2
    assert name in refused.stderr
    assert sorted(os.listdir()) == before


def test_json_goes_to_stdout_and_to_devices(place: Path) -> None:
    assert json.loads(run("inspect", "old.safetensors", "--json").stdout)["leaves"]
    assert run("inspect", "old.safetensors", "--json", os.devnull).exit_code == 0
    for _ in range(2):  # documents are made again and again
        assert run("inspect", "old.safetensors", "--json", "x.json").exit_code == 0
    assert json.loads(Path("x.json").read_text())["leaves"]
