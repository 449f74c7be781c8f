"""`verify`: whether a checkpoint is still what was written."""

import re
from typing import Literal

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import expect_arrays, open_terminal, reuse_memory, write_document
from ckpt_surgery.cli.options import (
    global_options,
    json_option,
    memory_option,
    selection_options,
    source_format_option,
    uint16_option,
)
from ckpt_surgery.cli.written_files import check_document_beside
from ckpt_surgery.core.errors import UsageError, VerificationError
from ckpt_surgery.core.text import shown

_SHARE = re.compile(r"(\d+\.?\d*|\.\d+)(%?)", re.ASCII)

EXAMPLES = {
    "verify new": "Read everything back that was written.",
    "verify new --fast": "Structure and sizes alone.",
    "verify new --sample 5%": "A twentieth of the bytes, drawn at random.",
    "verify new --full --json verified.json": "Linked arrays too; the findings as JSON.",
}


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Accept `5%` and `0.05`."""
    if value is None:
        return None
    number = _SHARE.fullmatch(value)
    share = None if number is None else float(number[1]) / (100 if number[2] else 1)
    if share is None or not 0 < share <= 1:
        message = f"`{shown(value)}` is not a share; write it like 5% or 0.05, at most 100%"
        raise click.BadParameter(message, ctx, param)
    return share


@click.command(
    "verify", cls=Command, short_help="Read a checkpoint back against its digests.", examples=EXAMPLES
)
@click.argument("path", metavar="PATH", shell_complete=complete_path)
@click.option("--fast", is_flag=True, help="Structure, sizes and shared files only; no values are read.")
@click.option("--full", is_flag=True, help="All values, also linked ones, whose digests are then recorded.")
@click.option(
    "--sample",
    callback=_share,
    metavar="SHARE",
    help="Compare a random part of what has digests, such as 5% of the bytes.",
)
@click.option(
    "--seed", type=int, default=0, metavar="N", help="Another number draws another sample. [default: 0]"
)
@selection_options
@source_format_option("--src-format")
@uint16_option
@memory_option
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.")
@json_option
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    path: str,
    fast: bool,
    full: bool,
    sample: float | None,
    seed: int,
    step: int | None,
    item: str | None,
    src_format: str | None,
    uint16: Literal["keep", "bfloat16"] | None,
    memory: int | None,
    workers: int | None,
    json_to: str | None,
) -> int:
    """Read the checkpoint PATH back, and compare it with the digests that were recorded when it was written.

    A checkpoint of another program has no digests: its structure is checked, and all values are read. The
    exit code is 3 if anything is wrong, with the leaf and the chunk.

    A sample finds damage that is everywhere, such as a copy that broke off or a disk that went bad; one
    damaged chunk it finds as likely as the chunk is drawn.
    """
    from ckpt_surgery.api import verifying
    from ckpt_surgery.cli.progress import reporting
    from ckpt_surgery.cli.render import warning_lines
    from ckpt_surgery.cli.render_verification import flaw_lines, verified_line
    from ckpt_surgery.report.verification import verified_document

    if fast and full:
        raise UsageError("--fast and --full exclude each other", hint="Leave one of them out.")
    if sample is not None and (fast or full):
        raise UsageError(
            f"--sample and {'--fast' if fast else '--full'} exclude each other", hint="Leave one of them out."
        )
    check_document_beside(json_to, path, step=step, item=item, format=src_format)
    terminal = open_terminal(ctx.find_root().obj, json_to)
    reuse_memory()
    expect_arrays()
    with reporting(terminal.notes, terminal.settings.quiet) as progress:
        found = verifying.verify(
            path,
            sample=sample,
            seed=seed,
            mode="fast" if fast else "full" if full else "values",
            step=step,
            item=item,
            src_format=src_format,
            uint16=uint16,
            memory=memory,
            workers=workers,
            progress=progress,
        )
    if json_to is not None:
        write_document(verified_document(found), json_to)
    terminal.warn(warning_lines(found.notices))
    terminal.warn(flaw_lines(found))
    terminal.show([verified_line(found)])
    return VerificationError.exit_code if found.flaws else 0
