"""`inspect`: what is in a checkpoint."""

import click

from ckpt_surgery.cli.console import expect_arrays, open_terminal, write_document
from ckpt_surgery.cli.options import (
    Command,
    check_document_beside,
    full_option,
    global_options,
    json_option,
    selection_options,
    source_format_option,
)


@click.command("inspect", cls=Command, short_help="Show what is in a checkpoint.")
@click.argument("path", metavar="PATH")
@selection_options
@source_format_option("--format")
@click.option("--flat", is_flag=True, help="Whole keys instead of a tree.")
@click.option(
    "--stats", is_flag=True, help="Read all values: min, max, mean and std of the finite ones; NaN and inf."
)
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
    flat: bool,
    stats: bool,
    full: bool,
    json_to: str | None,
) -> int:
    """Show the keys of the checkpoint PATH with shapes, dtypes, sizes and shardings; with -v chunks too.

    Keys that differ in indices only share a line: {0..47} stands for each of these numbers. With --stats the
    exit code is 1 if an array could not be read; the numbers of the others are shown.
    """
    import ckpt_surgery
    from ckpt_surgery.cli.render import inspection_lines, statistics_lines
    from ckpt_surgery.report.leaves import Unread, inspect_json

    check_document_beside(json_to, path, format=format, step=step, item=item)
    if stats:
        expect_arrays()
    found = ckpt_surgery.inspect(path, step=step, item=item, format=format, stats=stats)
    terminal = open_terminal(ctx.find_root().obj, json_to)
    verbose, width = terminal.settings.verbose > 0, terminal.text.width
    if stats:
        terminal.show(statistics_lines(found, verbose))
    else:
        terminal.show(inspection_lines(found, flat=flat, full=full, verbose=verbose, width=width))
    if json_to is not None:
        write_document(inspect_json(found, found.leaves, found.statistics), json_to)
    told = (found.statistics or {}).values()
    return int(any(isinstance(one, Unread) and one.damaged for one in told))
