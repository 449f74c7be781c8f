"""Plans and results as lines of styled text. Prints nothing."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.cli.render import (
    WORD,
    chosen_text,
    number_of,
    seconds_text,
    start_of,
)
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.report.plan import (
    ParamsRow,
    Row,
    linked_sources,
    param_rows,
    plan_rows,
    replacement_text,
    totals,
    version_text,
)

if TYPE_CHECKING:
    from ckpt_surgery import Plan, Result

STYLES = {
    "kept": "dim",
    "renamed": "cyan",
    "transformed": "magenta",
    "added": "green",
    "defaulted": "bold yellow",
    "dropped": "bold red",
}
"""Style of each fate, in the order of the diff: possible surprises come last, next to the prompt."""

KINDS = {"arrays": "arrays, ", "json": "JSON, ", "other": ""}
"""What an item holds."""

LOUD = frozenset({"defaulted", "dropped"})
"""Fates that are written in capitals, so that they stand out without colour too."""

ARROW = " → "
"""Between what a leaf was and what it is."""

LEAST_COLUMN = 24
"""Least width of the column of keys."""

MOST_SOURCES = 3
"""Number of patterns of sources that one line of the diff shows without `--full`."""


def plan_lines(plan: "Plan", *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """The diff: inputs, rows by fate, totals. Kept leaves are only counted, unless `full` or `verbose`."""
    yield _labelled("recipe", shown(plan.recipe))
    yield from _input_lines(plan)
    yield from _param_lines(param_rows(plan), width)
    yield Text()
    order = list(STYLES)
    rows = sorted(plan_rows(plan, full=full), key=lambda row: order.index(row.fate))
    kept = [row for row in rows if row.fate == "kept"]
    if kept and not (full or verbose):
        rows = rows[len(kept) :]
        text = f"{number_of(sum(r.total for r in kept), 'leaf')}, {bytes_text(sum(r.nbytes for r in kept))}"
        yield _word("kept").append(text, "dim")
    yield from row_lines(rows, width, full)
    yield from _item_lines(plan)
    if kept or rows or plan.dropped_items:
        yield Text()
    replacement = replacement_text(plan.replaces)
    if replacement is not None:
        yield Text(replacement)
    yield _totals(plan)
    yield _costs(plan)
    if plan.costs.bytes_linkable:
        why = (
            f"{bytes_text(plan.costs.bytes_linkable)} are copied because programs rewrite such files in "
            "place; `--link-mode hardlink` links them if nothing will rewrite SRC"
        )
        yield from map(Text, textwrap.wrap(why, width, break_on_hyphens=False))
    if plan.restorable_by:
        yield Text(f"restorable by {version_text(plan.restorable_by)}")


def result_line(result: "Result") -> Text:
    """The last line of `apply`: counts, bytes, seconds, destination."""
    size, seconds = result.plan.costs.bytes_out, result.seconds
    line = Text.assemble(("done", "bold green"), "  ")
    line.append_text(_fates(totals(result.plan).by_fate))
    line.append(f" · {bytes_text(size)} in {seconds_text(seconds)}")
    if seconds >= 1:
        line.append(f" ({bytes_text(size / seconds)}/s)")
    return line.append(f" · {shown(result.destination)}")


def shared_lines(result: "Result") -> Iterator[Text]:
    """Which files the result shares with sources."""
    count = len(result.shared)
    if count:
        files = "1 file is" if count == 1 else f"{count:,} files are"
        them = "it" if count == 1 else "them"
        sources = ", ".join(map(shown, linked_sources(result.plan)))
        yield Text(f"{files} shared with {sources} (hard links): do not rewrite {them} in place")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{WORD}}", "dim"), text)


def _input_lines(plan: "Plan") -> Iterator[Text]:
    for source in plan.inputs:
        label = shown(source.name)
        label = label if len(label) < WORD else f"{label} "
        chosen = chosen_text(source.format, source.step, source.item)
        about = f"  ({chosen}, {number_of(source.leaves, 'leaf')})"
        yield _labelled(label, shown(source.path)).append(about, "dim")


def _param_lines(rows: Iterable[ParamsRow], width: int) -> Iterator[Text]:
    """The values of the recipe's params, those of one origin together, wrapped between the values."""
    label = "params"
    for row in rows:
        lines = [""]
        *before, last = map(shown, row.values)
        origin = f"  ({shown(_origin(row))})"
        for value in (*(f"{value}, " for value in before), f"{last}{origin}"):
            if lines[-1] and WORD + cell_len(lines[-1] + value.rstrip()) > width:
                lines.append("")
            lines[-1] += value
        for line in lines:
            text = line.rstrip()
            told = text.removesuffix(origin.rstrip())
            yield _labelled(label, told).append(text[len(told) :], "dim")
            label = ""


def _origin(row: ParamsRow) -> str:
    match row.origin:
        case "set":
            return "--set"
        case "config":
            return row.note or ""
        case _:
            return "default" if row.note is None else f"default: {row.note}"


def _word(fate: str) -> Text:
    return start_of(fate.upper() if fate in LOUD else fate, STYLES[fate])


def row_lines(rows: Sequence[Row], width: int, full: bool) -> Iterator[Text]:
    """A line for each row: keys, what they hold, and the rule; two or three where that is too long."""
    cells = [(_keys(row, full), _held(row), _reason(row, full)) for row in rows]
    held = max((cell_len(held) for _, held, _ in cells), default=0)
    rule = max((cell_len(reason) for _, _, reason in cells), default=0)
    longest = max((cell_len(keys) for keys, _, _ in cells), default=0)
    column = max(LEAST_COLUMN, min(longest, width - WORD - 4 - held - rule))
    for row, (keys, what, reason) in zip(rows, cells, strict=True):
        columns = f"{what}{' ' * (held - cell_len(what))}  {reason}".rstrip()
        tails = (f"{' ' * (max(column - cell_len(keys), 0) + 2)}{columns}", f"  {what}  {reason}".rstrip())
        tail = next((one for one in tails if WORD + cell_len(keys) + cell_len(one) <= width), None)
        if tail is not None:
            yield _word(row.fate).append(keys).append(tail, "dim")
            continue
        first, *others = _within(keys, ARROW, width - WORD)
        yield _word(row.fate).append(first)
        yield from (Text(f"{' ' * WORD}{other}") for other in others)
        about = _within(f"{what}  {reason}".rstrip(), "  ", width - WORD)
        yield from (Text(" " * WORD).append(line, "dim") for line in about)


def _within(text: str, sign: str, width: int) -> list[str]:
    """A text on one line or, where that is too long, on two: before the sign, and from it on."""
    before, found, after = text.rpartition(sign)
    if cell_len(text) <= width or not found:
        return [text]
    return [before, f"{found.lstrip()}{after}"]


def _keys(row: Row, full: bool) -> str:
    """`old → new`, or the key alone where it stays."""
    if row.sources in ((), (row.key,), (f"target:{row.key}",)):
        return row.key
    most = len(row.sources) if full else MOST_SOURCES
    listed = ", ".join(row.sources[:most])
    more = f" and {len(row.sources) - most} more" if len(row.sources) > most else ""
    return f"{listed}{more}{ARROW}{row.key}"


def _held(row: Row) -> str:
    """`48 × bf16[2048,8192]`, `16 leaves, f32, also in mu and nu`, `i32[], value replaced`."""
    if row.leaves > 1:
        here = row.nbytes // (1 + len(row.also))
        size = [bytes_text(here)] if row.fate == "dropped" else []
        text = ", ".join([number_of(row.count * row.leaves, "leaf"), row.spec, *size])
    else:
        text = row.spec if row.gathers < 2 else f"{row.gathers:,} × {row.spec}"
        if row.gathers > 1 and ARROW not in row.spec:
            text = f"{row.spec}  ({row.gathers:,}{ARROW}1)"
        elif row.gathers > 1 and row.count > 1:
            text = f"({text})"
        text = f"{row.count:,} × {text}" if row.count > 1 else text
    text = f"{text}, also in {_listed(row.also)}" if row.also else text
    return f"{text}, {row.why}" if row.why and row.fate != "dropped" else text


def _listed(names: Sequence[str]) -> str:
    """`mu and nu`: the last components, where they tell the subtrees apart."""
    ends = [name.rpartition("/")[2] for name in names]
    return " and ".join(ends if len(set(ends)) == len(ends) else names)


def _reason(row: Row, full: bool) -> str:
    """The rules that did the work, or the policy that decided."""
    if row.rule is None:
        return "the target's value" if row.fate == "defaulted" else shown(row.why)
    rules = [row.rule, *(rule for rule in row.rules if rule != row.rule)]
    numbered = [shown(rule.title) + ("" if rule.line is None else f", line {rule.line}") for rule in rules]
    if len(numbered) > 2 and not full:
        numbered[1:] = [f"{len(numbered) - 1} more"]
    return ", and ".join(numbered)


def _item_lines(plan: "Plan") -> Iterator[Text]:
    """The items of the sources' steps that the result does not get."""
    several = len({gone.source for gone in plan.dropped_items}) > 1
    for gone in plan.dropped_items:
        name = shown(f"{gone.source}:{gone.item}" if several else gone.item)
        about = f"  {KINDS[gone.kind]}{bytes_text(gone.nbytes)}: {shown(gone.why)}"
        yield _word("dropped").append(f"item  {name}").append(about, "dim")


def _totals(plan: "Plan") -> Text:
    found = totals(plan)
    line = Text(f"{number_of(found.before, 'leaf')} → {found.after:,}: ")
    return line.append_text(_fates(found.by_fate))


def _fates(found: Mapping[str, int]) -> Text:
    """`1 kept, 140 renamed, 1 DROPPED`."""
    parts = [
        Text(f"{found[fate]:,} {fate.upper() if fate in LOUD else fate}", style)
        for fate, style in STYLES.items()
        if found[fate]
    ]
    return Text(", ").join(parts) if parts else Text("nothing")


def _costs(plan: "Plan") -> Text:
    costs = plan.costs
    parts = (
        (costs.bytes_linked, "linked"),
        (costs.bytes_copied - costs.bytes_served, "copied"),
        (costs.bytes_served, "copied by the store itself"),
        (costs.bytes_computed, "computed"),
    )
    ways = ", ".join(f"{bytes_text(size)} {way}" for size, way in parts if size)
    whole = "copied" if costs.bytes_served else "linked"
    dead = f", {bytes_text(costs.bytes_dead)} unused in {whole} files" if costs.bytes_dead else ""
    return Text(
        f"{bytes_text(costs.bytes_out)} out{f' ({ways})' if ways else ''}{dead}, "
        f"{bytes_text(costs.bytes_read)} to read, peak memory {bytes_text(costs.peak_memory)}"
    )
