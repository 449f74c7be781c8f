"""The scripts of docs/machines.md do what the page says, as far as one machine goes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ckpt_surgery
from tests.support.checkpoints import save_pytree
from tests.support.command_line import run
from tests.support.recipes import write_recipe

PAGE = (Path(__file__).parent.parent / "docs/machines.md").read_text()
SHARDS = 64


def block(language: str, begins: str) -> str:
    """The block of this language that begins so."""
    found = [text for text in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S) if begins in text]
    assert len(found) == 1, found
    return str(found[0])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a checkpoint, a recipe, and the program on the path."""
    save_pytree(tmp_path / "old", {f"layer_{n}": np.full((20, 10), n, np.float32) for n in range(8)})
    write_recipe(tmp_path, "version: 1\nrules:\n  - {match: layer_(.*), to: 'blocks/\\1', value: x + 1}\n")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ckpt-surgery"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ckpt_surgery "$@"\n')
    program.chmod(0o755)
    return tmp_path


def shell(script: str, here: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the page."""
    path = os.pathsep.join([str(here / "bin"), os.environ["PATH"]])
    package = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PATH": path, "PYTHONPATH": package, **variables}
    return subprocess.run(
        ["bash", "-ec", script], cwd=here, env=environment, capture_output=True, text=True, check=False
    )


def check(here: Path, result: str = "new") -> None:
    ckpt_surgery.apply(here / "recipe.yaml", here / "old", dst=here / "alone")
    assert not ckpt_surgery.diff(here / "alone", here / result, values=True).different
    assert not [name for name in os.listdir(here) if "ckpt-surgery" in name]


@pytest.mark.slow("starts clusters of processes")
def test_the_commands(here: Path) -> None:
    done = shell(block("text", "--shard 0/3"), here)
    assert done.returncode == 0, done.stderr
    check(here)


@pytest.mark.slow("starts clusters of processes")
def test_the_job_array_of_slurm(here: Path) -> None:
    script = block("bash", "#SBATCH")
    count = int(re.search(r"--array=0-(\d+)", script)[1]) + 1  # type: ignore[index]
    assert count == SHARDS
    first, _, last = block("text", "sbatch").strip().split("\n")
    assert shell(first, here).returncode == 0
    commit = re.search(r'--wrap "(.*)"', last)
    assert commit is not None
    given = {"SLURM_ARRAY_TASK_COUNT": "3", "SLURM_CPUS_PER_TASK": "1"}
    for number in range(2):
        done = shell(script, here, SLURM_ARRAY_TASK_ID=str(number), **given)
        assert done.returncode == 0, done.stderr
    early = shell(commit[1], here)
    assert (early.returncode, "2/3" in early.stderr) == (1, True)
    assert shell(script, here, SLURM_ARRAY_TASK_ID="2", **given).returncode == 0
    assert shell(commit[1], here).returncode == 0
    check(here)


@pytest.mark.slow("starts clusters of processes")
def test_the_job_of_kubernetes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = yaml.safe_load(block("yaml", "kind: Job"))
    spec: dict[str, Any] = job["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", SHARDS)
    (container,) = spec["template"]["spec"]["containers"]
    ckpt_surgery.plan(here / "recipe.yaml", here / "old", dst=here / "new", out=here / "plan.json")
    monkeypatch.chdir(here)
    for number in range(SHARDS):
        arguments = [one.replace("$(JOB_COMPLETION_INDEX)", str(number)) for one in container["args"]]
        done = run(*arguments)
        assert done.exit_code == 0, done.output
    assert container["command"] == ["ckpt-surgery"]
    assert run("commit", "new").exit_code == 0
    check(here)


@pytest.mark.slow("starts clusters of processes")
def test_the_examples_of_dask(here: Path) -> None:
    done = shell(block("bash", "--engine dask"), here)
    assert done.returncode == 0, done.stderr
    (here / "script.py").write_text(block("python", "engine="))
    done = shell(f"{sys.executable} script.py", here)
    assert done.returncode == 0, done.stderr
    assert not ckpt_surgery.diff(here / "new", here / "new.zarr", values=True).different
    shutil.rmtree(here / "new.zarr")
    check(here)
