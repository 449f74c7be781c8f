"""Texts, and lines in columns, that several commands show. Prints nothing."""

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from ckpt_surgery.core.text import shown

WORD = 13
"""Width of the first column."""


def sentence(text: str, width: int) -> Iterator[Text]:
    """A sentence, broken at spaces alone: no option, key or number is cut."""
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    yield from map(Text, lines)


def start_of(word: str, style: str) -> Text:
    """The first column of a line. The style does not extend to text that is appended."""
    return Text().append(f"{word:<{WORD}}", style)


def labelled(label: str, text: str | Text = "") -> Text:
    """Word of the first column for a text."""
    label = label if len(label) < WORD else f"{label} "
    return Text.assemble((f"{label:<{WORD}}", "dim"), text)


def warning_lines(warnings: Iterable[str]) -> Iterator[Text]:
    """One line for each."""
    for warning in warnings:
        yield Text.assemble(("Warning: ", "bold yellow"), shown(warning))
