"""A summary as HTML for a notebook: at most 200 kB, without scripts, and nothing is loaded.

Colours are those of the notebook where it names them (JupyterLab and VS Code do), else those of light or of
dark pages, by the page's `color-scheme`.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path

from ckpt_surgery.core.summaries.summary import Summary, SummaryRow, both_ends
from ckpt_surgery.core.text import shortened, shown

STYLE = Path(__file__).with_name("notebook.css")
MOST_ROWS = 30
"""Rows that are shown at each end of many."""
MOST_LINES = 6
"""Lines before the rows, and after them."""
LONGEST_TEXT = 400
"""Characters of such a line."""
LONGEST_KEY, LONGEST_CELL = 220, 80
"""Characters of a row: a character is up to six bytes of HTML, and all rows have to fit into 200 kB."""


def summary_html(type_name: str, summary: Summary) -> str:
    """The HTML: one element, with its style inside."""
    return "".join(_parts(type_name, summary))


def _parts(type_name: str, summary: Summary) -> Iterator[str]:
    yield f'<div class="ckpt-surgery"><style>{STYLE.read_text(encoding="utf-8")}</style>'
    yield f"<p><b>{_text(type_name, LONGEST_TEXT)}</b> {_text(summary.about, LONGEST_TEXT)}</p>"
    yield from _paragraphs(summary.facts)
    yield from _table(summary) if summary.tree is None else _tree(summary, summary.tree())
    yield from _paragraphs(summary.closing)
    yield "</div>"


def _text(text: str, most: int) -> str:
    """A text of a checkpoint or a recipe, for any place between tags or quotes."""
    return escape(shortened(shown(text), most))


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"<p>{_text(line, LONGEST_TEXT)}</p>" for line in lines[:MOST_LINES] if line)
    if len(lines) > MOST_LINES:
        yield f"<p>… and {len(lines) - MOST_LINES:,} more</p>"


def _table(summary: Summary) -> Iterator[str]:
    first, left_out, last = both_ends(summary.rows, MOST_ROWS)
    if first:
        yield "<table><tbody>"
        yield from map(_table_row, first)
        if left_out:
            yield f'<tr><td></td><td class="more">{summary.more(left_out)}</td><td></td><td></td></tr>'
        yield from map(_table_row, last)
        yield "</tbody></table>"


def _table_row(row: SummaryRow) -> str:
    return (
        f'<tr><td class="{_class_of(row.word)}">{_text(row.word, LONGEST_CELL)}</td>'
        f"<td><code>{_text(row.key, LONGEST_KEY)}</code></td>"
        f"<td>{_text(row.what, LONGEST_CELL)}</td><td>{_text(row.why, LONGEST_CELL)}</td></tr>"
    )


def _class_of(word: str) -> str:
    """`only-in-a` for `only in A`."""
    return re.sub("[^a-z]+", "-", word.lower()).strip("-")


def _tree(summary: Summary, rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Nested elements, which fold without a script. A tree with very many rows is one level deep."""
    first, left_out, last = both_ends(rows, MOST_ROWS)
    yield from _branches(first)
    if left_out:
        yield f'<div class="leaf more">{summary.more(left_out)}</div>'
    yield from _branches(last)


def _branches(rows: Sequence[SummaryRow]) -> Iterator[str]:
    levels: list[int] = []
    for row, following in zip_longest(rows, rows[1:]):
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
