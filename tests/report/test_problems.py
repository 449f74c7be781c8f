"""docs/problems.md: a section for each code, whose examples have exactly this problem."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.expressions import regexes as patterns
from ckpt_surgery.report.problems import PAGE, SITE, problem_sections
from tests.support.command_line import run
from tests.support.messages import prepare_examples
from tests.test_docs import ROOT, Block, blocks, commands_of

pytestmark = pytest.mark.each

TEXT = (ROOT / PAGE).read_text()
TREE = {
    "params": {
        name: {"kernel": np.zeros((4, 8), np.float32), "bias": np.zeros(8, np.float32)}
        for name in ("dense_0", "dense_1")
    },
    "step": np.zeros((), np.int32),
}
"""The checkpoint of the examples."""


def examples(language: str) -> list[tuple[Code, int, Block]]:
    """The blocks of code in a language, each with its code and its number within the section."""
    lines = TEXT.splitlines()
    counts = dict.fromkeys(Code, 0)
    found = []
    for block in blocks(ROOT / PAGE):
        heading = next(line for line in reversed(lines[: block.line]) if line.startswith("## "))
        code = Code(heading.split()[1])
        if block.language == language:
            found.append((code, counts[code], block))
        counts[code] += 1
    return found


WRONG = [(code, block) for code, number, block in examples("yaml") if not number]
MENDED = [(code, block) for code, number, block in examples("yaml") if number]


# --- the page ---------------------------------------------------------------------------------------------


def test_every_code_has_its_section_in_order() -> None:
    headings = re.findall(r"^#+ .*", TEXT, re.MULTILINE)
    sections = problem_sections()
    assert list(sections) == list(Code)
    assert headings[1:] == [f"## {code} {section.title}" for code, section in sections.items()]


@pytest.mark.parametrize("code", Code)
def test_a_section_is_a_meaning_an_example_and_a_remedy(code: Code) -> None:
    section = problem_sections()[code]
    meaning, example, *rest = section.paragraphs
    assert not section.title.endswith(".")
    assert not meaning.is_code
    assert example.is_code
    assert rest
    assert not rest[0].is_code
    for paragraph in section.paragraphs:
        assert "```" not in paragraph.text
        assert paragraph.is_code or not re.search(r"^[-|#>] |\]\(", paragraph.text)
    of_the_page = [block.text.rstrip("\n") for block in blocks(ROOT / PAGE)]
    assert {paragraph.text for paragraph in section.paragraphs if paragraph.is_code} <= set(of_the_page)


@pytest.mark.slow("builds the site")
def test_addresses_are_anchors_of_the_site(site: Path) -> None:
    anchors = set(re.findall(r'id="([^"]+)"', (site / "problems.html").read_text()))
    addresses = [section.address.partition("#") for section in problem_sections().values()]
    assert {page for page, _, _ in addresses} == {SITE}
    assert {anchor for _, _, anchor in addresses} <= anchors


# --- recipes ----------------------------------------------------------------------------------------------


def problems_of(recipe: Path, tree: Mapping[str, Any] = TREE) -> tuple[Problem, ...]:
    ((_, problems),) = ckpt_surgery.lint([recipe])
    if problems:
        return problems
    try:
        ckpt_surgery.plan(recipe, tree)
    except ckpt_surgery.SurgeryError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(("code", "block"), WRONG)
def test_the_first_recipe_of_a_section_has_its_problem_and_no_other(
    code: Code, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(block.text)
    tree = {"a" * 60 + "!a": np.zeros(1)} if code is Code.SLOW_PATTERN else TREE
    assert {problem.code for problem in problems_of(recipe, tree)} == {code}


@pytest.mark.parametrize(("code", "block"), MENDED)
def test_further_recipes_of_a_section_are_right(code: Code, block: Block, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(block.text)
    assert problems_of(recipe) == ()


# --- commands ---------------------------------------------------------------------------------------------

UNTRIED = {Code.NO_MEMORY, Code.VERIFICATION, Code.STORAGE, Code.INTERRUPTED, Code.INTERNAL}
"""Need a disk that fails or is full, a small machine, a signal, or a bug."""
COMMANDS = [(code, block) for code, _, block in examples("console") if code not in UNTRIED]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with everything that the examples name."""
    monkeypatch.chdir(tmp_path)
    prepare_examples(Path())


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("code", "block"), COMMANDS)
def test_the_command_of_a_section_has_its_problem_and_no_other(code: Code, block: Block) -> None:
    ((line, _),) = commands_of(block)
    program, *arguments = shlex.split(line)
    done = run(*arguments, "--json")
    assert (program, done.exit_code != 0) == ("ckpt-surgery", True)
    assert {problem["code"] for problem in json.loads(done.stdout)["error"]["problems"]} == {code}
