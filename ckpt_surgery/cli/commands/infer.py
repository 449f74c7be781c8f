"""`infer`: the recipe that makes one checkpoint's structure of another's."""

import sys
from typing import Annotated, Unpack

import click

from ckpt_surgery.cli.parameters.completion import complete_path, complete_recipe
from ckpt_surgery.cli.parameters.frame import command
from ckpt_surgery.cli.parameters.options import RULE, Argument, DraftTo, Form, JsonTo
from ckpt_surgery.cli.parameters.written_files import check_json_name
from ckpt_surgery.cli.terminal.console import STDOUT, enable_gc, open_terminal, reuse_memory
from ckpt_surgery.inputs.options import (
    Compared,
    HintRecipe,
    HintRules,
    ReadOptions,
    ReplaceOut,
    SourceOptions,
)

UNDECIDED = 3

EXAMPLES = {
    "infer old new": "The recipe that makes new of old, with the evidence for each rule.",
    "infer old new --out draft.yaml": "Into a file.",
    "infer old model.json --json -": "For a listing of keys, shapes and dtypes; the findings as JSON.",
    "infer old new -e 's|params/old/(.*)|params/new/\\1|'": "With a hint, which decides and teaches.",
}


@command("infer", EXAMPLES, "Draft a recipe from two checkpoints.")
def infer(
    ctx: click.Context,
    src: Annotated[str, Argument("SRC", complete=complete_path)],
    target: Annotated[str, Argument("TARGET", complete=complete_path)],
    recipe: Annotated[HintRecipe, Form("RECIPE", complete=complete_recipe)],
    rules: Annotated[HintRules, RULE],
    out: DraftTo,
    overwrite: ReplaceOut,
    values: Compared,
    json_to: JsonTo,
    **options: Unpack[ReadOptions],
) -> int:
    """Draft the recipe that turns the structure of SRC into that of TARGET, another checkpoint or a listing.

    Where TARGET has numbers of SRC, they decide, and every element is compared. What is not decided is listed
    with its candidates and the `-e` for each, and the exit code is 3. The recipe goes to stdout, all else to
    stderr.
    """
    from ckpt_surgery.api import inferring
    from ckpt_surgery.cli.render.inference import inference_lines
    from ckpt_surgery.cli.render.words import warning_lines

    written = [None if json_to == STDOUT else json_to, out]
    which: SourceOptions = {"step": options.get("step"), "item": options.get("item")}
    which["src_format"] = options.get("src_format")
    inferring.check_written(written, src, target, **which)
    check_json_name(json_to)
    terminal = open_terminal(ctx.find_root().obj, json_to, taken=out is None)
    reuse_memory()
    enable_gc()
    with terminal.progress() as progress:
        found = inferring.infer(
            src,
            target,
            recipe=recipe,
            rules=rules,
            values=values,
            out=out,
            overwrite=overwrite,
            progress=progress,
            **options,
        )
    terminal.write(found.document)
    if out is None and json_to != STDOUT:
        sys.stdout.write(found.recipe)
    terminal.warn(warning_lines(found.warnings))
    terminal.wrapped(inference_lines(found, out))
    return 0 if found.decided else UNDECIDED
