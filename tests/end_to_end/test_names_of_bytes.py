"""Names of files that are not UTF-8 work, or are refused before anything is written.

TensorStore opens no such path, so formats that it reads and writes refuse them.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from ckpt_surgery.core.text import shown
from tests.support.command_line import run
from tests.support.models import save_model

NAME = os.fsdecode(b"caf\xe9") if sys.platform == "linux" else "café"
"""On macOS there are no other names than those in UTF-8."""
IN_FILES = (".safetensors", ".npz", ".msgpack")
IN_DIRECTORIES = ("", ".zarr")

HINT = "  Choose another name, or rename the directory that has such a name.\n"


@pytest.mark.parametrize("suffix", IN_FILES)
@pytest.mark.parametrize("name", [NAME, f"{NAME}/x"], ids=["own", "parent"])
def test_formats_of_one_file_take_any_name(name: str, suffix: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    there = tmp_path / f"{name}{suffix}"
    assert run("convert", model, there).exit_code == 0
    assert run("diff", model, there, "--values", "--exit-code").exit_code == 0
    assert run("convert", there, tmp_path / "back").exit_code == 0
    listed = json.loads(run("inspect", there, "--json", "-").stdout)
    assert {leaf["key"] for leaf in listed["leaves"]} == {"a/kernel", "a/bias", "b"}


@pytest.mark.skipif(sys.platform != "linux", reason="there are no such names")
@pytest.mark.parametrize("suffix", IN_DIRECTORIES)
@pytest.mark.parametrize("name", [NAME, f"{NAME}/x"], ids=["own", "parent"])
def test_destinations_of_tensorstore_refuse_them(name: str, suffix: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    there, plain = tmp_path / f"{name}{suffix}-dst", tmp_path / f"plain{suffix}"
    before = sorted(tmp_path.rglob("*"))
    format = "zarr" if suffix else "orbax"
    told = f"TensorStore opens only names in UTF-8 without a backslash\n{HINT}"
    for command in (["convert", model, there], ["convert", model, there, "--dry-run"]):
        done = run(*command, "--format", format)
        assert (done.exit_code, done.stderr) == (2, f"Error: {shown(str(there))}: {told}")
    assert sorted(tmp_path.rglob("*")) == before
    assert run("convert", model, plain).exit_code == 0
    plain.rename(there)
    assert run("convert", there, tmp_path / "x.npz").exit_code == 0  # sources may have any name
    assert run("diff", tmp_path / "x.npz", model, "--values", "--exit-code").exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="there are no such names")
def test_items_and_leaves_too(model: Path, tmp_path: Path) -> None:
    done = run("convert", model, tmp_path / "x", "--dst-item", NAME)
    assert (done.exit_code, "opens only names in UTF-8" in done.stderr) == (2, True)
    (tmp_path / "src").mkdir()
    np.save(tmp_path / "src" / f"{NAME}.npy", np.ones(3))
    done = run("convert", tmp_path / "src", tmp_path / "x.npz")
    assert (done.exit_code, done.stderr) == (
        1,
        f"Error: {tmp_path}/src/caf\\udce9.npy has a name that is not valid UTF-8\n  Rename it.\n",
    )
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "x.npz").exists()


def test_recipes_documents_and_plans(tmp_path: Path) -> None:
    model = save_model(tmp_path / NAME)
    recipe, plan, document = (tmp_path / f"{NAME}{suffix}" for suffix in (".yaml", "-plan.json", ".json"))
    recipe.write_text("version: 1\n")
    assert run("lint", recipe).exit_code == 0
    assert run("plan", recipe, model, "--out", plan, "--json", document).exit_code == 0
    there = tmp_path / "x.safetensors"
    assert run("apply", recipe, model, there, "--json", document).exit_code == 0
    assert os.fsdecode(json.loads(document.read_text())["sources"]["source"]["path"]) == str(model)
    with safe_open(there, "np") as file:
        (name,) = json.loads(file.metadata()["ckpt_surgery"])["recipes"]
    name.encode()
    assert run("apply", plan, tmp_path / "y").exit_code == 0
