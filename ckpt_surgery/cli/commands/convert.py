"""`convert`: another format, nothing else."""

import click

from ckpt_surgery.cli.commands.apply import Report, carry_out, rehearse
from ckpt_surgery.cli.commands.plan import Choices
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import Command, check_documents, global_options, plan_options, run_options


@click.command("convert", cls=Command, short_help="Write SRC in another format.")
@click.argument("src", metavar="SRC")
@click.argument("dst", metavar="DST")
@plan_options
@run_options
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    src: str,
    dst: str,
    step: int | None,
    item: str | None,
    src_format: str | None,
    dst_step: int | None,
    dst_item: str | None,
    format_: str | None,
    shard_size: int | None,
    memory: int | None,
    workers: int | None,
    json_to: str | None,
    full: bool,
    detailed_exitcode: bool,
    dry_run: bool,
    overwrite: bool,
    link_mode: str | None,
) -> int:
    """Write the checkpoint SRC to DST in another format: every key and every value stays.

    The format is DST's --format, or goes by its name: new.safetensors, new.msgpack, new.npz, new.zarr; a
    directory of any other name becomes an Orbax checkpoint. What DST cannot hold is refused by key.
    """
    choices = Choices(
        step=step,
        item=item,
        src_format=src_format,
        dst_step=dst_step,
        dst_item=dst_item,
        format=format_,
        shard_size=shard_size,
        memory=memory,
        workers=workers,
    )
    check_documents([json_to], [src, dst])
    report = Report(open_terminal(ctx.find_root().obj, json_to), full, json_to, detailed_exitcode)
    if dry_run:
        return rehearse(None, (src,), dst, choices, overwrite, link_mode, report)
    return carry_out(None, (src,), dst, choices, overwrite, link_mode, report)
