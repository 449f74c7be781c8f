"""Texts, and lines in columns, that several commands show. Prints nothing."""

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from ckpt_surgery.core.text import shown, whole_seconds_text

WORD = 13
"""Width of the first column."""


def number_of(count: int, noun: str) -> str:
    """`1 leaf`, `2 leaves`, `3 problems`."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def seconds_text(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    return whole_seconds_text(seconds)


def sentence(text: str, width: int) -> Iterator[Text]:
    """A sentence, broken at spaces alone: no option, key or number is cut."""
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    yield from map(Text, lines)


def start_of(word: str, style: str) -> Text:
    """The first column of a line. The style does not extend to text that is appended."""
    return Text().append(f"{word:<{WORD}}", style)


def warning_lines(warnings: Iterable[str]) -> Iterator[Text]:
    """One line for each."""
    for warning in warnings:
        yield Text.assemble(("Warning: ", "bold yellow"), shown(warning))


def chosen_text(format: str, step: int | None, item: str | None) -> str:
    """`orbax, step 10, item default`: the format of a checkpoint, and what was chosen from its path."""
    parts = [shown(format)]
    parts += [] if step is None else [f"step {step}"]
    parts += [] if item is None else [f"item {shown(item)}"]
    return ", ".join(parts)
