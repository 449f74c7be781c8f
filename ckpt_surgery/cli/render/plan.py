"""Plans and results as lines of styled text. Prints nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.cli.terminal.columns import WORD, flowing, labelled, sentence, start_of
from ckpt_surgery.core.summary import SummaryRow
from ckpt_surgery.core.text import bytes_text, chosen_text, number_of, seconds_text, shown
from ckpt_surgery.report.plan import replacement_text, totals
from ckpt_surgery.report.plan_texts import ARROW, cost_texts, diff_rows, fate_texts

if TYPE_CHECKING:
    from ckpt_surgery import Plan, Result

STYLES = {
    "kept": "dim",
    "renamed": "cyan",
    "transformed": "magenta",
    "averaged": "magenta",
    "added": "green",
    "defaulted": "bold yellow",
    "dropped": "bold red",
}
"""Style of each fate, and of leaves that are averaged."""

LEAST_COLUMN = 24
"""Least width of the column of keys."""


def plan_lines(plan: "Plan", *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """The diff: inputs, rows by fate, totals. Kept leaves are only counted, unless `full` or `verbose`."""
    yield labelled("recipe", shown(plan.recipe))
    for source in plan.inputs:
        chosen = chosen_text(source.format, source.step, source.item)
        about = f"  ({chosen}, {number_of(source.leaves, 'leaf')})"
        yield labelled(shown(source.name), shown(source.path)).append(about, "dim")
    goal = plan.destination
    if goal is not None:
        chosen = chosen_text(goal.format, goal.step, goal.item)
        yield labelled("destination", shown(goal.path)).append(f"  ({chosen})", "dim")
    yield from _param_lines(plan, width)
    yield Text()
    rows = diff_rows(plan, full=full, kept=full or verbose)
    yield from row_lines(rows, width)
    if rows:
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


def row_lines(rows: Sequence[SummaryRow], width: int) -> Iterator[Text]:
    """A line for each row: keys, what they hold, and the rule; two or three where that is too long."""
    if not rows:
        return
    cells = [tuple(map(shown, (row.key, row.what, row.why))) for row in rows]
    longest, held, rule = (max(map(cell_len, column)) for column in zip(*cells, strict=True))
    column = max(LEAST_COLUMN, min(longest, width - WORD - 4 - held - rule))
    for row, (keys, what, reason) in zip(rows, cells, strict=True):
        start = start_of(row.word, STYLES[row.word.lower()])
        space, wide = " " * max(column - cell_len(keys), 0), " " * (held - cell_len(what))
        tails = [text.rstrip() for text in (f"{space}  {what}{wide}  {reason}", f"  {what}  {reason}")]
        tail = next((one for one in tails if WORD + cell_len(keys) + cell_len(one) <= width), None)
        if tail is not None:
            yield start.append(keys, "" if tail else "dim").append(tail, "dim")
            continue
        first, *others = _within(keys, ARROW, width - WORD)
        yield start.append(first)
        yield from (Text(f"{' ' * WORD}{other}") for other in others)
        about = _within(f"{what}  {reason}".rstrip(), "  ", width - WORD)
        yield from (Text(" " * WORD).append(line, "dim") for line in about)


def _within(text: str, sign: str, width: int) -> list[str]:
    """A text on one line or, where that is too long, on two: before the sign, and from it on."""
    before, separator, after = text.rpartition(sign)
    if cell_len(text) <= width or not separator:
        return [text]
    return [before, f"{separator.lstrip()}{after}"]


def _totals(plan: "Plan") -> list[Text]:
    """`16 leaves → 7:`, then the fates, each with the comma after it."""
    counted = totals(plan)
    fates = _fates(counted.by_fate)
    parts = [part + Text(",") for part in fates[:-1]] + fates[-1:]
    return [Text(f"{number_of(counted.before, 'leaf')}{ARROW}{counted.after:,}:"), *parts]


def _fates(by_fate: Mapping[str, int]) -> list[Text]:
    """`1 kept`, `140 renamed`, `1 DROPPED`."""
    return [Text(text, STYLES[fate]) for fate, text in fate_texts(by_fate)] or [Text("nothing")]
