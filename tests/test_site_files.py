"""What the site's copy buttons copy, and the files beside its pages for programs that read text."""

import html
import re
from pathlib import Path

import click
import pytest

import ckpt_surgery.functions.registry as functions
from ckpt_surgery.cli.parameters.command import PROGRAM
from ckpt_surgery.cli.program import cli
from ckpt_surgery.language.schema.fields import schema
from tests.support.ci_scripts import script
from tests.support.site import ROOT
from tests.test_docs import PAGES, blocks, commands_of

# --- copy buttons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ a b\nprinted\n$ c\n", ["a b", "c"]),
        ("$ a\n  $ indented is printed\n$5\n", ["a"]),
        ("$ a \\\n  --option\nprinted\n", ["a \\", "  --option"]),
        ("printed\n", []),
    ],
)
def test_commands_of_a_console(text: str, expected: list[str]) -> None:
    assert list(script("site_copying").commands(text)) == expected


@pytest.mark.slow("builds the site")
def test_buttons_copy_commands_alone(site: Path) -> None:
    """As shells take them: without prompts, and without what was printed."""
    pages = [page for page in PAGES if "docs" in page.parts]
    checked = 0
    for page in pages:
        built = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
        copied = re.findall(r'<div class="language-console[^>]* data-copy="([^"]*)"', built)
        shown = [block for block in blocks(page) if block.language == "console"]
        expected = ["\n".join(line for line, _ in commands_of(block)) for block in shown]
        assert [html.unescape(text) for text in copied] == expected, page.name
        checked += len(expected)
    assert checked > 50

    # Those of pages that are made of other files, too.
    for path in site.rglob("*.html"):
        for opening in re.findall(r'<div class="language-console[^>]*>', path.read_text()):
            assert re.search(r' data-copy="[^"$][^"]*"', opening), path.name
    (bundle,) = site.glob("assets/javascripts/bundle*.js")
    assert 'closest("[data-copy]")' in bundle.read_text()


# --- files for programs ---------------------------------------------------------------------------


@pytest.mark.slow("builds the site")
def test_the_overview_lists_every_page_in_its_order_and_what_there_is_to_write(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    assert text.startswith("# ckpt-surgery\n\n> ")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+\.html)\): (.+)$", text, re.MULTILINE)
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"404.html"}
    assert {link for link, _ in links} == built
    assert len(links) == len(built)
    assert links[0][0] == "index.html"
    for link, sentence in links:
        assert re.search(r"[.?]$", sentence), link
        assert not re.search(r"\]\(|^[#|<]", sentence), link

    # Commands, fields and functions:
    for name in cli.list_commands(click.Context(cli)):
        assert re.search(rf"^- `{PROGRAM} {name} .*`: \S", text, re.MULTILINE), name
    rule = schema()["$defs"]["Rule"]["properties"]
    for name in rule:
        assert re.search(rf"^- `{name}` of a rule: \S", text, re.MULTILINE), name
    for name in functions.registry():
        assert re.search(rf"^- `{name}\(", text, re.MULTILINE), name


@pytest.mark.slow("builds the site")
def test_the_whole_text_has_every_page_and_the_help_of_every_command(site: Path) -> None:
    text = (site / "llms-full.txt").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.read_text().partition("\n")[0] in text, page.name
    for name in cli.list_commands(click.Context(cli)):
        assert f"Usage: {PROGRAM} {name} " in text


def test_sentences() -> None:
    first = script("site_llms").first_sentence
    assert (
        first("# Title\n\nOne [link](a.md), `x.y` and 1.5: two. Three.\n") == "One link, `x.y` and 1.5: two."
    )
    assert first("# Title\n\n```text\nno\n```\n\n| a |\n\nA list:\n\n- no\n") == "A list."
    assert first("# Title\n") == ""
