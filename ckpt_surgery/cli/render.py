"""Listings and comparisons as lines of styled text. Prints nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.core.documents import json_text
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.report.differences import (
    Difference,
    DifferenceRow,
    Holds,
    ValueDifference,
    difference_rows,
    why_missing,
)
from ckpt_surgery.report.leaves import LeafRow, Statistics, Unread, leaf_rows

if TYPE_CHECKING:
    from ckpt_surgery.inspecting import Inspection

WORD = 13
"""Width of the first column."""

MOST_VALUES = 20
"""Number of leaves with differing values that are listed without `--full`."""

MOST_METADATA = 200
"""Number of characters of metadata that are shown without `-v`."""


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


@dataclass
class _Node:
    """A node of the tree of folded keys."""

    row: LeafRow | None = None
    children: dict[str, "_Node"] = field(default_factory=dict)


def inspection_lines(
    found: "Inspection", *, flat: bool, full: bool, verbose: bool, width: int
) -> Iterator[Text]:
    """Head, then a tree or a flat list of the leaves."""
    yield from _inspection_head(found, verbose)
    yield Text()
    rows = leaf_rows(found.leaves, full=full)
    named = [(row.key, row) for row in rows] if flat else list(_tree(rows))
    yield from _leaf_lines(named, verbose, width)


def statistics_lines(found: "Inspection", verbose: bool) -> Iterator[Text]:
    """Head, then a line for every leaf with its numbers, or why it has none."""
    statistics = found.statistics or {}
    yield from _inspection_head(found, verbose)
    yield Text()
    rows = leaf_rows(found.leaves, full=True)
    column = max((cell_len(row.key) for row in rows), default=0)
    wide = max((len(row.spec) for row in rows), default=0)
    for leaf, row in zip(found.leaves, rows, strict=True):
        line = Text(row.key).append(" " * (column - cell_len(row.key) + 2))
        line.append(f"{row.spec:<{wide}}", "dim")
        line.append_text(_statistics_text(statistics.get(leaf.key.text))).rstrip()
        yield line


def _statistics_text(stats: Statistics | Unread | None) -> Text:
    if stats is None:
        return Text()
    if isinstance(stats, Unread):
        return Text(f"  not read: {stats.why}", "bold red" if stats.damaged else "")
    numbers = (("min", stats.minimum), ("max", stats.maximum), ("mean", stats.mean), ("std", stats.std))
    text = Text("".join(f"  {name} {'-' if n is None else f'{n:.4g}':<10}" for name, n in numbers).rstrip())
    for name, count in (("NaN", stats.nan), ("inf", stats.inf)):
        if count:
            text.append(f"  {count:,} {name}", "bold red")
    return text


def chosen_text(format: str, step: int | None, item: str | None) -> str:
    """`orbax, step 10, item default`: the format of a checkpoint, and what was chosen from its path."""
    parts = [shown(format)]
    parts += [] if step is None else [f"step {step}"]
    parts += [] if item is None else [f"item {shown(item)}"]
    return ", ".join(parts)


def _inspection_head(found: "Inspection", verbose: bool) -> Iterator[Text]:
    about = chosen_text(found.format, found.step, found.item)
    size = bytes_text(sum(leaf.nbytes for leaf in found.leaves))
    yield Text().append(shown(found.path), "bold").append(f"  ({about})", "dim")
    yield Text(f"{number_of(len(found.leaves), 'leaf')}, {size}")
    if found.metadata:
        text = json_text(found.metadata, indent=None).strip()
        cut = len(text) > MOST_METADATA and not verbose
        yield (
            Text()
            .append("metadata ", "dim")
            .append(f"{text[:MOST_METADATA]}… (-v shows all)" if cut else text)
        )


def _tree(rows: Iterable[LeafRow]) -> Iterator[tuple[str, LeafRow | None]]:
    """Indented names in order. A node with one child and no leaf of its own shares the line of its child."""
    root = _Node()
    for row in rows:
        node = root
        for part in row.key.split("/"):
            node = node.children.setdefault(part, _Node())
        node.row = row
    waiting = [(0, name, node) for name, node in reversed(root.children.items())]
    while waiting:
        depth, name, node = waiting.pop()
        parts = [name]
        while node.row is None and len(node.children) == 1:
            ((name, node),) = node.children.items()
            parts.append(name)
        yield "  " * depth + "/".join(parts), node.row
        waiting += [(depth + 1, name, child) for name, child in reversed(node.children.items())]


def _leaf_lines(named: Sequence[tuple[str, LeafRow | None]], verbose: bool, width: int) -> Iterator[Text]:
    rows = [row for _, row in named if row is not None]
    tails = iter(_leaf_tails(rows, verbose))
    longest = max((cell_len(name) for name, row in named if row is not None), default=0)
    column = max(24, min(longest, width - 40))
    for name, row in named:
        if row is None:
            yield Text(name, "bold")
        else:
            yield from _beside(name, next(tails), column)


def _beside(name: str, tail: str, column: int) -> Iterator[Text]:
    if cell_len(name) > column:
        yield Text(name)
        yield Text(" " * (column + 2)).append(tail, "dim")
    else:
        yield Text(name).append(" " * (column - cell_len(name) + 2)).append(tail, "dim")


def _leaf_tails(rows: Sequence[LeafRow], verbose: bool) -> list[str]:
    """Count, kind and spec, bytes and sharding of each row, in columns; with `verbose` chunks too."""
    cells = [
        [
            f"{row.count:,} ×" if row.count > 1 else "",
            row.spec,
            bytes_text(row.nbytes),
            row.sharding,
            row.chunks if verbose else "",
        ]
        for row in rows
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    right = (True, False, True, False, False)
    return ["  ".join(_padded(row, widths, right)).rstrip() for row in cells]


def _padded(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """The cells of the columns that are not empty, padded."""
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        if width:
            padding = " " * (width - cell_len(cell))
            yield padding + cell if to_right else cell + padding


def difference_lines(difference: Difference, *, full: bool, width: int) -> Iterator[Text]:
    """What differs, then the summary."""
    rows = difference_rows(difference, full=full)
    tails = tails_of([(row.count, _before_after(row), row.why) for row in rows])
    column = key_width([row.key for row in rows], tails, width)
    for row, tail in zip(rows, tails, strict=True):
        yield from aligned(_side(row.side), Text(row.key), Text(tail, "dim"), column)
    yield from _value_lines([v for v in difference.values or () if not v.equal], full)
    yield from _listed([(one.key, shown(one.why)) for one in difference.uncompared], "not compared", full)
    yield _difference_summary(difference)


def _before_after(row: DifferenceRow) -> str:
    return " → ".join(text for text in (row.before, row.after) if text)


def _side(side: str) -> Text:
    styles = {"only in A": "bold red", "only in B": "green", "changed": "yellow"}
    return start_of(side, styles[side])


def _value_lines(values: Sequence[ValueDifference], full: bool) -> Iterator[Text]:
    """The leaves whose values differ: those without distances first, then by decreasing relative distance."""
    worst = sorted(values, key=lambda value: (value.max_rel is not None, -(value.max_rel or 0)))
    return _listed([(value.key, _distance(value)) for value in worst], "values", full)


def _distance(value: ValueDifference) -> str:
    if value.max_abs is None or value.max_rel is None:
        return "other bytes"
    cosine = "-" if value.cosine is None else f"{value.cosine:.8f}"
    return f"max abs {value.max_abs:<10.4g} max rel {value.max_rel:<10.4g} cosine {cosine}"


def _listed(told: Sequence[tuple[str, str]], word: str, full: bool) -> Iterator[Text]:
    """A line for each key and its text; only the first ones of many, unless `full`."""
    listed = [(shown(key), text) for key, text in (told if full else told[:MOST_VALUES])]
    column = max((cell_len(key) for key, _ in listed), default=0)
    for key, text in listed:
        yield start_of(word, "yellow").append(f"{key}{' ' * (column - cell_len(key) + 2)}{text}")
    if len(told) > len(listed):
        yield start_of(word, "yellow").append(f"and {len(told) - len(listed):,} more leaves (--full)")


def _difference_summary(difference: Difference) -> Text:
    compared = difference.values
    if not difference.different:
        what = "keys, kinds, shapes, dtypes" + ("" if compared is None else " and values")
        note = "; --values compares the numbers too" if compared is None else ""
        return (
            Text()
            .append("same ", "bold green")
            .append(f"{what} ({number_of(difference.common, 'leaf')}){note}")
        )
    unequal = sum(not value.equal for value in compared or ())
    parts = [
        (len(difference.only_a), f"only in A{_of_empty(difference.only_a, difference.holds_b)}"),
        (len(difference.only_b), f"only in B{_of_empty(difference.only_b, difference.holds_a)}"),
        (len(difference.changed), "changed"),
        (unequal, "with other values"),
        (len(difference.uncompared), "not compared"),
    ]
    text = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    word = "different: " if difference.known else "not known to be the same: "
    return Text().append(word, "bold").append(f"{text}; {number_of(difference.common, 'leaf')} in both")


def _of_empty(leaves: Sequence[Leaf], other: Holds) -> str:
    """A remark on how many of the leaves the format of the other checkpoint cannot hold."""
    count = sum(bool(why_missing(leaf, other)) for leaf in leaves)
    if not count:
        return ""
    return f" ({number_of(count, 'empty node')}, which {other.format} does not hold)"
