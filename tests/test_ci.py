"""The action, the hook of pre-commit and the page about them: what they run is run here."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from ckpt_surgery.cli.program import cli
from tests.test_docs import blocks

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = ROOT / "docs" / "ci.md"


Done = subprocess.CompletedProcess[str]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A repository with a recipe and a checkpoint, and the programs that the steps call."""
    (tmp_path / "good.yaml").write_text("version: 1\nrules: [{match: 'a (.*)', to: 'b \\1'}]\n")
    (tmp_path / "bad.yaml").write_text("version: 1\nrules: [{mtach: a}]\n")
    save_file({"a x": np.arange(3, dtype=np.float32)}, tmp_path / "my model.safetensors")
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs / "ckpt-surgery", f'exec "{sys.executable}" -m ckpt_surgery "$@"')
    program(programs / "python3", 'printf "%s\\n" "$@" > installed')
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text of a workflow with the values of its expressions."""
    return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: values[found[1]], text)


def holds(condition: str, values: Mapping[str, str]) -> bool:
    """Whether the condition of a step is true. What it is made of means the same in Python."""
    text = re.sub(r"\b(?:inputs|github)\.\w+", lambda found: repr(values[found[0]]), condition)
    return bool(eval(text.replace("||", " or ").replace("&&", " and ")))


def act(here: Path, ref_type: str = "branch", **given: str) -> tuple[dict[str, int], str]:
    """Run the action's steps up to the first that fails. Gives their exit codes, and what they print."""
    inputs = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | given
    values = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.ref_type": ref_type}
    codes: dict[str, int] = {}
    printed = ""
    for step in ACTION["runs"]["steps"]:
        if holds(step.get("if", "True"), values):
            done = step_of(step, here, values)
            printed += done.stdout
            codes[step["name"]] = done.returncode
            if done.returncode:
                break
    return codes, printed


def step_of(
    step: Mapping[str, Any], here: Path, values: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    assert step["shell"] == "bash"
    environment = os.environ | {
        "PATH": f"{here / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_ACTION_PATH": "/the/action",
        "GITHUB_STEP_SUMMARY": str(here / "summary.md"),
        **{name: expanded(text, values) for name, text in step["env"].items()},
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(shell, cwd=here, env=environment, capture_output=True, text=True, check=False)


NAMES = {"sources": "my model.safetensors\n", "destination": "out dir.safetensors"}


def test_a_pull_request_is_planned(here: Path) -> None:
    codes, printed = act(here, recipe="good.yaml", options="--memory=1GiB\n--full\n", **NAMES)
    assert codes == {"Install": 0, "Lint": 0, "Plan": 0}
    assert "b x" in printed
    assert not (here / "out dir.safetensors").exists()
    assert (here / "summary.md").read_text().startswith("### ckpt-surgery plan: ")
    assert (here / "installed").read_text().split("\n")[-2] == "/the/action[remote]"


def test_a_tag_is_applied(here: Path) -> None:
    codes, _ = act(here, "tag", recipe="good.yaml", package="none", **NAMES)
    assert codes == {"Lint": 0, "Apply": 0}
    assert load_file(here / "out dir.safetensors")["b x"].tolist() == [0, 1, 2]
    assert (here / "summary.md").read_text().startswith("### ckpt-surgery apply: ")


def test_the_mode_decides_where_it_is_given(here: Path) -> None:
    assert "Plan" in act(here, "tag", recipe="good.yaml", mode="plan", **NAMES)[0]
    assert "Apply" in act(here, "branch", recipe="good.yaml", mode="apply", **NAMES)[0]


def test_a_recipe_that_is_wrong_is_annotated(here: Path) -> None:
    codes, printed = act(here, "tag", recipe="bad.yaml", package="none", **NAMES)
    assert codes == {"Lint": 2}
    assert printed.startswith("::error file=bad.yaml,line=2,col=10,endColumn=15,title=CS010::unknown field")


def test_no_input_is_a_part_of_a_script() -> None:
    """A branch or a path may be called `$(…)`: the shell sees inputs as variables only."""
    assert not [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]]


def test_the_page_has_every_input() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(ACTION["inputs"])


def test_the_hook_lints_the_files_it_is_given(here: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["id"], hook["language"], hook["types"]) == ("ckpt-surgery-lint", "python", ["yaml"])
    assert re.search(hook["files"], "a/recipes/b.yaml")
    assert not re.search(hook["files"], "a/b.yaml")
    environment = os.environ | {"PATH": f"{here / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for name, code in (("good.yaml", 0), ("bad.yaml", 2)):
        done = subprocess.run([*hook["entry"].split(), name], cwd=here, env=environment, check=False)
        assert done.returncode == code


def test_the_workflows_of_the_page_are_yaml_and_name_options_that_exist() -> None:
    workflows = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "text"]
    hook, github, gitlab = workflows
    assert hook["repos"][0]["hooks"][0]["id"] == "ckpt-surgery-lint"
    (*_, step) = github["jobs"]["checkpoint"]["steps"]
    assert set(step["with"]) <= set(ACTION["inputs"])
    lines = [line for job in gitlab.values() for line in job["script"] if line.startswith("ckpt-surgery ")]
    assert len(lines) == 3
    for line in lines:
        command = cli.get_command(None, line.split()[1])  # type: ignore[arg-type]
        assert command is not None
        known = {option for param in command.params for option in param.opts}
        assert set(re.findall(r"--[\w-]+", line)) <= known
