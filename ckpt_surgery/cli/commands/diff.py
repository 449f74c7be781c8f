"""`diff`: how two checkpoints differ."""

import os
from typing import Literal

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import expect_arrays, open_terminal, write_document
from ckpt_surgery.cli.options import (
    full_option,
    global_options,
    json_option,
    memory_option,
    selection_options,
    uint16_option,
)
from ckpt_surgery.cli.shared_options import match_option
from ckpt_surgery.cli.written_files import check_document_beside

DIFFERENT = 3


EXAMPLES = {
    "diff old new --match 'params/.*' --exit-code": "Some keys; exit with 3 if they differ in structure.",
    "diff old new --values --rtol 1e-5 --atol 1e-8": "The values too, within tolerances.",
}


@click.command("diff", cls=Command, short_help="Compare two checkpoints.", examples=EXAMPLES)
@click.argument("a", metavar="A", shell_complete=complete_path)
@click.argument("b", metavar="B", shell_complete=complete_path)
@selection_options
@uint16_option
@match_option
@click.option(
    "--values",
    is_flag=True,
    help="The values too; of numbers: max abs and relative difference, cosine.",
)
@click.option(
    "--rtol",
    type=float,
    default=0.0,
    metavar="X",
    help="With --values: A and B are the same where |A - B| <= atol + rtol * |B|. [default: 0]",
)
@click.option("--atol", type=float, default=0.0, metavar="X", help="See --rtol. [default: 0]")
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
    uint16: Literal["keep", "bfloat16"] | None,
    match: str | None,
    values: bool,
    rtol: float,
    atol: float,
    memory: int | None,
    exit_code: bool,
    full: bool,
    json_to: str | None,
) -> int:
    """Show which keys only A or only B has, and where kind, container, shape or dtype differ.

    A leaf that both have under different names is `renamed` where stored bytes, or with --values all values,
    are the same; `renamed?` is a guess by names, shapes and dtypes. With --values the leaves with the largest
    differences come first.
    """
    import ckpt_surgery
    from ckpt_surgery.cli.progress import reporting
    from ckpt_surgery.cli.render import warning_lines
    from ckpt_surgery.cli.render_difference import difference_lines
    from ckpt_surgery.report.diff_document import diff_document

    check_document_beside(json_to, a, b, step=step, item=item)
    if values:
        expect_arrays()
    terminal = open_terminal(ctx.find_root().obj, json_to)
    with reporting(terminal.notes, terminal.settings.quiet or not values) as progress:
        found = ckpt_surgery.diff(
            a,
            b,
            step=step,
            item=item,
            uint16=uint16,
            match=match,
            values=values,
            rtol=rtol,
            atol=atol,
            memory=memory,
            progress=progress,
        )
    if a == b or os.path.realpath(a) == os.path.realpath(b):
        terminal.warn(warning_lines([f"A and B are the same path, {a}"]))
    terminal.show(difference_lines(found, full=full, width=terminal.text.width))
    terminal.warn(warning_lines(found.warnings))
    if json_to is not None:
        write_document(diff_document(found), json_to)
    return DIFFERENT if exit_code and found.different else 0
