"""The README: its length, its order, and that what it shows is what the package has."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks import performance
from ckpt_surgery.formats import known
from tests.support.command_line import run
from tests.test_docs import blocks

pytestmark = pytest.mark.each

ROOT = Path(__file__).parent.parent
README, PERFORMANCE = ROOT / "README.md", ROOT / "docs" / "performance.md"
LONGEST = 1200
"""Words, of prose and tables."""


def words(text: str) -> list[str]:
    """Everything but blocks of code, tags of HTML, badges, and the destinations of links."""
    text = re.sub(r"^```.*?^```$|<[^>]*>", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\[!\[.*?\]\(.*?\)\]\(.*?\)|\]\([^)]*\)", " ", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def test_the_readme_is_short_and_in_order() -> None:
    text = README.read_text()
    assert 400 < len(words(text)) <= LONGEST
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        *("Install", "A first recipe", "What it can do", "Formats"),
        *("Compared with other tools", "Speed", "More"),
    ]
    first = text.partition("## Install")[0]
    assert first.index("by a short recipe") < first.index("docs/pictures/plan-dark.svg")


def test_the_recipe_is_the_demo_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("demo")
    (shown,) = (block.text for block in blocks(README) if block.language == "yaml")
    written = (tmp_path / "demo" / "recipe.yaml").read_text()
    assert shown.splitlines()[1:] == written.splitlines()[1:]


def test_every_format_that_is_written_is_in_the_table() -> None:
    table = README.read_text().partition("## Formats")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (yes|no) \| (yes|no) \|$", table, re.MULTILINE)
    assert {read for _, read, _ in rows} == {"yes"}
    assert sum(written == "yes" for *_, written in rows) == len(known.writable())


def test_every_command_of_the_table_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a demo checkpoint, which is `old` and `new`, and on the small models of two pages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    run("demo")
    run("apply", "demo/recipe.yaml", "demo/old", "new")
    Path("demo/old").rename("old")
    names: dict[str, object] = {}
    for page in ("coming-from/maxtext.md", "merging.md"):
        exec(next(block.text for block in blocks(ROOT / "docs" / page) if block.language == "python"), names)
    Path("llama").rename("Llama-3.1-8B")
    math = "{model: math, parameters: {weight: 1}}"
    Path("ties.yaml").write_text(f"{{merge_method: ties, base_model: base, models: [{math}]}}")
    table = README.read_text().partition("## What it can do")[2].partition("\n## ")[0]
    commands = re.findall(r"`ckpt-surgery ([^`]*)`", table)
    assert len(commands) >= 8
    for command in commands:
        arguments, _, _ = command.partition(" > ")
        done = run(*shlex.split(arguments))
        assert done.exit_code == 0, f"{command}\n{done.output}"


# --- speed ----------------------------------------------------------------------------------------


def test_the_table_of_speed_is_dated_and_has_the_works_of_the_page() -> None:
    table = performance.TABLE.search(README.read_text())
    assert table
    assert re.match(r"Measured \d{4}-\d\d-\d\d", table[0])
    rows = re.findall(r"^\| (.*?)(?:, `.*?`)? \| [\d.]+ s \| \d+ MiB \|", table[0], re.MULTILINE)
    assert len(rows) == len(performance.SHOWN)
    for row, work in zip(rows, performance.SHOWN, strict=True):
        assert re.match(work, row), row
        assert re.search(rf"^\| {work}", PERFORMANCE.read_text(), re.MULTILINE), row


def test_the_page_is_dated_names_its_command_and_has_its_pictures() -> None:
    page = PERFORMANCE.read_text()
    assert re.search(r"^- \d{4}-\d\d-\d\d, `make performance SIZE=", page, re.MULTILINE)
    for library in ("orbax-checkpoint", "safetensors", "jax", "flax"):
        assert re.search(rf"{library} \d", page), library
    pictures = re.findall(r"\(pictures/(growth-[\w-]+\.svg)#gh", page)
    assert len(pictures) == 4
    assert all((ROOT / "docs" / "pictures" / name).exists() for name in pictures)
