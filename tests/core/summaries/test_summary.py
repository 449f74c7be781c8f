"""Representations as text, how long they are, what is cut and escaped, and where they come from."""

import pytest

from ckpt_surgery.core.summaries.represented import Represented, from_above
from ckpt_surgery.core.summaries.summary import LINES, Summary, SummaryRow, summary_text, text_rows

HOSTILE = ["\x1b[31m", "a\nb", "\u202e", "x" * 100_000, "\U000e0001" * 10_000]


def rows(count: int, **more: str) -> list[SummaryRow]:
    return [SummaryRow("renamed", f"a{i}", **more) for i in range(count)]


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


def test_rows_without_words_begin_with_their_keys() -> None:
    summary = Summary("a", (), text_rows("version: 1\nrules:\n  - {drop: true}"), noun=LINES)
    assert summary_text("Recipe", summary).splitlines()[1:] == [
        "  version: 1",
        "  rules:",
        "    - {drop: true}",
    ]


@pytest.mark.parametrize(
    ("count", "shown", "more"),
    [(21, 21, None), (22, 20, "… and 2 more leaves"), (50_000, 20, "… and 49,980 more leaves")],
)
def test_ten_are_shown_at_each_end(count: int, shown: int, more: str | None) -> None:
    lines = summary_text("Plan", Summary("", (), rows(count))).splitlines()[1:]
    keys = [line.split()[1] for line in lines if "renamed" in line]
    assert keys == [f"a{i}" for i in range(count) if i < 10 or i >= count - shown + 10]
    assert [line.strip() for line in lines if "renamed" not in line] == ([] if more is None else [more])


def test_what_is_left_out_is_counted_in_leaves() -> None:
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


def test_both_ends_of_long_keys_are_shown() -> None:
    key = f"first/{'x' * 500}/last → to/{'y' * 500}/kernel"
    (line,) = summary_text(
        "Plan", Summary("", (), [SummaryRow("renamed", key, "f32[8]", "rules[0]")])
    ).splitlines()[1:]
    assert line.split()[1].startswith("first/xxx")
    assert "yyy/kernel  f32[8]  rules[0]" in line


class Small(Represented):
    def _summary(self) -> Summary:
        return Summary("of nothing")


def test_both_forms_come_from_one_summary() -> None:
    assert repr(Small()) == "<Small of nothing>"
    assert "<b>Small</b> of nothing" in Small()._repr_html_()


def test_functions_are_found_by_name() -> None:
    assert from_above("core.text", "shown")("\x1b") == "\\x1b"
