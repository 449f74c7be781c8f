"""Plans and results as lines of styled text. Prints nothing."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ckpt_surgery.cli.terminal.columns import WORD, flowing, labelled, rows_of, sentence, start_of
from ckpt_surgery.core.summary import SummaryRow
from ckpt_surgery.core.text import bytes_text, chosen_text, number_of, seconds_text, shown
from ckpt_surgery.report.plan import ARROW, leaves_before, replacement_text
from ckpt_surgery.report.plan_texts import cost_texts, diff_rows, fate_texts
from ckpt_surgery.report.verification import Verify

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
        yield labelled("destination", shown(goal.path or "")).append(f"  ({chosen})", "dim")
    yield from _param_lines(plan, width)
    yield Text()
    rows = diff_rows(plan, full=full, kept=full or verbose)
    yield from row_lines(rows, width)
    if rows:
        yield Text()
    replacement = replacement_text(plan.replaces)
    if replacement is not None:
        yield Text(replacement)
    first, *others = _fates(plan)
    head = Text(f"{number_of(leaves_before(plan), 'leaf')}{ARROW}{len(plan.steps):,}: ")
    yield from flowing([head + first, *others], ", ", width)
    of_copies = " (-v says why)" if plan.costs.bytes_linkable and not verbose else ""
    yield from flowing(list(map(Text, cost_texts(plan, of_copies))), ", ", width)
    if plan.costs.bytes_linkable and verbose:
        size = bytes_text(plan.costs.bytes_linkable)
        why = f"{size} are copied because programs rewrite such files in place; `--link-mode hardlink` links "
        yield from sentence(f"{why}them if nothing will rewrite SRC", width)
    if plan.restorable_by and verbose:
        versions = " and ".join(f"{name} ≥ {version}" for name, version in plan.restorable_by.items())
        yield from sentence(f"restorable by {versions}", width)


def result_lines(result: "Result", width: int) -> Iterator[Text]:
    """Lines about a result: shared files, verification, sidecar files, and totals."""
    plan, verified = result.plan, result.verified
    if count := len(result.shared):
        linked = {name for step in plan.steps if step.transfer == "link" for name, _ in step.sources}
        sources = ", ".join(shown(i.path) for i in plan.inputs if i.name in linked)
        files, them = ("1 file is", "it") if count == 1 else (f"{count:,} files are", "them")
        what = f"{files} shared with {sources} (hard links): do not rewrite {them} in place"
        yield from sentence(what, width)
    if verified.mode is Verify.NONE:
        yield Text("not verified (`verify` reads it back)", "dim")
    else:
        parts = [f"verified: {bytes_text(verified.bytes_read)} read back"]
        if verified.bytes_not_read:
            parts.append(f"{bytes_text(verified.bytes_not_read)} linked and not read (see `verify --full`)")
        yield from flowing([Text(part, "dim") for part in parts], ", ", width)
    if result.companions:
        names = ", ".join(shown(one.name) for one in result.companions)
        source = shown(os.path.dirname(result.companions[0].source) or os.curdir)
        yield from sentence(f"copied beside the weights: {names} (from {source})", width)
    size, seconds, written = plan.costs.bytes_out, result.seconds, plan.costs.bytes_written
    took = f"{bytes_text(size)} in {seconds_text(seconds)}"
    if seconds >= 1 and written:  # links take no time: their bytes would make a speed of TiB/s
        linked_too = "" if written == size else "written at "
        took += f" ({linked_too}{bytes_text(written / seconds)}/s)"
    done = Text.assemble(("done", "bold green"), "  ", Text(", ").join(_fates(plan)))
    yield from flowing([done, Text(took), Text(shown(result.destination))], " · ", width)


def _param_lines(plan: "Plan", width: int) -> Iterator[Text]:
    """The values of the recipe's params, those of one origin together, wrapped between the values."""
    alike: dict[str, list[str]] = {}
    for param in plan.params:
        origin, note = param.origin.value, param.note
        if origin == "default":
            origin = "default" if note is None else f"default: {note}"
        else:
            origin = "--set" if origin == "set" else note or ""
        entry = "" if param.entry in (None, param.name) else f" ← {param.entry}"
        alike.setdefault(origin, []).append(shown(f"{param.name}={param.text}{entry}"))
    for label, (origin, (first, *others)) in zip(["params", *[""] * len(alike)], alike.items(), strict=False):
        parts = [labelled(label, first), *map(Text, others)]
        parts[-1].append(f"  ({shown(origin)})", "dim")
        yield from flowing(parts, ", ", width, WORD)


def row_lines(rows: Sequence[SummaryRow], width: int) -> Iterator[Text]:
    """A line for each row: keys, what they hold, and the rule; several where that is too long."""
    if not rows:
        return
    cells = [(row.key, row.what, row.why) for row in rows]
    longest, held, rule = (max(map(cell_len, part)) for part in zip(*cells, strict=True))
    column = max(24, min(longest, width - WORD - 4 - held - rule))
    for row, (keys, what, reason) in zip(rows, cells, strict=True):
        start = start_of(row.word, STYLES.get(row.word.lower(), STYLES["transformed"]))  # also `averaged`
        space, wide = " " * (column - cell_len(keys)), " " * (held - cell_len(what))
        tails = [text.rstrip() for text in (f"{space}  {what}{wide}  {reason}", f"  {what}  {reason}")]
        tail = next((one for one in tails if WORD + cell_len(keys) + cell_len(one) <= width), None)
        if tail is not None:  # thousands of rows: as few objects as can be
            yield start.append(keys, "" if tail else "dim").append(tail, "dim")
        else:
            about = [Text(what, "dim"), Text(reason, "dim")]
            yield from rows_of([start.append(keys)], [about], width, WORD)


def _fates(plan: "Plan") -> list[Text]:
    """`1 kept`, `140 renamed`, `1 DROPPED`."""
    return [Text(text, STYLES[fate]) for fate, text in fate_texts(plan)] or [Text("nothing")]
