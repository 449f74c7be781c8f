"""Representations as text and in a notebook: what they hold, how long they are, what is cut and escaped."""

import re
from html.parser import HTMLParser

import pytest

from ckpt_surgery.core.summary import (
    STYLE,
    Summary,
    SummaryRow,
    summary_html,
    summary_text,
)
from ckpt_surgery.report.html import ASSETS

HOSTILE = ["\x1b[31m", "a\nb", "\u202e", "x" * 100_000, "\U000e0001" * 10_000]


def test_all_of_a_small_summary_is_shown() -> None:
    moved = SummaryRow("renamed", "a → b", "2 × f32[8]", "rules[0]", 2)
    gone = SummaryRow("DROPPED", "c", "f32[]")
    summary = Summary("r.yaml: 3 leaves → 2", ("/old → /new",), [moved, gone], ("0 B computed",))
    assert summary_text("Plan", summary).splitlines() == [
        "<Plan r.yaml: 3 leaves → 2>",
        "  /old → /new",
        "  renamed      a → b  2 × f32[8]  rules[0]",
        "  DROPPED      c      f32[]",
        "  0 B computed",
    ]


@pytest.mark.parametrize(
    ("count", "shown", "more"),
    [(21, 21, None), (22, 20, "… and 2 more leaves"), (50_000, 20, "… and 49,980 more leaves")],
)
def test_ten_are_shown_at_each_end(count: int, shown: int, more: str | None) -> None:
    rows = [SummaryRow("renamed", f"a{i}") for i in range(count)]
    lines = summary_text("Plan", Summary("", (), rows)).splitlines()[1:]
    keys = [line.split()[1] for line in lines if "renamed" in line]
    assert keys == [f"a{i}" for i in range(count) if i < 10 or i >= count - shown + 10]
    assert [line.strip() for line in lines if "renamed" not in line] == ([] if more is None else [more])
    many = [SummaryRow("", f"a{i}", count=3) for i in range(30)]
    assert "… and 30 more leaves" in summary_text("Plan", Summary("", (), many))


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("count", [1, 21, 22, 5000])
def test_no_text_makes_it_long(text: str, count: int) -> None:
    row = SummaryRow(text, text, text, text)
    lines = (text,) * 100
    shown = summary_text("Plan", Summary(text, lines, [row] * count, lines))
    assert shown.startswith("<Plan ")
    assert len(shown) <= 2000
    assert len(shown.splitlines()) <= 25
    assert shown.replace("\n", "").isprintable()


EVIL = "</style></code><script>document.title='owned'</script><img src=x onerror=\"alert(1)\">"
TREE = [
    SummaryRow("", "params", "3 leaves", level=0),
    SummaryRow("", "a", "2 leaves", level=1),
    SummaryRow("", "w", "f32[8]", level=2),
    SummaryRow("", "v", "f32[8]", level=2),
    SummaryRow("", "b", "f32[1]", level=1),
    SummaryRow("", "step", "i32[]", level=0),
]


class Elements(HTMLParser):
    """The elements of a page with their attributes and their places in each other."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, ...]] = []
        self.attributes: set[str] = set()
        self.texts: dict[str, tuple[str, ...]] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.found.append(tuple(self.open))
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[data] = tuple(self.open)


def hostile(text: str, count: int) -> Summary:
    rows = [SummaryRow("renamed", text, text, text)] * count
    return Summary(text, (text,) * 100, rows, (text,) * 100)


def as_tree(summary: Summary) -> Summary:
    return Summary(summary.about, summary.facts, summary.rows, summary.closing, lambda: summary.rows)


def test_a_diff_is_a_table() -> None:
    row = SummaryRow("DROPPED", "a/<b>", "f32[8]", "rules[0]")
    page = summary_html("Plan", Summary("of r.yaml", ("from",), [row], ("costs",)))
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", page)]
    assert cells == ["DROPPED", "a/&lt;b&gt;", "f32[8]", "rules[0]"]
    assert '<td class="dropped">DROPPED</td>' in page
    assert "<b>Plan</b> of r.yaml" in page
    assert Elements(page).open == []


def test_a_listing_is_a_tree_that_folds_without_a_script() -> None:
    elements = Elements(summary_html("Checkpoint", Summary("", (), TREE, tree=lambda: TREE)))
    assert elements.open == []
    depths = {text: tags.count("details") for text, tags in elements.texts.items()}
    assert [depths[row.key] for row in TREE] == [1, 2, 2, 2, 1, 0]
    assert "script" not in {tag for tags in elements.found for tag in tags}


@pytest.mark.parametrize("count", [61, 62, 5000])
@pytest.mark.parametrize("form", [lambda summary: summary, as_tree])
def test_thirty_are_shown_at_each_end(count: int, form) -> None:
    page = summary_html("Plan", form(Summary("", (), [SummaryRow("kept", f"a{i}") for i in range(count)])))
    keys = re.findall("<code>(a[0-9]+)</code>", page)
    assert keys == [f"a{i}" for i in range(count) if count == 61 or i < 30 or i >= count - 30]
    assert (f"… and {count - 60:,} more leaves" in page) == (count > 61)


@pytest.mark.slow("draws pages in a browser")
@pytest.mark.parametrize(
    "text", ["'" * 100_000, "\U0001f600" * 10_000, "\x1b" * 10_000, EVIL, f"{EVIL}{'&' * 1000}"]
)
@pytest.mark.parametrize("form", [lambda summary: summary, as_tree])
def test_nothing_hostile_becomes_markup_or_large(text: str, form) -> None:
    page = summary_html("Plan", form(hostile(text, 5000)))
    assert len(page.encode()) <= 200_000
    assert "\x1b" not in page
    elements = Elements(page)
    assert elements.open == []
    assert {tags[-1] for tags in elements.found} <= {
        *("div", "style", "p", "b", "code", "span"),
        *("table", "tbody", "tr", "td", "details", "summary"),
    }
    assert elements.attributes <= {"class", "open"}


def test_nothing_is_loaded() -> None:
    assert not re.search(r"https?:|url\(|@import|@font-face", summary_html("Plan", hostile("a", 3)))


def test_colours_are_those_of_the_notebook_or_of_the_page_of_a_report() -> None:
    """Of the page light ones, then dark ones."""
    page, style = (ASSETS / "page.css").read_text(), STYLE.read_text()
    for name in ("text", "quiet", "line", "red", "green", "yellow", "magenta", "cyan"):
        light, dark = re.findall(rf"--{name}: (#\w+);", page)
        notebook = r"var\(--jp-[\w-]+, var\(--vscode-" if name != "magenta" else ""
        assert re.search(rf"--{name}: {notebook}.*light-dark\({light}, {dark}\)", style), name
