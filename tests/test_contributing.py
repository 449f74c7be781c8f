"""What CONTRIBUTING.md tells others to do, done in a copy of the package; and what they may import."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import ckpt_surgery
from tests.support.ci_scripts import script
from tests.support.raw_files import save_raw
from tests.test_docs import blocks, code

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
PUBLIC = {
    "ckpt_surgery",
    "ckpt_surgery.errors",
    "ckpt_surgery.orbax",
    "ckpt_surgery.t5x",
    *(
        f"ckpt_surgery.core.{name}"
        for name in ("arrays", "leaves", "keys", "errors", "manifests", "protocols")
    ),
    "ckpt_surgery.functions",
    "ckpt_surgery.functions.base",
    "ckpt_surgery.functions.streams",
    "ckpt_surgery.formats.registry",
    *(f"ckpt_surgery.storage.{name}" for name in ("reading", "json_files", "regions")),
}

# --- what is public -------------------------------------------------------------------------------


def imported(text: str) -> Iterator[str]:
    """Modules that a piece of code imports, or imports names from."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                ours = node.module.startswith("ckpt_surgery")
                yield name if ours and is_module(name) else node.module


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, not a package
        return False


def test_extensions_import_the_modules_only_that_the_page_lists() -> None:
    found = {
        module
        for block in blocks(ROOT / "docs/extending.md")
        if block.language == "python"
        for module in imported(block.text)
        if module.split(".")[0] == "ckpt_surgery"
        # a command is a module of the program itself
        if not module.startswith(("ckpt_surgery.cli.", "ckpt_surgery.inputs."))
    }
    assert found <= PUBLIC
    assert len(found) >= 6

    text = (ROOT / "docs/extending.md").read_text().partition("## Public modules")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(ckpt_surgery[\w.]*)` \|", text, re.MULTILINE)) == PUBLIC


# --- as a stranger would do it --------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its recipes, with the page's function, format, command and recipe added."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("ckpt_surgery", "recipes"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=ignore)
    files = {path: code(kind) for path, kind in places().items()}
    (recipe,) = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    name, _, text = recipe.partition("\n")
    files[name.removeprefix("# ")] = text
    for path, text in files.items():
        file = tmp_path / "copy" / path
        assert not file.exists()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "copy"


def places() -> dict[str, str]:
    """Where CONTRIBUTING.md says that the code of docs/extending.md is copied to."""
    section = {"functions": "functions", "formats": "formats", "cli": "command"}
    paths = re.findall(r"copied to\s+`(ckpt_surgery/(\w+)/[\w/]*\.py)`", PAGE.read_text())
    assert len(paths) == len(section)
    return {path: section[wing] for path, wing in paths}


RUN = """
import sys
from click.testing import CliRunner
from ckpt_surgery.cli.program import cli

for line in sys.argv[1:]:
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    print(done.output, end="\\0")
"""


def ran(copy: Path, *lines: str) -> list[str]:
    """What each command of the copied package prints."""
    environment = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "120"}
    command = [sys.executable, "-c", RUN, *lines]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=copy)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("\0")


def test_nothing_but_the_new_files_is_needed(copy: Path) -> None:
    save_raw(
        {f"dense/{name}": np.arange(4, dtype=np.float32) for name in ("kernel", "bias")}, copy / "arrays"
    )
    (copy / "roll.yaml").write_text("{version: 1, rules: [{match: dense/kernel, value: 'roll(x, 1)'}]}")
    count, listing, recipes, *_ = ran(
        copy,
        *("count arrays", "inspect arrays", "recipes", "lint @zero-biases"),
        "apply @zero-biases arrays zeroed.npz",
        "apply roll.yaml zeroed.npz rolled.npz",
    )
    assert count == "2\n"
    assert "(raw)" in listing
    assert "@zero-biases" in recipes
    with np.load(copy / "zeroed.npz") as zeroed:
        assert zeroed["dense/kernel"].tolist() == [0, 1, 2, 3]
        assert zeroed["dense/bias"].tolist() == [0, 0, 0, 0]
    with np.load(copy / "rolled.npz") as rolled:
        assert rolled["dense/kernel"].tolist() == [3, 0, 1, 2]


def test_the_model_of_the_page_is_an_entry_as_it_stands() -> None:
    """What else the page says of it, the recipes and their tests, exists."""
    section = PAGE.read_text().partition("## Adding a model")[2].partition("\n## ")[0]
    (entry,) = re.findall(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert entry in (ROOT / "ckpt_surgery/inputs/models.yaml").read_text()
    named = re.findall(r"`((?:recipes|ckpt_surgery|tests)/\S+|\w+\.py)`", section)
    assert len(named) >= 7
    folders = (ROOT, ROOT / "tests/recipes", ROOT / "ckpt_surgery/inputs")
    assert [name for name in named if not any((folder / name).is_file() for folder in folders)] == []


MOST_MODULES = 8
MOST_CLIMBS = 30
"""How far one has to read to follow a recipe, by the walk that the page tells."""


def test_a_recipe_is_followed_through_few_modules(tmp_path: Path) -> None:
    walk = script("walk").walk_of_apply(tmp_path)
    assert (tmp_path / "out").is_dir()
    assert len(walk.modules) <= MOST_MODULES
    assert walk.climbs <= MOST_CLIMBS
    page = PAGE.read_text()
    assert set(re.findall(r"`((?:inputs|runs|api)/\w+\.py)`", page)) == set(walk.modules)
    named = re.findall(r"`((?:inputs|runs|api|engine|planner|verification)/[\w/]+\.py)`", page)
    assert len(named) >= 8
    assert [name for name in named if not (ROOT / "ckpt_surgery" / name).is_file()] == []


# --- statements -----------------------------------------------------------------------------------


def test_every_target_that_the_page_and_workflows_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", PAGE.read_text()))
    assert {"setup", "check", "test-all", "docs"} <= named <= targets
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text())["jobs"].values()
        commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        builds = [command.split() for command in commands if command.startswith("make ")]
        assert builds
        called = {word for _, *words in builds for word in words if re.fullmatch(r"[a-z-]+", word)}
        assert called <= targets, file.name


def test_every_python_that_is_supported_is_tested_and_the_version_stands_in_one_place() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    assert "version" in project["dynamic"]
    assert ckpt_surgery.__version__ in (ROOT / pyproject["tool"]["hatch"]["version"]["path"]).read_text()
    named = {c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)}
    workflow = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    assert set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"]) == named
    assert project["requires-python"] == f">={min(named)}"


def test_the_lowest_versions_are_those_of_pyproject(capsys: pytest.CaptureFixture[str]) -> None:
    script("lowest").main()
    assert capsys.readouterr().out == (ROOT / "constraints-lowest.txt").read_text(), "run `make lowest`"


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[0] == "[Unreleased]"
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
