"""Plans and results as lines of styled text. Prints nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ckpt_surgery.cli.render import (
    WORD,
    aligned,
    chosen_text,
    key_width,
    number_of,
    seconds_text,
    start_of,
    tails_of,
)
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.report.plan import (
    ParamsRow,
    Row,
    linked_sources,
    param_rows,
    plan_rows,
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

LOUD = frozenset({"defaulted", "dropped"})
"""Fates that are written in capitals, so that they stand out without colour too."""

MOST_SOURCES = 3
"""Number of patterns of sources that one line of the diff shows without `--full`."""


def plan_lines(plan: "Plan", *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """The diff: inputs, rows by fate, totals. Kept leaves are only counted, unless `full` or `verbose`."""
    yield _labelled("recipe", shown(plan.recipe))
    yield from _input_lines(plan)
    yield from _param_lines(param_rows(plan))
    yield Text()
    order = list(STYLES)
    rows = sorted(plan_rows(plan, full=full), key=lambda row: order.index(row.fate))
    kept = [row for row in rows if row.fate == "kept"]
    if kept and not (full or verbose):
        rows = rows[len(kept) :]
        text = f"{number_of(sum(r.count for r in kept), 'leaf')}, {bytes_text(sum(r.nbytes for r in kept))}"
        yield _word("kept").append(text, "dim")
    yield from _row_lines(rows, width, full)
    if kept or rows:
        yield Text()
    yield _totals(plan)
    yield _costs(plan)
    if plan.costs.bytes_linkable:
        yield Text(
            f"{bytes_text(plan.costs.bytes_linkable)} are copied because programs rewrite such files in "
            "place; `--link-mode hardlink` links them if nothing will rewrite SRC"
        )
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


def _param_lines(rows: Iterable[ParamsRow]) -> Iterator[Text]:
    """The values of the recipe's params, those of one origin on one line."""
    for i, row in enumerate(rows):
        values = shown(", ".join(row.values))
        yield _labelled("" if i else "params", values).append(f"  ({shown(_origin(row))})", "dim")


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


def _row_lines(rows: Sequence[Row], width: int, full: bool) -> Iterator[Text]:
    tails = tails_of([(row.count, row.spec, _reason(row)) for row in rows])
    column = key_width([row.key for row in rows], tails, width)
    for row, tail in zip(rows, tails, strict=True):
        yield from aligned(_word(row.fate), Text(row.key), Text(tail, "dim"), column)
        if sources := _sources(row, full):
            yield Text(" " * WORD).append(f"← {sources}", "dim")


def _reason(row: Row) -> str:
    """The rule or the policy that decided."""
    if row.rule is None:
        return "the target's value" if row.fate == "defaulted" else shown(row.why)
    return f"{shown(row.rule.path)}, line {row.rule.line}"


def _sources(row: Row, full: bool) -> str:
    """Patterns of the keys that leaves are made from; empty where these are the leaves' own keys."""
    if row.sources in ((), (row.key,), (f"target:{row.key}",)):
        return ""
    most = len(row.sources) if full else MOST_SOURCES
    listed = ", ".join(row.sources[:most])
    more = f" and {len(row.sources) - most} more" if len(row.sources) > most else ""
    return f"{listed}{more}{f'  ({row.gathers} → 1)' if row.gathers > 1 else ''}"


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
