"""What people see: lines of styled text from plans, listings and comparisons. Prints nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.keys import shown
from ckpt_surgery.planner import Fate, Input, Plan
from ckpt_surgery.report import (
    DROPPED,
    Difference,
    DifferenceRow,
    LeafRow,
    Row,
    Statistics,
    Unread,
    ValueDifference,
    counts,
    difference_rows,
    json_text,
    leaf_rows,
    plan_rows,
)

if TYPE_CHECKING:
    from ckpt_surgery.api import Inspection, Result

STYLES = {
    Fate.KEPT.value: "dim",
    Fate.RENAMED.value: "cyan",
    Fate.TRANSFORMED.value: "magenta",
    Fate.ADDED.value: "green",
    Fate.DEFAULTED.value: "bold yellow",
    DROPPED: "bold red",
}
"""In the order in which the diff shows them: what may be a surprise comes last, next to the prompt."""
LOUD = frozenset({Fate.DEFAULTED.value, DROPPED})
"""Written in capitals, so that they stand out without colour too."""

WORD = 13
"""Width of the first column."""
MOST_SOURCES = 3
"""Patterns of sources that one line of the diff shows without `--full`."""
MOST_VALUES = 20
"""Leaves with differing values that are listed without `--full`."""
MOST_METADATA = 200
"""Characters of metadata that are shown without `-v`."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_text(count: float) -> str:
    """`1.50 GiB`: three significant digits, powers of 1024."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    digits = 0 if unit == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f} {_UNITS[unit]}"


def number_of(count: int, noun: str) -> str:
    """`1 leaf`, `2 leaves`, `3 problems`."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def seconds_text(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


# --- plans -------------------------------------------------------------------------------------------


def plan_lines(plan: Plan, *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """The diff: inputs, rows by fate, totals. Kept leaves are only counted, unless `full` or `verbose`."""
    yield _labelled("recipe", shown(plan.recipe))
    yield from map(_input_line, plan.inputs)
    yield Text()
    order = list(STYLES)
    rows = sorted(plan_rows(plan, full=full), key=lambda row: order.index(row.fate))
    kept = [row for row in rows if row.fate == Fate.KEPT]
    if kept and not (full or verbose):
        rows = rows[len(kept) :]
        text = f"{number_of(sum(r.count for r in kept), 'leaf')}, {bytes_text(sum(r.nbytes for r in kept))}"
        yield _word(Fate.KEPT.value).append(text, "dim")
    yield from _row_lines(rows, width, full)
    if kept or rows:
        yield Text()
    yield _totals(plan)
    yield _costs(plan)


def warning_lines(warnings: Iterable[str]) -> Iterator[Text]:
    """One line for each."""
    for warning in warnings:
        yield Text.assemble(("warning: ", "bold yellow"), shown(warning))


def result_line(result: "Result") -> Text:
    """The last line of `apply`: counts, bytes, seconds, destination."""
    size, seconds = result.plan.costs.bytes_out, result.seconds
    line = Text.assemble(("done", "bold green"), "  ")
    line.append_text(_fates(result.plan))
    line.append(f" · {bytes_text(size)} in {seconds_text(seconds)}")
    if seconds >= 1:
        line.append(f" ({bytes_text(size / seconds)}/s)")
    line.append(f" · {shown(result.destination)}")
    return line.append("" if result.verified == "none" else f" · verified: {result.verified}")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{WORD}}", "dim"), text)


def _input_line(source: Input) -> Text:
    label = shown(source.name)
    label = label if len(label) < WORD else f"{label} "
    about = f"  ({shown(source.format)}, {number_of(source.leaves, 'leaf')})"
    return _labelled(label, shown(source.path)).append(about, "dim")


def _word(fate: str) -> Text:
    return _start(fate.upper() if fate in LOUD else fate, STYLES[fate])


def _start(word: str, style: str) -> Text:
    """The first column of a line; what is appended has a style of its own."""
    return Text().append(f"{word:<{WORD}}", style)


def _row_lines(rows: Sequence[Row], width: int, full: bool) -> Iterator[Text]:
    tails = _tails([(row.count, row.spec, _reason(row)) for row in rows])
    column = _key_width([row.key for row in rows], tails, width)
    for row, tail in zip(rows, tails, strict=True):
        yield from _aligned(_word(row.fate), Text(row.key), Text(tail, "dim"), column)
        if sources := _sources(row, full):
            yield Text(" " * WORD).append(f"← {sources}", "dim")


def _reason(row: Row) -> str:
    """Which rule, or which policy, decided."""
    if row.rule is None:
        return "the target's value" if row.fate == Fate.DEFAULTED else shown(row.why)
    return f"{shown(row.rule.path)}, line {row.rule.line}"


def _sources(row: Row, full: bool) -> str:
    """What the leaves are made from; nothing where that is the key itself."""
    if row.sources in ((), (row.key,), (f"target:{row.key}",)):
        return ""
    most = len(row.sources) if full else MOST_SOURCES
    listed = ", ".join(row.sources[:most])
    more = f" and {len(row.sources) - most} more" if len(row.sources) > most else ""
    return f"{listed}{more}{f'  ({row.gathers} → 1)' if row.gathers > 1 else ''}"


def _tails(parts: Sequence[tuple[int, str, str]]) -> list[str]:
    """`48 × bf16[2048,8192]  rules[0], line 12`, in columns."""
    many = max((len(f"{count:,}") for count, _, _ in parts), default=0)
    wide = max((len(spec) for _, spec, _ in parts), default=0)
    return [f"{count:>{many},} × {spec:<{wide}}  {rest}".rstrip() for count, spec, rest in parts]


def _key_width(keys: Sequence[str], tails: Sequence[str], width: int) -> int:
    """Of the column of keys: as wide as the keys, as far as the tails still fit beside them."""
    wanted = max(map(cell_len, keys), default=0)
    return max(24, min(wanted, width - WORD - 2 - max(map(cell_len, tails), default=0)))


def _aligned(start: Text, key: Text, tail: Text, column: int) -> Iterator[Text]:
    """One line, or two where the key is too long for its column."""
    if key.cell_len > column:
        yield start.append_text(key)
        yield Text(" " * (WORD + column + 2)).append_text(tail)
    else:
        yield start.append_text(key).append(" " * (column - key.cell_len + 2)).append_text(tail)


def _totals(plan: Plan) -> Text:
    sources = [i for i in plan.inputs if i.name != "target"]
    before = sum(i.leaves for i in sources)
    return Text(f"{number_of(before, 'leaf')} → {len(plan.steps):,}: ").append_text(_fates(plan))


def _fates(plan: Plan) -> Text:
    """`1 kept, 140 renamed, 1 DROPPED`."""
    found = counts(plan)
    parts = [
        Text(f"{found[fate]:,} {fate.upper() if fate in LOUD else fate}", style)
        for fate, style in STYLES.items()
        if found[fate]
    ]
    return Text(", ").join(parts) if parts else Text("nothing")


def _costs(plan: Plan) -> Text:
    costs = plan.costs
    parts = (
        (costs.bytes_linked, "linked"),
        (costs.bytes_copied, "copied"),
        (costs.bytes_computed, "computed"),
    )
    ways = ", ".join(f"{bytes_text(size)} {way}" for size, way in parts if size)
    dead = f", {bytes_text(costs.bytes_dead)} unused in linked files" if costs.bytes_dead else ""
    return Text(
        f"{bytes_text(costs.bytes_out)} out{f' ({ways})' if ways else ''}{dead}, "
        f"{bytes_text(costs.bytes_read)} to read, peak memory {bytes_text(costs.peak_memory)}"
    )


# --- listings ----------------------------------------------------------------------------------------


@dataclass
class _Node:
    """A path component (or several) of the folded keys."""

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


def statistics_lines(
    found: "Inspection", statistics: Mapping[str, Statistics | Unread], verbose: bool
) -> Iterator[Text]:
    """Head, then a line for every leaf with its numbers, or why it has none."""
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


def _inspection_head(found: "Inspection", verbose: bool) -> Iterator[Text]:
    about = [shown(found.format)]
    about += [] if found.step is None else [f"step {found.step}"]
    about += [] if found.item is None else [f"item {shown(found.item)}"]
    size = bytes_text(sum(leaf.nbytes for leaf in found.leaves))
    yield Text().append(shown(found.path), "bold").append(f"  ({', '.join(about)})", "dim")
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
    """Indented names in order; a component that leads to one place only shares a line with what follows."""
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
    """Count, what it is, bytes, sharding; with `verbose` chunks too."""
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


# --- comparisons -------------------------------------------------------------------------------------


def difference_lines(difference: Difference, *, full: bool, width: int) -> Iterator[Text]:
    """What differs, then the summary."""
    rows = difference_rows(difference, full=full)
    tails = _tails([(row.count, _before_after(row), "") for row in rows])
    column = _key_width([row.key for row in rows], tails, width)
    for row, tail in zip(rows, tails, strict=True):
        yield from _aligned(_side(row.side), Text(row.key), Text(tail, "dim"), column)
    yield from _value_lines([v for v in difference.values or () if not v.equal], full)
    yield _difference_summary(difference)


def _before_after(row: DifferenceRow) -> str:
    return " → ".join(text for text in (row.before, row.after) if text)


def _side(side: str) -> Text:
    styles = {"only in A": "bold red", "only in B": "green", "changed": "yellow"}
    return _start(side, styles[side])


def _value_lines(values: Sequence[ValueDifference], full: bool) -> Iterator[Text]:
    """The leaves whose numbers differ, those that differ most (relatively) first."""
    worst = sorted(values, key=lambda value: -value.max_rel)
    listed = worst if full else worst[:MOST_VALUES]
    column = max((cell_len(shown(value.key)) for value in listed), default=0)
    for value in listed:
        key = shown(value.key)
        line = _start("values", "yellow").append(key + " " * (column - cell_len(key) + 2))
        cosine = "-" if value.cosine is None else f"{value.cosine:.8f}"
        yield line.append(f"max abs {value.max_abs:<10.4g} max rel {value.max_rel:<10.4g} cosine {cosine}")
    if len(worst) > len(listed):
        yield _start("values", "yellow").append(f"and {len(worst) - len(listed):,} more leaves (--full)")


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
        (len(difference.only_a), "only in A"),
        (len(difference.only_b), "only in B"),
        (len(difference.changed), "changed"),
        (unequal, "with other values"),
    ]
    text = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    return (
        Text().append("different: ", "bold").append(f"{text}; {number_of(difference.common, 'leaf')} in both")
    )
