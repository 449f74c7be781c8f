"""The action, the hook of pre-commit and the page about them: what they run is run here."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
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
    text = text.replace("always()", "True")
    return bool(eval(text.replace("||", " or ").replace("&&", " and ")))


def act(
    here: Path, ref_type: str = "branch", event: str = "push", **given: str
) -> tuple[dict[str, int], str]:
    """Run the action's steps; after the first that fails, those that always run.

    Gives their exit codes, and what they print.
    """
    inputs = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | given
    values = {f"inputs.{name}": value for name, value in inputs.items()} | {
        "github.ref_type": ref_type,
        "github.event_name": event,
        "github.event.number": "7",
        "github.repository": "us/models",
        "github.api_url": "https://api.example",
        "github.token": "secret",
        "runner.temp": str(here),
    }
    codes: dict[str, int] = {}
    printed = ""
    for step in ACTION["runs"]["steps"]:
        condition = step.get("if", "True")
        if holds(condition, values) and ("always()" in condition or not any(codes.values())):
            done = step_of(step, here, values)
            printed += done.stdout
            codes[step["name"]] = done.returncode
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


GH = """
import json, pathlib, re, sys
file = pathlib.Path(__file__).with_name("comments.json")
comments = json.loads(file.read_text())
_, *options, = sys.argv[1:]
path = next(one for one in options if one.startswith("https://api.example/repos/us/models/issues/"))
if "--jq" in options:
    (marker,) = re.findall(r'startswith\\("(.*?)"\\)', options[-1])
    (login,) = re.findall(r'login == "(.*?)"', options[-1])
    assert path.endswith("/7/comments")
    own = [n for n, (who, text) in enumerate(comments) if who == login and text.startswith(marker)]
    print(*own, sep=chr(10))
    sys.exit()
if (pathlib.Path(__file__).with_name("read-only")).exists():
    sys.exit("HTTP 403")
body = pathlib.Path(options[-1].removeprefix("body=@")).read_text(encoding="utf-8")
if "PATCH" in options:
    comments[int(path.rpartition("/")[2])][1] = body
else:
    comments.append(["github-actions[bot]", body])
file.write_text(json.dumps(comments))
"""
"""Stands in for GitHub's program: comments with their authors are a file beside it."""


@pytest.fixture
def comments(here: Path) -> Callable[[], list[list[str]]]:
    """The comments of the pull request; there is one of a person."""
    (here / "bin" / "gh.py").write_text(GH)
    program(here / "bin" / "gh", f'exec "{sys.executable}" "{here / "bin" / "gh.py"}" "$@"')
    file = here / "bin" / "comments.json"
    file.write_text(json.dumps([["somebody", "Nice."]]))
    return lambda: json.loads(file.read_text())  # type: ignore[no-any-return]


NAMES = {"sources": "my model.safetensors\n", "destination": "out dir.safetensors"}


def test_a_pull_request_is_planned(here: Path) -> None:
    codes, printed = act(here, recipe="good.yaml", options="--memory=1GiB\n--full\n", **NAMES)
    assert codes == {"Install": 0, "Lint": 0, "Plan": 0}
    assert "b x" in printed
    assert not (here / "out dir.safetensors").exists()
    assert (here / "summary.md").read_text().startswith("### ckpt-surgery plan: ")
    assert (here / "installed").read_text().split("\n")[-2] == "/the/action[remote]"


@pytest.mark.slow("starts programs")
def test_a_tag_is_applied_unless_the_mode_decides(here: Path) -> None:
    codes, _ = act(here, "tag", recipe="good.yaml", package="none", **NAMES)
    assert codes == {"Lint": 0, "Apply": 0}
    assert load_file(here / "out dir.safetensors")["b x"].tolist() == [0, 1, 2]
    assert (here / "summary.md").read_text().startswith("### ckpt-surgery apply: ")
    (here / "out dir.safetensors").unlink()
    assert "Plan" in act(here, "tag", recipe="good.yaml", mode="plan", **NAMES)[0]
    assert "Apply" in act(here, "branch", recipe="good.yaml", mode="apply", **NAMES)[0]


def test_a_recipe_that_is_wrong_is_annotated(here: Path) -> None:
    codes, printed = act(here, "tag", recipe="bad.yaml", package="none", **NAMES)
    assert codes == {"Lint": 2}
    assert printed.startswith("::error file=bad.yaml,line=2,col=10,endColumn=15,title=CS010::unknown field")


@pytest.mark.slow("starts programs")
def test_a_pull_request_has_one_comment_for_each_recipe(here: Path, comments: Any) -> None:
    codes, _ = act(here, event="pull_request", recipe="good.yaml", **NAMES)
    assert codes == {"Install": 0, "Lint": 0, "Plan": 0, "Comment": 0}
    (person, (author, first)) = comments()
    assert (person, author) == (["somebody", "Nice."], "github-actions[bot]")
    assert "### ckpt-surgery plan: <code>good.yaml</code>" in first
    assert (here / "summary.md").read_text() in first
    (here / "good.yaml").write_text("version: 1\nrules: [{match: 'a (.*)', to: 'c \\1'}]\n")
    act(here, event="pull_request", recipe="good.yaml", **NAMES)
    assert len(comments()) == 2
    assert "c x" in comments()[1][1]
    assert comments()[1][1].splitlines()[0] == first.splitlines()[0]
    act(here, event="pull_request", recipe="good.yaml", **NAMES | {"destination": "$(touch hacked)"})
    assert len(comments()) == 3
    assert not (here / "hacked").exists()
    # A comment of somebody else is left alone.
    mine = ["somebody", f"{first.splitlines()[0]} mine"]
    (here / "bin" / "comments.json").write_text(json.dumps([mine]))
    act(here, event="pull_request", recipe="good.yaml", **NAMES)
    assert (comments()[0], len(comments())) == (mine, 2)


@pytest.mark.slow("starts programs")
def test_a_plan_that_fails_is_in_the_comment(here: Path, comments: Any) -> None:
    act(here, event="pull_request", recipe="good.yaml", **NAMES)
    (here / "good.yaml").write_text("version: 1\nrules: [{match: nothing, to: b}]\n")
    codes, _ = act(here, event="pull_request", recipe="good.yaml", **NAMES)
    assert codes == {"Install": 0, "Lint": 0, "Plan": 2, "Comment": 0}
    assert "the rule claims nothing" in comments()[1][1]
    assert "the rule claims nothing" in (here / "summary.md").read_text()
    (here / "good.yaml").write_text("version: 1\nrules: [{mtach: a}]\n")
    codes, _ = act(here, event="pull_request", recipe="good.yaml", **NAMES)
    assert codes == {"Install": 0, "Lint": 2, "Comment": 0}
    assert "made no plan" in comments()[1][1]  # and not the plan before it
    assert len(comments()) == 2


@pytest.mark.slow("starts programs")
def test_without_permission_the_plan_still_counts(here: Path, comments: Any) -> None:
    (here / "bin" / "read-only").touch()
    codes, printed = act(here, event="pull_request", recipe="good.yaml", **NAMES)
    assert codes == {"Install": 0, "Lint": 0, "Plan": 0, "Comment": 0}
    assert "::warning title=ckpt-surgery::" in printed
    assert len(comments()) == 1


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("given", [{"event": "push"}, {"event": "pull_request", "comment": "false"}])
def test_nothing_is_said_where_nobody_asked(here: Path, comments: Any, given: dict[str, str]) -> None:
    assert "Comment" not in act(here, recipe="good.yaml", **NAMES, **given)[0]
    assert len(comments()) == 1


@pytest.mark.slow("starts programs")
def test_a_long_plan_fits_into_a_comment(here: Path, comments: Any) -> None:
    arrays = {f"a {i:05} ключ": np.zeros(1, np.float32) for i in range(1500)}
    save_file(arrays, here / "my model.safetensors")
    act(here, event="pull_request", recipe="good.yaml", options="--full", **NAMES)
    assert 50_000 < len(comments()[1][1].encode()) < 65_536


def test_every_input_is_on_the_page_and_in_no_script() -> None:
    """A branch or a path may be called `$(…)`: the shell sees inputs as variables only."""
    assert not [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]]
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
    texts = [block.text for block in blocks(PAGE) if block.language == "text"]
    hook, github, gitlab = map(yaml.safe_load, texts)
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
