"""docs/problems.md: a section for each code, whose examples have exactly this problem."""

import re
from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Code
from ckpt_surgery.language.expressions import regexes as patterns
from ckpt_surgery.report.problems import PAGE, SITE, problem_sections
from tests.test_docs import ROOT, blocks

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


def examples(code: Code) -> list[str]:
    """The recipes of a section: the first one has its problem, see tests/test_messages.py."""
    section = TEXT.partition(f"\n## {code} ")[2].partition("\n## ")[0]
    return re.findall(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


RIGHT = [text for code in Code for text in examples(code)[1:]]


@pytest.mark.parametrize("recipe", RIGHT, ids=range(len(RIGHT)))
def test_further_recipes_of_a_section_are_right(recipe: str) -> None:
    assert ckpt_surgery.plan(recipe, TREE)


def test_the_pattern_of_the_page_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    with pytest.raises(ckpt_surgery.SurgeryError) as caught:
        ckpt_surgery.plan(examples(Code.SLOW_PATTERN)[0], {"a" * 60 + "!a": np.zeros(1)})
    assert [problem.code for problem in caught.value.problems] == [Code.SLOW_PATTERN]
