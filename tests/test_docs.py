"""Every example in README and docs is run, and every command and function that they name exists."""

import contextlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from click.testing import CliRunner

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.cli import commands
from ckpt_surgery.cli.program import cli
from ckpt_surgery.functions import registry as functions
from ckpt_surgery.system import resources
from tests.formats.tensorflow.bundles import tensorflow
from tests.support import checkpoints
from tests.support.command_line import run
from tests.support.trees import nested

pytestmark = pytest.mark.each

ROOT = Path(__file__).parent.parent
DOCS, COOKBOOK, COMING_FROM = (
    sorted(str(page.relative_to(ROOT)) for page in (ROOT / folder).glob("*.md"))
    for folder in ("docs", "docs/cookbook", "docs/coming-from")
)
AT_ROOT = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [ROOT / page for page in (*AT_ROOT, *DOCS, *COOKBOOK, *COMING_FROM)]
NAMES = ("quick-start", "commands", "how-it-works", "formats", "inferring", "merging", "training")
READ_THROUGH = ["README.md", *(f"docs/{name}.md" for name in NAMES)]


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    next: str = ""
    """The `text` block that directly follows: the leaves before and after a recipe, or what code prints."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = ((m, text.count("\n", 0, m.start()) + 1) for m in FENCED.finditer(text))
    return [Block(page, line, m[1], m[2], m[3] or "") for m, line in found]


ALL = [block for page in PAGES for block in blocks(page)]
NAMED = re.compile(r"# (\S+\.yaml)\n")


# --- pages that are read from top to bottom -------------------------------------------------------


@pytest.mark.parametrize("page", [*READ_THROUGH, *COOKBOOK, *COMING_FROM])
def test_a_page_works_from_top_to_bottom(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The peak of memory that a plan shows depends on the cores.
    monkeypatch.setattr(resources, "usable_cores", lambda: 2)
    if "import tensorflow" in (ROOT / page).read_text():
        tensorflow()  # without its messages
    names: dict[str, Any] = {}
    for block in blocks(ROOT / page):
        if block.language == "python":
            printed = printed_by(block, names)
            if block.next:
                assert printed == block.next, str(block)
        elif block.language == "yaml":
            named = NAMED.match(block.text)
            assert named, f"{block}: the first line names the file"
            (tmp_path / named[1]).write_text(block.text)
        elif block.language == "console":
            run_commands(block)


def printed_by(block: Block, names: dict[str, Any]) -> str:
    """Run the code of a block, and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as stream, checkpoints.quiet():
        exec(compile(block.text, str(block), "exec"), names)
    return stream.getvalue()


def commands_of(block: Block) -> list[tuple[str, str]]:
    """The commands of a block, each with the lines below it: all that it prints, if the page shows it."""
    assert block.text.startswith("$ "), str(block)
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)


EXIT_CODE = "echo $?"
"""The command that tells how the one before it ended: without it that one has to succeed."""


def run_commands(block: Block) -> None:
    commands = commands_of(block)
    for (line, shown), (following, printed) in zip(commands, [*commands[1:], ("", "")], strict=True):
        if line != EXIT_CODE:
            run_line(line, shown, block, int(printed) if following == EXIT_CODE else 0)


def run_line(line: str, shown: str, block: Block, exit_code: int) -> None:
    """Run a command. One that fails shows its error too, as on a terminal."""
    program, *arguments = shlex.split(line)
    assert program == "ckpt-surgery", f"{block}: {line}"
    with checkpoints.quiet():
        done = run(*arguments)
    assert done.exit_code == exit_code, f"{block}: {line}\n{done.output}"
    printed = done.output if exit_code else done.stdout
    assert printed.strip(), f"{block}: {line} prints nothing"
    if shown:
        assert printed == shown, f"{block}: {line}"


@pytest.mark.parametrize("page", [*COMING_FROM, *COOKBOOK, "docs/quick-start.md", "docs/how-it-works.md"])
def test_all_that_a_page_shows_is_run(page: str) -> None:
    for block in blocks(ROOT / page):
        setup = block.text.startswith("pip install")
        assert setup or block.language in {"python", "yaml", "console"}, f"{block}: nothing runs it"
        assert block.language == "python" or not block.next, f"{block}: nothing compares what follows"


def test_the_cookbook_is_complete() -> None:
    index = (ROOT / "docs/cookbook/index.md").read_text()
    linked = re.findall(r"^\| .* \| \[.*\]\((\w+(?:-\w+)*\.md)\) \|$", index, re.MULTILINE)
    assert sorted([*linked, "index.md"]) == [Path(page).name for page in COOKBOOK]
    for page in linked:
        first, *others = blocks(ROOT / "docs/cookbook" / page)
        assert first.language == "python", f"{first}: it makes the example's checkpoint"
        assert any(block.language == "console" for block in others), page


# --- recipes with the leaves before and after -----------------------------------------------------


@dataclass(frozen=True)
class Leaves:
    sources: Mapping[str, Mapping[str, str]]
    target: Mapping[str, str] | None
    result: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict)
    """The JSON files that lie beside the first source."""


ROW = re.compile(r"(\w*)\s+(\S+)\s+(\S+)")
SPEC = re.compile(r"(\w+)\[([\d,]*)\]")


def read_leaves(text: str) -> Leaves:
    sections: dict[str, dict[str, str]] = {}
    name = ""
    for line in text.splitlines():
        row = ROW.fullmatch(line)
        assert row, line
        name = row[1] or name
        sections.setdefault(name, {})[row[2]] = row[3]
    result, target = sections.pop("result"), sections.pop("target", None)
    config = nested({path: json.loads(text) for path, text in sections.pop("config", {}).items()})
    return Leaves(sections, target, result, config)


def tree(leaves: Mapping[str, str]) -> dict[str, Any]:
    return nested({key: value(spec) for key, spec in leaves.items()})


def value(text: str) -> np.ndarray | int:
    spec = SPEC.fullmatch(text)
    assert spec, text
    if not spec[2]:
        return 7
    return np.ones([int(n) for n in spec[2].split(",")], np.dtype(spec[1]))


def check(block: Block, directory: Path) -> None:
    """An example may be only a list of rules."""
    leaves, config = read_leaves(block.next), directory / "config.json"
    head = "" if block.text.startswith("version:") else "version: 1\nrules:\n"
    (directory / "recipe.yaml").write_text(head + block.text)
    if leaves.config:
        config.write_text(json.dumps(leaves.config))
    given = {"config": config if leaves.config else None, "target": leaves.target and tree(leaves.target)}
    sources = map(tree, leaves.sources.values())
    applying.apply(directory / "recipe.yaml", *sources, dst=directory / "result.npz", **given)
    found = {leaf.key.text: str(leaf.spec) for leaf in ckpt_surgery.inspect(directory / "result.npz").leaves}
    assert found == leaves.result


SHOWN = [b for b in ALL if b.language == "yaml" and b.page.name == "recipe.md"]


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_recipe_does_what_the_page_says(block: Block, tmp_path: Path) -> None:
    assert block.next, "the leaves before and after follow in a `text` block"
    check(block, tmp_path)


# --- saved plans ----------------------------------------------------------------------------------


def test_the_plan_of_the_page(tmp_path: Path) -> None:
    found = [block for block in ALL if block.page.name == "plans.md"]
    recipe, shown = ([b for b in found if b.language == language] for language in ("yaml", "json"))
    check(recipe[0], tmp_path)
    ocp.PyTreeCheckpointer().save(tmp_path / "source", tree(read_leaves(recipe[0].next).sources["source"]))
    applying.plan(tmp_path / "recipe.yaml", tmp_path / "source", out=tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    assert json.loads(shown[0].text) == document["leaves"]
    members = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/plans.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", "".join(members))) == {*document["saved"]}


# --- extending ------------------------------------------------------------------------------------


def code(first_line: str) -> str:
    (block,) = [b for b in blocks(ROOT / "docs/extending.md") if b.text.startswith(f"# {first_line}\n")]
    return block.text


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the function of the page as another package would: by an entry point."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "docs_functions.py").write_text(code("functions"))
    entries = [importlib.metadata.EntryPoint("docs", "docs_functions", "ckpt_surgery.functions")]
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda *, group: [e for e in entries if e.group == group]
    )
    functions.registry.cache_clear()
    yield
    functions.registry.cache_clear()
    sys.modules.pop("docs_functions", None)


@pytest.mark.usefixtures("plugins")
def test_the_function_of_the_page(tmp_path: Path) -> None:
    (block,) = [b for b in ALL if b.page.name == "extending.md" and b.language == "yaml"]
    check(block, tmp_path)
    ocp.PyTreeCheckpointer().save(tmp_path / "numbers", {"kernel": np.arange(12).reshape(4, 3)})
    applying.apply(tmp_path / "recipe.yaml", tmp_path / "numbers", dst=tmp_path / "rolled")
    rolled = ocp.PyTreeCheckpointer().restore(tmp_path / "rolled")["kernel"]
    expected = np.tril(np.roll(np.arange(12).reshape(4, 3), 1, axis=0))
    np.testing.assert_array_equal(rolled, expected)
    applying.plan(tmp_path / "recipe.yaml", tmp_path / "numbers", out=tmp_path / "plan.json")
    applying.apply(tmp_path / "plan.json", dst=tmp_path / "again")
    np.testing.assert_array_equal(ocp.PyTreeCheckpointer().restore(tmp_path / "again")["kernel"], rolled)


def test_the_engine_of_the_page(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", a=np.arange(6.0), b=np.arange(4))
    recipe = {"version": 1, "rules": [{"match": "a", "value": "x * 2"}]}
    ckpt_surgery.plan(recipe, tmp_path / "old.npz", format="npz", out=tmp_path / "plan.json")
    call = (
        "if __name__ == '__main__':\n    print(type(apply_in_processes('plan.json', 'n.npz', 2)).__name__)\n"
    )
    (tmp_path / "engine.py").write_text(code("engine") + call)
    command = [sys.executable, "engine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Result\n", 0), done.stderr
    assert np.load(tmp_path / "n.npz")["a"].tolist() == [0, 2, 4, 6, 8, 10]


def test_the_command_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "count.py").write_text(code("command"))
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    np.savez(tmp_path / "checkpoint.npz", **{"a": np.ones(2), "b/c": 7})
    result = CliRunner().invoke(cli, ["count", str(tmp_path / "checkpoint.npz")])
    monkeypatch.delitem(sys.modules, "ckpt_surgery.cli.commands.count")
    assert (result.exit_code, result.output) == (0, "2\n")


# --- statements -----------------------------------------------------------------------------------


def test_every_command_is_documented() -> None:
    documented = re.findall(r"^\| `(\w+) ?.*?` \|", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(cli.list_commands(None))  # type: ignore[arg-type]


def test_every_function_is_documented() -> None:
    page = (ROOT / "docs/recipe.md").read_text().partition("### What expressions may contain")[2]
    table = page.partition("| group |")[2].partition("\n\n")[0]
    words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`]*`", table))))
    built_in = {"has", "count"}
    assert set(functions.registry()) | built_in <= words


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\((?!https://)([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_commands_of_the_readme_and_what_ci_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "setup"):
        assert f"make {target}" in (ROOT / "README.md").read_text()
        assert re.search(rf"^{target}: ", makefile, re.MULTILINE)
    steps = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps[-1] == "test"
    assert re.findall(r"^check: (.*)$", makefile, re.MULTILINE) == [" ".join(steps)]


@pytest.mark.slow("trains a model")
def test_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Orbax restored the result into the new training state; step 6 is done.\n")
    for word in ("renamed", "transformed", "dropped", "defaulted"):
        assert word in done.stdout.lower()
    assert list(tmp_path.iterdir()) == []
