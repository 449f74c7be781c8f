"""`commit`: publish what the shards of a saved plan have written."""

from functools import partial
from typing import Annotated

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import Argument, CopyConfig, Full, JsonTo, PlanOutput, Verify
from ckpt_surgery.cli.parameters.paths import check_document_beside
from ckpt_surgery.cli.render.reports import Report
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs.options import Memory, Workers

EXAMPLES = {
    "commit new": "Publish what all shards of a plan have written.",
    "commit s3://bucket/new --verify full": "In a bucket, after all arrays have been read back.",
}


@command("commit", EXAMPLES, "Publish what `apply --shard` runs have written.")
def commit(
    terminal: Terminal,
    dst: Annotated[str, Argument("DST")],
    verify: Verify,
    copy_config: CopyConfig,
    allow_hooks: Annotated[bool, "Load the hooks of the plan's recipe: Python code."],
    memory: Memory,
    workers: Workers,
    json_to: JsonTo,
    full: Full,
) -> int:
    """Put together what the shards of a plan have written, `apply plan.json DST --shard I/N`, and publish it.

    The exit code is 1 while shards are missing, which are named. Where it was published before, or a run that
    was killed had begun to, that is completed, and the exit code is 0.
    """
    from ckpt_surgery.api import applying
    from ckpt_surgery.report.results import CommittedDocument

    check_document_beside(json_to, dst)
    run = partial(applying.commit, dst, verify=verify, copy_config=copy_config, allow_hooks=allow_hooks)
    output = PlanOutput(full=full, detailed_exitcode=False, report_to=None)
    code = Report(terminal, output).carried_out(partial(run, memory=memory, workers=workers))
    if code is None:
        terminal.show([f"{shown(dst)} is committed already"])
        terminal.write(CommittedDocument, destination=dst)
    return code or 0
