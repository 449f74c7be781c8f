"""Pages of the documentation site, the files beside them, and the text that copy buttons take."""

import html
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from markdown_it import MarkdownIt

import ckpt_surgery.functions.registry as functions
from ckpt_surgery.cli.parameters.command import PROGRAM
from ckpt_surgery.cli.program import cli
from ckpt_surgery.language.schema.fields import schema
from tests.support.ci_scripts import script
from tests.test_docs import PAGES, blocks, commands_of, run_commands

ROOT = Path(__file__).parent.parent


# --- what is in a page ----------------------------------------------------------------------------


BLOCKS = {"p", "li", "td", "th", "h1", "h2", "h3", "h4", "pre", "tr", "ul", "ol", "blockquote", "div"}
MARKED = {"code", "pre", "li", "td", "th", "h1", "h2", "h3", "h4"}
"""Elements that begin a line of text, and those that are told in it."""


@dataclass
class Html(HTMLParser):
    """What a page links to and loads, its anchors, and the text of its article, a line for each block."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._within_article = self._within_permalink = False

    @staticmethod
    def of(html: str, article: bool = True) -> "Html":
        page = Html()
        page._within_article = not article
        page.feed(html)
        return page

    @property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in self.text.split("\n") if line.strip()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.classes |= set(found.get("class", "").split())
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.loaded += [found[name] for name in ("src", "srcset", "poster", "data") if name in found]
        if tag in ("link", "use", "image"):
            self.loaded += [found[name] for name in ("href", "xlink:href") if name in found]
        self.loaded += re.findall(r"url\(['\"]?([^'\")]*)", found.get("style", ""))
        self._within_article |= tag == "article"
        self._within_permalink = tag == "a" and found.get("class") == "headerlink"
        self.text += "\n" * (tag in BLOCKS)
        if self._within_article and tag in MARKED:
            self.text += f"<{tag}>"

    def handle_endtag(self, tag: str) -> None:
        self._within_article &= tag != "article"
        self._within_permalink = False
        self.text += "\n" * (tag in BLOCKS)

    def handle_data(self, data: str) -> None:
        if self._within_article and not self._within_permalink:
            self.text += data.replace("\n", " ")


@cache
def pages(site: Path) -> dict[Path, Html]:
    return {path: Html.of(path.read_text()) for path in sorted(site.rglob("*.html"))}


def dead(site: Path) -> Iterator[str]:
    """The links and files of all pages that are not there."""
    found = pages(site)
    for path, page in found.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            base = site if parts.path.startswith("/") else path.parent
            target = path
            if parts.path not in ("", "."):
                target = (base / unquote(parts.path).lstrip("/")).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link}"
            elif target in found and parts.fragment and unquote(parts.fragment) not in found[target].anchors:
                yield f"{path.relative_to(site)}: no anchor {link}"


def outside(address: str) -> bool:
    return bool(urlsplit(address).netloc)


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.slow("builds the site")
def test_every_link_of_every_page_leads_somewhere(site: Path) -> None:
    assert list(dead(site)) == []
    assert sum(len(page.links) for page in pages(site).values()) > 1000


NAVIGATION = re.compile(
    r'<nav class="md-nav md-nav--primary.*?(?=<div class="md-sidebar md-sidebar--sec)', re.S
)


@pytest.mark.slow("builds the site")
def test_every_page_is_in_the_navigation(site: Path) -> None:
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"404.html"}
    docs = ROOT / "docs"
    assert {str(path.relative_to(docs).with_suffix(".html")) for path in docs.rglob("*.md")} < built
    navigation = NAVIGATION.search((site / "index.html").read_text())
    assert navigation
    assert built <= {"index.html", *(urlsplit(link).path for link in Html.of(navigation[0]).links)}


def test_a_link_to_what_is_not_on_the_site_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = "[a](../Makefile) `[b](../Makefile)`\n\n```text\n[c](../Makefile)\n```\n\n[d](../README.md)"
    with caplog.at_level(logging.WARNING):
        assert script("site_pages").with_links(text, "ci.md", "docs/ci.md") == text.replace(
            "../README", "index"
        )
    assert [record.getMessage() for record in caplog.records] == [
        "docs/ci.md: a link to ../Makefile, which is not on the site; see `place`"
    ]


# --- what is loaded -------------------------------------------------------------------------------


@pytest.mark.slow("builds the site")
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for path, page in pages(site).items():
        assert page.loaded, path
        assert [address for address in page.loaded if outside(address)] == [], path
        # For these the theme's script would load a library, and numbers about a repository.
        assert not page.classes & {"mermaid", "md-source"}, path
    styles = [path.read_text() for path in site.rglob("*.css")]
    assert styles
    for style in styles:
        assert [one for one in re.findall(r"url\(['\"]?([^'\")]*)", style) if outside(one)] == []
        assert not re.search(r"@import\s", style)


def test_no_picture_loads_anything() -> None:
    pictures = list((ROOT / "docs" / "pictures").glob("*.svg"))
    assert pictures
    for picture in pictures:
        text = picture.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"href|url\((?!#)|@import|@font-face|<script|https?:", text), picture.name


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.slow("builds the site")
def test_pages_read_as_they_do_on_github(site: Path) -> None:
    """The two kinds of Markdown differ in lists, tables and code; pages are written so that they agree."""
    github = MarkdownIt("commonmark").enable("table")
    for path in sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/api.md"}):  # which docstrings fill
        built = site / path.relative_to(ROOT / "docs").with_suffix(".html")
        expected = Html.of(github.render(path.read_text()), article=False)
        assert Html.of(built.read_text()).lines == expected.lines, path.name


@pytest.mark.slow("builds the site")
def test_every_packaged_recipe_has_its_section(site: Path) -> None:
    page = Html.of((site / "recipes.html").read_text())
    recipes = [
        path for path in (ROOT / "recipes").rglob("*.yaml") if path.parent.name in ("recipes", "examples")
    ]
    assert {script("site_pages").anchor(path) for path in recipes} <= page.anchors
    text = " ".join(page.lines)
    for path in recipes:
        assert " ".join(path.read_text().split()) in text, path.name


@pytest.mark.slow("builds the site")
def test_the_commands_of_the_front_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on what its pictures show."""
    monkeypatch.chdir(tmp_path)
    script("pictures").prepare(tmp_path)
    (block,) = blocks(ROOT / "docs" / "index.md")
    assert len(commands_of(block)) == 3
    run_commands(block)


# --- copy buttons ---------------------------------------------------------------------------------


@pytest.mark.slow("builds the site")
def test_buttons_copy_commands_alone(site: Path) -> None:
    """As shells take them: without prompts, and without what was printed."""
    checked = 0
    for page in (page for page in PAGES if "docs" in page.parts):
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
