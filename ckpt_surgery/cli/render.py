"""Texts, and lines in columns, that several commands show. Prints nothing."""

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.core.text import shown

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


def whole_seconds_text(seconds: float) -> str:
    """`5 s`, `3 min 20 s`, `2 h 05 min`: of what nobody knows more exactly."""
    if round(seconds) < 60:
        return f"{round(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def start_of(word: str, style: str) -> Text:
    """The first column of a line. The style does not extend to text that is appended."""
    return Text().append(f"{word:<{WORD}}", style)


def tails_of(parts: Sequence[tuple[int, str, str]]) -> list[str]:
    """`48 × bf16[2048,8192]  rules[0], line 12`, in columns."""
    many = max((len(f"{count:,}") for count, _, _ in parts), default=0)
    wide = max((len(spec) for _, spec, _ in parts), default=0)
    return [f"{count:>{many},} × {spec:<{wide}}  {rest}".rstrip() for count, spec, rest in parts]


def warning_lines(warnings: Iterable[str]) -> Iterator[Text]:
    """One line for each."""
    for warning in warnings:
        yield Text.assemble(("Warning: ", "bold yellow"), shown(warning))


def key_width(keys: Sequence[str], tails: Sequence[str], width: int) -> int:
    """Width of the column of keys: that of the longest key, or less if the tails would not fit beside it."""
    wanted = max(map(cell_len, keys), default=0)
    return max(24, min(wanted, width - WORD - 2 - max(map(cell_len, tails), default=0)))


def aligned(start: Text, key: Text, tail: Text, column: int) -> Iterator[Text]:
    """One line, or two where the key is too long for its column."""
    if key.cell_len > column:
        yield start.append_text(key)
        yield Text(" " * (WORD + column + 2)).append_text(tail)
    else:
        yield start.append_text(key).append(" " * (column - key.cell_len + 2)).append_text(tail)


def chosen_text(format: str, step: int | None, item: str | None) -> str:
    """`orbax, step 10, item default`: the format of a checkpoint, and what was chosen from its path."""
    parts = [shown(format)]
    parts += [] if step is None else [f"step {step}"]
    parts += [] if item is None else [f"item {shown(item)}"]
    return ", ".join(parts)
