"""`convert`: another format, nothing else."""

from functools import partial
from typing import Annotated, Any, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_layout
from ckpt_surgery.cli.parameters.options import Argument, DryRun, Form, PlanOutput, RunParameters
from ckpt_surgery.cli.parameters.paths import check_documents
from ckpt_surgery.cli.render.reports import Report
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.inputs.options import ConvertOptions, Match, Under

EXAMPLES = {
    "convert old new.safetensors": "From any format into a file of safetensors.",
    "convert old new --format safetensors --shard-size 5GB": "Into a directory of files of 5 GB at most.",
    "convert Llama-3.1-8B new --to maxtext": "A model of Hugging Face as MaxText loads it.",
    "convert run new --step 1000 --under params": "Only the params of a CheckpointManager's step.",
}


@command("convert", EXAMPLES, "Write SRC in another format.")
def convert(
    terminal: Terminal,
    src: Annotated[str, Argument("SRC")],
    dst: Annotated[str, Argument("DST")],
    to: Annotated[
        str | None,
        "Also to another layout, by the packaged recipe for the model that SRC's config.json names: maxtext, "
        "tunix, jax, t5x, or back to hf.",
        Form("LAYOUT", complete=complete_layout),
    ],
    set: tuple[str, ...],
    config: str | None,
    match: Match,
    under: Under,
    output: PlanOutput,
    dry_run: DryRun,
    run: RunParameters,
    **options: Unpack[ConvertOptions],
) -> int | None:
    """Write the checkpoint SRC to DST in another format: every key and every value stays.

    The format is --format, or follows from DST's name: new.safetensors, new.msgpack, new.npz, new.zarr,
    new.h5; a directory of any other name becomes an Orbax checkpoint. Leaves that DST cannot hold are
    refused by key.

    --match and --under choose leaves as those of `inspect` do; the others are dropped, and listed so.

    With --to, keys and values change to those of another layout, and the recipe that does it is printed:
    `apply` would take it too.
    """
    from ckpt_surgery.api import applying
    from ckpt_surgery.inputs.matching import recipe_of_selection

    which: dict[str, Any] = {name: options.get(name) for name in ("step", "item", "src_format")}
    recipe: Any = recipe_of_selection(src, match, under, to, **which)
    if to is not None:
        from ckpt_surgery.inputs import conversions
        from ckpt_surgery.inputs.request import read_recipe

        choice = conversions.choose_conversion(src, to, set, **which, config=config)
        params = "".join(f" --set {text}" for text in choice.set)
        rest = ", the rest as recorded" if choice.recorded else ""
        terminal.show([f"{choice.purpose}: {choice.recipe}{params}{rest}"])
        recipe = read_recipe(choice.recipe, choice.set)
    elif set:
        hint = "Name a layout with --to, or use `apply RECIPE SRC DST`."
        raise UsageError("--set is for the params of a recipe, and nothing says which recipe", hint=hint)
    named = (recipe, (src,), dst, options)
    check_documents([output.json_to], *named, page=output.report_to, overwrite=run.overwrite)
    report = Report(terminal, output, recipe)
    if dry_run:
        plan = applying.plan(recipe, src, dst=dst, overwrite=run.overwrite, config=config, **options)
        return report.planned(plan)
    carry_out = partial(applying.apply, recipe, src, dst=dst, config=config, **vars(run), **options)
    return report.carried_out(carry_out)
