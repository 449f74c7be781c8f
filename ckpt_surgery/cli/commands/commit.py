"""`commit`: publish what the shards of a saved plan have written."""

from functools import partial

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import (
    copy_config_option,
    full_option,
    global_options,
    json_option,
    memory_option,
    verify_option,
)
from ckpt_surgery.cli.reports import Report
from ckpt_surgery.cli.written_files import check_document_beside

EXAMPLES = {
    "commit new": "Publish what all shards of a plan have written.",
    "commit s3://bucket/new --verify full": "In a bucket, after all arrays have been read back.",
}


@click.command(
    "commit", cls=Command, short_help="Publish what `apply --shard` runs have written.", examples=EXAMPLES
)
@click.argument("dst", metavar="DST", shell_complete=complete_path)
@verify_option
@copy_config_option
@click.option("--allow-hooks", is_flag=True, help="Load the hooks of the plan's recipe: Python code.")
@memory_option
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads.")
@json_option
@full_option
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    dst: str,
    verify: str,
    copy_config: bool | None,
    allow_hooks: bool,
    memory: int | None,
    workers: int | None,
    json_to: str | None,
    full: bool,
) -> int:
    """Put together what the shards of a plan have written, `apply plan.json DST --shard I/N`, and publish it.

    The exit code is 1 while shards are missing, which are named. Where it was published before, or a run that
    was killed had begun to, that is completed, and the exit code is 0.
    """
    from ckpt_surgery.api import sharding

    check_document_beside(json_to, dst)
    report = Report(open_terminal(ctx.find_root().obj, json_to), full, json_to, detailed_exitcode=False)
    run = partial(sharding.commit, dst, verify=verify, copy_config=copy_config, allow_hooks=allow_hooks)
    return report.committed(partial(run, memory=memory, workers=workers), dst)
