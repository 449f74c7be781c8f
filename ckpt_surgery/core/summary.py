"""Short representations of large results: their content, text for a terminal, and HTML for a notebook.

The text has at most 25 lines and 2,000 characters. The HTML has at most 200 kB, no scripts, and loads nothing
else. Its colours are those of the notebook where it names them (JupyterLab and VS Code do), else those of
light or of dark pages, by the page's `color-scheme`.
"""

import importlib
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.core.text import shortened, shown

MOST_LINES = 25
MOST_CHARACTERS = 2000
MOST_ROWS = 10
"""Rows that are shown at each end of many."""
MOST_LINES_AROUND = 3
"""Lines before and after the rows, without the first."""
WIDTHS = (110, MOST_CHARACTERS // MOST_LINES - 1)
"""Characters of a line: as many as most terminals show, or so few that any text is short enough."""
WORD = 13
"""Characters of the first column."""
SHARE_OF_WHAT, SHARE_OF_WHY = 0.3, 0.17
"""Parts of a line for what leaves hold, and for the rule, where keys need the room."""
LEAST_OF_KEY = 40
"""Characters of keys below which the rule is left out."""


@dataclass(frozen=True)
class SummaryRow:
    """One line: leaves that share a pattern, or anything else there can be very many of."""

    word: str
    """Fate of the leaves: `renamed`, `only in A`; empty if they have none."""
    key: str
    """Pattern of their keys, or `old → new`; any other text."""
    what: str = ""
    """Their content: `48 × bf16[2048,8192]`."""
    why: str = ""
    """The rule, or the reason."""
    count: int = 1
    """Number of leaves that the line stands for."""
    level: int = 0
    """Number of lines above that this one is inside of."""


@dataclass(frozen=True)
class Summary:
    """A result in a few lines. Its texts may hold any character and be of any length."""

    about: str
    """Text after the name of the class on the first line."""
    facts: Sequence[str] = ()
    """Lines before the rows."""
    rows: Sequence[SummaryRow] = ()
    closing: Sequence[str] = ()
    """Lines after the rows."""
    tree: Callable[[], Sequence[SummaryRow]] | None = None
    """Makes the same rows as a tree, which HTML shows in their place; None where they are no listing."""
    noun: tuple[str, str] = ("leaf", "leaves")
    """Nouns for the things that rows count, singular and plural."""

    def more(self, left_out: Sequence[SummaryRow]) -> str:
        """The line in place of rows that are not shown: `… and 1,234 more leaves`."""
        count = sum(row.count for row in left_out)
        return f"… and {count:,} more {self.noun[count != 1]}"


def both_ends(rows: Sequence[SummaryRow], most: int) -> tuple[Sequence[SummaryRow], ...]:
    """The first rows, those that are left out, and the last ones: `most` of them at each end."""
    if len(rows) <= 2 * most + 1:
        return rows, (), ()
    return rows[:most], rows[most : len(rows) - most], rows[len(rows) - most :]


LINES = ("line", "lines")
"""Nouns for rows that are lines of a text."""


def text_rows(text: str) -> list[SummaryRow]:
    """The lines of a text, such as a recipe."""
    return [SummaryRow("", line) for line in text.splitlines()]


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Each warning, with its number where there are several: a representation may only show the first."""
    if len(warnings) == 1:
        return [f"Warning: {warnings[0]}"]
    return [f"Warning {n} of {len(warnings)}: {warning}" for n, warning in enumerate(warnings, 1)]


def summary_text(type_name: str, summary: Summary) -> str:
    """The text, without a line break at its end; its first line begins with the name of the class."""
    for width in WIDTHS:
        text = "\n".join(_lines(type_name, summary, width))
        if len(text) <= MOST_CHARACTERS:
            break
    return text


def _lines(type_name: str, summary: Summary, width: int) -> Iterator[str]:
    facts = [fact for fact in summary.facts if fact][:MOST_LINES_AROUND]
    closing = summary.closing[: MOST_LINES_AROUND - len(facts)]
    yield _cut(f"<{type_name} {summary.about}>", width)
    yield from (_cut(f"  {fact}", width) for fact in facts)
    first, left_out, last = both_ends(summary.rows, MOST_ROWS)
    rows = _row_lines([*first, *last], width - 2)
    yield from (f"  {row}" for row in rows[: len(first)])
    if left_out:
        yield f"  {summary.more(left_out)}"
    yield from (f"  {row}" for row in rows[len(first) :])
    yield from (_cut(f"  {line}", width) for line in closing)


def _cut(text: str, width: int) -> str:
    return shortened(shown(text), width)


def _row_lines(rows: Sequence[SummaryRow], width: int) -> list[str]:
    """Rows in columns; keys are cut where they are too long, and rules go first."""
    if not rows:
        return []
    cells = [tuple(map(shown, (row.word, row.key, row.what, row.why))) for row in rows]
    longest_word, longest, what, why = (max(map(len, column)) for column in zip(*cells, strict=True))
    word = WORD if longest_word else 0
    if word + longest + what + why + 4 > width:
        what, why = min(what, int(SHARE_OF_WHAT * width)), min(why, int(SHARE_OF_WHY * width))
    room = width - word - what - why - 4
    if longest > room and room < LEAST_OF_KEY:
        why, room = 0, width - word - what - 2
    widths = (max(word - 1, 0), min(longest, room), what, why)
    lines = []
    for texts in cells:  # a column without a width is left out
        first, *rest = (f"{shortened(t, n):<{n}}" if n else "" for t, n in zip(texts, widths, strict=True))
        lines.append(f"{first}{' ' if first else ''}{'  '.join(rest)}".rstrip())
    return lines


# --- for a notebook -----------------------------------------------------------------------------------------

STYLE = Path(__file__).with_name("notebook.css")
HTML_ROWS = 30
"""Rows that are shown at each end of many."""
HTML_LINES, LONGEST_TEXT = 6, 400
"""Lines before the rows, and after them, and characters of such a line."""
LONGEST_KEY, LONGEST_CELL = 220, 80
"""Characters of a row: a character is up to six bytes of HTML, and all rows have to fit into 200 kB."""


def summary_html(type_name: str, summary: Summary) -> str:
    """The HTML: one element, with its style inside."""
    style = f'<div class="ckpt-surgery"><style>{STYLE.read_text(encoding="utf-8")}</style>'
    about = f"<p><b>{_text(type_name, LONGEST_TEXT)}</b> {_text(summary.about, LONGEST_TEXT)}</p>"
    rows = _table(summary) if summary.tree is None else _tree(summary, summary.tree())
    return "".join(
        (style, about, *_paragraphs(summary.facts), *rows, *_paragraphs(summary.closing), "</div>")
    )


def _text(text: str, most: int) -> str:
    """A text of a checkpoint or a recipe, for any place between tags or quotes."""
    return escape(shortened(shown(text), most))


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"<p>{_text(line, LONGEST_TEXT)}</p>" for line in lines[:HTML_LINES] if line)
    if len(lines) > HTML_LINES:
        yield f"<p>… and {len(lines) - HTML_LINES:,} more</p>"


def _table(summary: Summary) -> Iterator[str]:
    first, left_out, last = both_ends(summary.rows, HTML_ROWS)
    more = f'<tr><td></td><td class="more">{summary.more(left_out)}</td><td></td><td></td></tr>'
    rows = [*map(_table_row, first), *([more] if left_out else []), *map(_table_row, last)]
    yield from ("<table><tbody>", *rows, "</tbody></table>") if rows else ()


def _table_row(row: SummaryRow) -> str:
    word = re.sub("[^a-z]+", "-", row.word.lower()).strip("-")  # `only-in-a` for `only in A`
    return (
        f'<tr><td class="{word}">{_text(row.word, LONGEST_CELL)}</td>'
        f"<td><code>{_text(row.key, LONGEST_KEY)}</code></td>"
        f"<td>{_text(row.what, LONGEST_CELL)}</td><td>{_text(row.why, LONGEST_CELL)}</td></tr>"
    )


def _tree(summary: Summary, rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Nested elements, which fold without a script. A tree with very many rows is one level deep."""
    first, left_out, last = both_ends(rows, HTML_ROWS)
    yield from _branches(first)
    if left_out:
        yield f'<div class="leaf more">{summary.more(left_out)}</div>'
    yield from _branches(last)


def _branches(rows: Sequence[SummaryRow]) -> Iterator[str]:
    levels: list[int] = []
    for row, following in itertools.zip_longest(rows, rows[1:]):
        while levels and levels[-1] >= row.level:
            yield "</details>"
            levels.pop()
        if following is not None and following.level > row.level:
            yield f"<details open><summary>{_tree_row(row)}</summary>"
            levels.append(row.level)
        else:
            yield f'<div class="leaf">{_tree_row(row)}</div>'
    yield "</details>" * len(levels)


def _tree_row(row: SummaryRow) -> str:
    cells = (f" <span>{_text(cell, LONGEST_CELL)}</span>" for cell in (row.what, row.why) if cell)
    return f"<code>{_text(row.key, LONGEST_KEY)}</code>{''.join(cells)}"


# --- the base class -----------------------------------------------------------------------------------------


class Represented(ABC):
    """Base of results that can be as large as a checkpoint: short in a terminal (`repr`) and in a notebook.

    Dataclasses of it are made with `repr=False`.
    """

    __slots__ = ()

    @abstractmethod
    def _summary(self) -> Summary:
        """Summary for both forms; made on each display, from data in memory alone."""

    def __repr__(self) -> str:
        with without_collection():
            return summary_text(type(self).__name__, self._summary())

    def _repr_html_(self) -> str:
        with without_collection():
            return summary_html(type(self).__name__, self._summary())


def from_above(module: str, name: str) -> Any:
    """A function of a wing that stands above the caller's, imported when it is used.

    Plans and checkpoints are values of low wings; how they are shown is the business of wings above, which
    know them. Whoever calls this is listed in tests/test_layers.py, as an import in the other direction.
    """
    return getattr(importlib.import_module(f"ckpt_surgery.{module}"), name)
