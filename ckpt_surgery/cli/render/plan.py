"""Plans and results as lines of styled text. Prints nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.cli.terminal.columns import WORD, flowing, labelled, sentence, start_of
from ckpt_surgery.core.text import bytes_text, chosen_text, number_of, seconds_text, shown
from ckpt_surgery.report.plan import Row, replacement_text, totals
from ckpt_surgery.report.plan_texts import (
    ARROW,
    cost_texts,
    diff_rows,
    fate_texts,
    fate_word,
    held_text,
    kept_text,
    keys_text,
    reason_text,
    row_word,
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
"""Style of each fate."""

KINDS = {"arrays": "arrays, ", "json": "JSON, ", "other": ""}
"""Content of an item."""

LEAST_COLUMN = 24
"""Least width of the column of keys."""


def plan_lines(plan: "Plan", *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """The diff: inputs, rows by fate, totals. Kept leaves are only counted, unless `full` or `verbose`."""
    yield labelled("recipe", shown(plan.recipe))
    yield from _input_lines(plan)
    yield from _destination_lines(plan)
    yield from _param_lines(plan, width)
    yield Text()
    kept, rows = diff_rows(plan, full=full)
    if kept and not (full or verbose):
        yield _word("kept").append(kept_text(kept), "dim")
        yield from row_lines(rows, width, full)
    else:
        yield from row_lines([*kept, *rows], width, full)
    yield from _item_lines(plan)
    if kept or rows or plan.dropped_items:
        yield Text()
    replacement = replacement_text(plan.replaces)
    if replacement is not None:
        yield Text(replacement)
    yield from flowing(_totals(plan), " ", width)
    of_copies = " (-v says why)" if plan.costs.bytes_linkable and not verbose else ""
    yield from flowing(list(map(Text, cost_texts(plan, of_copies))), ", ", width)
    if verbose:
        yield from _cost_remarks(plan, width)


def _cost_remarks(plan: "Plan", width: int) -> Iterator[Text]:
    """Lines on what could cost less, and what can restore the result."""
    if plan.costs.bytes_linkable:
        why = (
            f"{bytes_text(plan.costs.bytes_linkable)} are copied because programs rewrite such files in "
            "place; `--link-mode hardlink` links them if nothing will rewrite SRC"
        )
        yield from sentence(why, width)
    if plan.restorable_by:
        versions = " and ".join(f"{name} ≥ {version}" for name, version in plan.restorable_by.items())
        yield from sentence(f"restorable by {versions}", width)


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
    """Files that the result shares with sources."""
    count = len(result.shared)
    if count:
        files = "1 file is" if count == 1 else f"{count:,} files are"
        them = "it" if count == 1 else "them"
        steps = (step for step in result.plan.steps if step.transfer == "link")
        linked = {name for step in steps for name, _ in step.sources}
        sources = ", ".join(shown(i.path) for i in result.plan.inputs if i.name in linked)
        why = f"{files} shared with {sources} (hard links): do not rewrite {them} in place"
        yield from sentence(why, width)


def _input_lines(plan: "Plan") -> Iterator[Text]:
    for source in plan.inputs:
        chosen = chosen_text(source.format, source.step, source.item)
        about = f"  ({chosen}, {number_of(source.leaves, 'leaf')})"
        yield labelled(shown(source.name), shown(source.path)).append(about, "dim")


def _destination_lines(plan: "Plan") -> Iterator[Text]:
    goal = plan.destination
    if goal is not None:
        chosen = chosen_text(goal.format, goal.step, goal.item)
        yield labelled("destination", shown(goal.path)).append(f"  ({chosen})", "dim")


def _param_lines(plan: "Plan", width: int) -> Iterator[Text]:
    """The values of the recipe's params, those of one origin together, wrapped between the values."""
    alike: dict[str, list[str]] = {}
    for param in plan.params:
        entry = "" if param.entry in (None, param.name) else f" ← {param.entry}"
        alike.setdefault(_origin(param.origin.value, param.note), []).append(
            shown(f"{param.name}={param.text}{entry}")
        )
    label = "params"
    for origin, (first, *others) in alike.items():
        parts = [labelled(label, first), *map(Text, others)]
        parts[-1].append(f"  ({shown(origin)})", "dim")
        yield from flowing(parts, ", ", width, WORD)
        label = ""


def _origin(origin: str, note: str | None) -> str:
    if origin == "default":
        return "default" if note is None else f"default: {note}"
    return "--set" if origin == "set" else note or ""


def _word(fate: str) -> Text:
    return start_of(fate_word(fate), STYLES[fate])


def row_lines(rows: Sequence[Row], width: int, full: bool) -> Iterator[Text]:
    """A line for each row: keys, what they hold, and the rule; two or three where that is too long."""
    cells = [(keys_text(row, full), held_text(row), reason_text(row, full)) for row in rows]
    held = max((cell_len(held) for _, held, _ in cells), default=0)
    rule = max((cell_len(reason) for _, _, reason in cells), default=0)
    longest = max((cell_len(keys) for keys, _, _ in cells), default=0)
    column = max(LEAST_COLUMN, min(longest, width - WORD - 4 - held - rule))
    for row, (keys, what, reason) in zip(rows, cells, strict=True):
        columns = f"{what}{' ' * (held - cell_len(what))}  {reason}".rstrip()
        tails = (f"{' ' * (max(column - cell_len(keys), 0) + 2)}{columns}", f"  {what}  {reason}".rstrip())
        tail = next((one for one in tails if WORD + cell_len(keys) + cell_len(one) <= width), None)
        if tail is not None:
            yield start_of(row_word(row), STYLES[row.fate]).append(keys).append(tail, "dim")
            continue
        first, *others = _within(keys, ARROW, width - WORD)
        yield start_of(row_word(row), STYLES[row.fate]).append(first)
        yield from (Text(f"{' ' * WORD}{other}") for other in others)
        about = _within(f"{what}  {reason}".rstrip(), "  ", width - WORD)
        yield from (Text(" " * WORD).append(line, "dim") for line in about)


def _within(text: str, sign: str, width: int) -> list[str]:
    """A text on one line or, where that is too long, on two: before the sign, and from it on."""
    before, separator, after = text.rpartition(sign)
    if cell_len(text) <= width or not separator:
        return [text]
    return [before, f"{separator.lstrip()}{after}"]


def _item_lines(plan: "Plan") -> Iterator[Text]:
    """The items of the sources' steps that the result does not get."""
    several = len({gone.source for gone in plan.dropped_items}) > 1
    for gone in plan.dropped_items:
        name = shown(f"{gone.source}:{gone.item}" if several else gone.item)
        about = f"  {KINDS[gone.kind]}{bytes_text(gone.bytes)}: {shown(gone.why)}"
        yield _word("dropped").append(f"item  {name}").append(about, "dim")


def _totals(plan: "Plan") -> list[Text]:
    """`16 leaves → 7:`, then the fates, each with the comma after it."""
    counted = totals(plan)
    fates = _fates(counted.by_fate)
    parts = [part + Text(",") for part in fates[:-1]] + fates[-1:]
    return [Text(f"{number_of(counted.before, 'leaf')}{ARROW}{counted.after:,}:"), *parts]


def _fates(by_fate: Mapping[str, int]) -> list[Text]:
    """`1 kept`, `140 renamed`, `1 DROPPED`."""
    return [Text(text, STYLES[fate]) for fate, text in fate_texts(by_fate)] or [Text("nothing")]
