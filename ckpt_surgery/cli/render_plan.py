"""Plans and results as lines of styled text. Prints nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.cli.columns import flowing
from ckpt_surgery.cli.render import (
    WORD,
    chosen_text,
    number_of,
    seconds_text,
    sentence,
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
    yield from _destination_lines(plan)
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
    yield from flowing(_totals(plan), " ", width)
    yield from flowing(list(map(Text, _costs(plan, verbose))), ", ", width)
    if verbose:
        yield from _cost_remarks(plan, width)


def _cost_remarks(plan: "Plan", width: int) -> Iterator[Text]:
    """What could cost less, and what can restore the result."""
    if plan.costs.bytes_linkable:
        why = (
            f"{bytes_text(plan.costs.bytes_linkable)} are copied because programs rewrite such files in "
            "place; `--link-mode hardlink` links them if nothing will rewrite SRC"
        )
        yield from sentence(why, width)
    if plan.restorable_by:
        yield from sentence(f"restorable by {version_text(plan.restorable_by)}", width)


def result_lines(result: "Result", width: int) -> Iterator[Text]:
    """The last line of `apply`: counts, bytes, seconds, destination."""
    size, seconds, written = result.plan.costs.bytes_out, result.seconds, result.plan.costs.bytes_written
    took = f"{bytes_text(size)} in {seconds_text(seconds)}"
    if seconds >= 1 and written:  # links take no time: their bytes would make a speed of TiB/s
        linked = "" if written == size else "written at "
        took += f" ({linked}{bytes_text(written / seconds)}/s)"
    counts = Text(", ").join(_fates(totals(result.plan).by_fate))
    done = Text.assemble(("done", "bold green"), "  ", counts)
    yield from flowing([done, Text(took), Text(shown(result.destination))], " · ", width)


def shared_lines(result: "Result", width: int) -> Iterator[Text]:
    """Which files the result shares with sources."""
    count = len(result.shared)
    if count:
        files = "1 file is" if count == 1 else f"{count:,} files are"
        them = "it" if count == 1 else "them"
        sources = ", ".join(map(shown, linked_sources(result.plan)))
        why = f"{files} shared with {sources} (hard links): do not rewrite {them} in place"
        yield from sentence(why, width)


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{WORD}}", "dim"), text)


def _input_lines(plan: "Plan") -> Iterator[Text]:
    for source in plan.inputs:
        label = shown(source.name)
        label = label if len(label) < WORD else f"{label} "
        chosen = chosen_text(source.format, source.step, source.item)
        about = f"  ({chosen}, {number_of(source.leaves, 'leaf')})"
        yield _labelled(label, shown(source.path)).append(about, "dim")


def _destination_lines(plan: "Plan") -> Iterator[Text]:
    goal = plan.destination
    if goal is not None:
        chosen = chosen_text(goal.format, goal.step, goal.item)
        yield _labelled("destination", shown(goal.path)).append(f"  ({chosen})", "dim")


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


def _row_word(row: Row) -> Text:
    return start_of("averaged", STYLES[row.fate]) if row.averaged else _word(row.fate)


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
            yield _row_word(row).append(keys).append(tail, "dim")
            continue
        first, *others = _within(keys, ARROW, width - WORD)
        yield _row_word(row).append(first)
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
    if row.sources in ((), (row.key,), (f"*:{row.key}",), (f"target:{row.key}",)):
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
        text = f"{text} ({row.gathers:,}{ARROW}1)" if row.gathers > 1 else text
    else:
        text = row.spec if row.gathers < 2 else f"{row.gathers:,} × {row.spec}"
        if row.gathers > 1 and ARROW not in row.spec:
            text = f"{row.spec}  ({row.gathers:,}{ARROW}1)"
        elif row.gathers > 1 and row.count > 1:
            text = f"({text})"
        text = f"{row.count:,} × {text}" if row.count > 1 else text
    text = f"{text}, also in {_listed(row.also)}" if row.also else text
    text = (
        f"{text}, also in {_listed(row.other_shapes)} (other shapes or dtypes)" if row.other_shapes else text
    )
    return f"{text}, {row.why}" if row.why and row.fate != "dropped" else text


def _listed(names: Sequence[str]) -> str:
    """`mu, nu and v`: the last components, where they tell the subtrees apart."""
    distinct = list(dict.fromkeys(names))
    ends = [name.rpartition("/")[2] for name in distinct]
    *before, last = ends if len(set(ends)) == len(ends) else distinct
    return f"{', '.join(before)} and {last}" if before else last


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


def _totals(plan: "Plan") -> list[Text]:
    """`16 leaves → 7:`, then the fates, each with the comma after it."""
    found = totals(plan)
    fates = _fates(found.by_fate)
    parts = [part + Text(",") for part in fates[:-1]] + fates[-1:]
    return [Text(f"{number_of(found.before, 'leaf')}{ARROW}{found.after:,}:"), *parts]


def _fates(found: Mapping[str, int]) -> list[Text]:
    """`1 kept`, `140 renamed`, `1 DROPPED`."""
    parts = [
        Text(f"{found[fate]:,} {fate.upper() if fate in LOUD else fate}", style)
        for fate, style in STYLES.items()
        if found[fate]
    ]
    return parts or [Text("nothing")]


def _costs(plan: "Plan", verbose: bool) -> Iterator[str]:
    """`3.00 GiB linked`, `1.00 GiB computed`, …: the parts of what goes out, what is read, and memory."""
    costs = plan.costs
    why = " (-v says why)" if costs.bytes_linkable and not verbose else ""
    parts = (
        (costs.bytes_linked, "linked"),
        (costs.bytes_copied - costs.bytes_served, f"copied{why}"),
        (costs.bytes_served, "copied by the store itself"),
        (costs.bytes_computed, "computed"),
    )
    yield from [f"{bytes_text(size)} {way}" for size, way in parts if size] or ["0 B out"]
    if costs.bytes_dead:
        whole = "copied" if costs.bytes_served else "linked"
        yield f"{bytes_text(costs.bytes_dead)} unused in {whole} files"
    yield f"{bytes_text(costs.bytes_read)} to read"
    yield f"peak memory {bytes_text(costs.peak_memory)}"
