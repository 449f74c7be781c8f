"""`convert`: another format, nothing else."""

from functools import partial
from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import check_documents, global_options, plan_options, run_options
from ckpt_surgery.cli.reports import Report

if TYPE_CHECKING:
    from typing import Unpack

    from ckpt_surgery.requests import ConvertOptions


EXAMPLES = {
    "convert old new.safetensors": "From any format into a file of safetensors.",
    "convert old new --format safetensors --shard-size 5GB": "Into a directory of files of 5 GB at most.",
    "convert run new --step 1000": "A step of a CheckpointManager's directory.",
}


@click.command("convert", cls=Command, short_help="Write SRC in another format.", examples=EXAMPLES)
@click.argument("src", metavar="SRC", shell_complete=complete_path)
@click.argument("dst", metavar="DST", shell_complete=complete_path)
@plan_options
@run_options
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    src: str,
    dst: str,
    json_to: str | None,
    report_to: str | None,
    full: bool,
    detailed_exitcode: bool,
    dry_run: bool,
    overwrite: bool,
    resume: bool,
    verify: str,
    copy_config: bool | None,
    engine: str,
    scheduler: str | None,
    **options: "Unpack[ConvertOptions]",
) -> int:
    """Write the checkpoint SRC to DST in another format: every key and every value stays.

    The format is --format, or follows from DST's name: new.safetensors, new.msgpack, new.npz, new.zarr,
    new.h5; a directory of any other name becomes an Orbax checkpoint. Leaves that DST cannot hold are
    refused by key.
    """
    from ckpt_surgery import api

    check_documents([json_to, report_to], None, (src,), dst, options)
    terminal = open_terminal(ctx.find_root().obj, json_to)
    report = Report(terminal, full, json_to, detailed_exitcode, report_to)
    if dry_run:
        return report.planned(api.plan(None, src, dst=dst, overwrite=overwrite, **options))
    run = partial(
        api.convert, src, dst, engine=engine, scheduler=scheduler, copy_config=copy_config, **options
    )
    return report.carried_out(partial(run, overwrite=overwrite, resume=resume, verify=verify))
