"""`diff`: how two checkpoints differ."""

import os

import click

from ckpt_surgery.cli.console import expect_arrays, open_terminal, write_document
from ckpt_surgery.cli.options import (
    Command,
    check_document_beside,
    full_option,
    global_options,
    json_option,
    memory_option,
    selection_options,
)

DIFFERENT = 3


@click.command("diff", cls=Command, short_help="Compare two checkpoints.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@selection_options
@click.option(
    "--values",
    is_flag=True,
    help="Compare the values too; of numbers: max abs and relative difference, cosine.",
)
@memory_option
@click.option("--exit-code", is_flag=True, help="Exit with 3 unless both are known to be the same.")
@full_option
@json_option
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    a: str,
    b: str,
    step: int | None,
    item: str | None,
    values: bool,
    memory: int | None,
    exit_code: bool,
    full: bool,
    json_to: str | None,
) -> int:
    """Show which keys only A or only B has, and where kind, container, shape or dtype differ."""
    import ckpt_surgery
    from ckpt_surgery.cli.render import difference_lines, warning_lines
    from ckpt_surgery.report.differences import difference_json

    check_document_beside(json_to, a, b, step=step, item=item)
    if values:
        expect_arrays()
    found = ckpt_surgery.diff(a, b, step=step, item=item, values=values, memory=memory)
    terminal = open_terminal(ctx.find_root().obj, json_to)
    if a == b or os.path.realpath(a) == os.path.realpath(b):
        terminal.warn(warning_lines([f"A and B are the same path, {a}"]))
    terminal.show(difference_lines(found, full=full, width=terminal.text.width))
    if json_to is not None:
        write_document(difference_json(found), json_to)
    return DIFFERENT if exit_code and found.different else 0
