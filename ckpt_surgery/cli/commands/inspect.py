"""`inspect`: what is in a checkpoint."""

from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import expect_arrays, open_terminal, write_document
from ckpt_surgery.cli.options import (
    full_option,
    global_options,
    json_option,
    selection_options,
    source_format_option,
)
from ckpt_surgery.cli.shared_options import match_option, under_option
from ckpt_surgery.cli.written_files import check_document_beside
from ckpt_surgery.core.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from ckpt_surgery.report.inspection import SortBy


EXAMPLES = {
    "inspect old --depth 2 --sort size": "What takes the most bytes.",
    "inspect old --match '.*/kernel' --flat": "All kernels with their whole keys.",
    "inspect old --keys": "The names alone, for a pipe.",
    "inspect old --under params --stats --exit-code": "Read the values; exit with 3 if any are unusual.",
}


@click.command("inspect", cls=Command, short_help="Show what is in a checkpoint.", examples=EXAMPLES)
@click.argument("path", metavar="PATH", shell_complete=complete_path)
@selection_options
@source_format_option("--format")
@match_option
@under_option
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Levels of keys; what is deeper is one line with its totals. [default: all]",
)
@click.option(
    "--sort",
    type=click.Choice(["size", "name"]),
    help="The largest first, or by key. [default: the checkpoint's order]",
)
@click.option("--flat", is_flag=True, help="Whole keys instead of a tree.")
@click.option("--keys", is_flag=True, help="Only the keys, one a line, for other programs.")
@click.option(
    "--stats",
    is_flag=True,
    help="Read all values: min, max, mean, std and histogram of the finite ones; what is unusual.",
)
@click.option("--exit-code", is_flag=True, help="With --stats: exit with 3 if anything is unusual.")
@full_option
@json_option
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    path: str,
    step: int | None,
    item: str | None,
    format: str | None,
    match: str | None,
    under: str | None,
    depth: int | None,
    sort: "SortBy | None",
    flat: bool,
    keys: bool,
    stats: bool,
    exit_code: bool,
    full: bool,
    json_to: str | None,
) -> int:
    """Show the keys of the checkpoint PATH with shapes, dtypes, sizes and shardings; with -v chunks too.

    Keys that differ in indices only share a line: {0..47} stands for each of these numbers. A subtree has the
    number of its leaves, of its elements and of its bytes.

    --stats ends with what is unusual: NaN, inf, arrays of zeros, mixed dtypes among keys that differ in
    indices only. The exit code is then 1 if an array could not be read; the numbers of the others are shown.
    """
    import ckpt_surgery
    from ckpt_surgery.cli.progress import reporting
    from ckpt_surgery.cli.render import warning_lines
    from ckpt_surgery.cli.render_inspection import inspection_lines, key_lines
    from ckpt_surgery.cli.render_statistics import statistics_lines
    from ckpt_surgery.report.inspect_document import inspect_document
    from ckpt_surgery.report.leaves import Unread

    _check_options(stats, exit_code, depth, keys)
    check_document_beside(json_to, path, format=format, step=step, item=item)
    if stats:
        expect_arrays()
    terminal = open_terminal(ctx.find_root().obj, json_to)
    with reporting(terminal.notes, terminal.settings.quiet or not stats) as progress:
        found = ckpt_surgery.inspect(
            path,
            step=step,
            item=item,
            format=format,
            match=match,
            under=under,
            depth=depth,
            sort=sort,
            stats=stats,
            progress=progress,
        )
    verbose, width = terminal.settings.verbose > 0, terminal.text.width
    if keys:
        terminal.show(key_lines(found))
    elif stats:
        terminal.show(statistics_lines(found, full=full, verbose=verbose, width=width))
    else:
        terminal.show(inspection_lines(found, flat=flat, full=full, verbose=verbose, width=width))
    terminal.warn(warning_lines(found.warnings))
    if json_to is not None:
        write_document(inspect_document(found), json_to)
    if any(isinstance(one, Unread) and one.damaged for one in (found.statistics or {}).values()):
        return 1
    return VerificationError.exit_code if exit_code and found.unusual else 0


def _check_options(stats: bool, exit_code: bool, depth: int | None, keys: bool) -> None:
    """Refuse options that would have no effect."""
    if exit_code and not stats:
        raise UsageError(
            "--exit-code is about what is unusual, which only the values tell", hint="Give --stats too."
        )
    if depth is not None and stats:
        raise UsageError("--stats lists every array, so there is no --depth", hint="Leave one of them out.")
    if keys and (stats or depth is not None):
        raise UsageError(
            f"--keys prints every key and nothing else, so there is no {'--stats' if stats else '--depth'}",
            hint="Leave one of them out.",
        )
