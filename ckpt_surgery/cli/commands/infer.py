"""`infer`: the recipe that makes one checkpoint's structure of another's."""

import sys
from typing import Literal

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import STDOUT, expect_arrays, open_terminal, reuse_memory, write_document
from ckpt_surgery.cli.options import (
    global_options,
    json_option,
    memory_option,
    selection_options,
    source_format_option,
    uint16_option,
)
from ckpt_surgery.cli.shared_options import draft_options
from ckpt_surgery.cli.written_files import check_json_name

UNDECIDED = 3

EXAMPLES = {
    "infer old new": "The recipe that makes new of old, with the evidence for each rule.",
    "infer old new --out draft.yaml": "Into a file.",
    "infer old model.json --json -": "For a listing of keys, shapes and dtypes; the findings as JSON.",
}


@click.command("infer", cls=Command, short_help="Draft a recipe from two checkpoints.", examples=EXAMPLES)
@click.argument("src", metavar="SRC", shell_complete=complete_path)
@click.argument("target", metavar="TARGET", shell_complete=complete_path)
@draft_options
@click.option(
    "--values",
    type=click.Choice(["auto", "ignore"]),
    default="auto",
    help="auto: values decide where both have some; ignore: names, shapes and dtypes. [default: auto]",
)
@selection_options
@source_format_option("--src-format")
@uint16_option
@memory_option
@json_option
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    src: str,
    target: str,
    out: str | None,
    overwrite: bool,
    values: str,
    step: int | None,
    item: str | None,
    src_format: str | None,
    uint16: Literal["keep", "bfloat16"] | None,
    memory: int | None,
    json_to: str | None,
) -> int:
    """Draft the recipe that turns the structure of SRC into that of TARGET, another checkpoint or a listing.

    Where TARGET has numbers of SRC, they decide, and every element is compared. What is not decided is listed
    with its candidates, and the exit code is 3. The recipe goes to stdout, all else to stderr.
    """
    from ckpt_surgery.api import inferring
    from ckpt_surgery.cli.progress import reporting
    from ckpt_surgery.cli.render import warning_lines
    from ckpt_surgery.cli.render_inference import inference_lines

    written = [None if json_to == STDOUT else json_to, out]
    inferring.check_written(written, src, target, step=step, item=item, src_format=src_format)
    check_json_name(json_to)
    terminal = open_terminal(ctx.find_root().obj, STDOUT if out is None else json_to)
    reuse_memory()
    expect_arrays()
    with reporting(terminal.notes, terminal.settings.quiet) as progress:
        found = inferring.infer(
            src,
            target,
            step=step,
            item=item,
            src_format=src_format,
            uint16=uint16,
            values="ignore" if values == "ignore" else "auto",
            memory=memory,
            out=out,
            overwrite=overwrite,
            progress=progress,
        )
    if json_to is not None:
        write_document(found.document(), json_to)
    if out is None and json_to != STDOUT:
        sys.stdout.write(found.recipe)
    terminal.warn(warning_lines(found.warnings))
    terminal.wrapped(inference_lines(found, out))
    return 0 if found.decided else UNDECIDED
