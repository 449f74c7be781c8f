"""`merge`: models merged by a configuration of mergekit."""

from functools import partial
from typing import Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_path
from ckpt_surgery.cli.parameters.options import Argument, DryRun, Form, PlanOutput, RunParameters, file_path
from ckpt_surgery.cli.parameters.paths import check_documents
from ckpt_surgery.cli.render.reports import Report
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.inputs.options import ConvertOptions, Seed

EXAMPLES = {
    "merge merge.yaml merged": "Merge models as the file says, into a directory of safetensors.",
    "merge merge.yaml merged --dry-run": "What would be made of which tensors, and what it costs.",
    "merge dare.yaml merged --seed 7 --shard-size 5GB": "Other random masks; files of 5 GB at most.",
    "merge merge.yaml merged --dry-run --recipe as-recipe.yaml": "The recipe, to change it and run it.",
}


@command("merge", EXAMPLES, "Merge models by a configuration of mergekit.")
def merge(
    terminal: Terminal,
    config: Annotated[str, Argument("CONFIG")],
    dst: Annotated[str, Argument("DST")],
    seed: Seed,
    recipe_to: Annotated[
        str | None,
        "Also write the recipe that is carried out.",
        Form("FILE", ("--recipe",), file_path, complete_path),
    ],
    output: PlanOutput,
    dry_run: DryRun,
    run: RunParameters,
    **options: Unpack[ConvertOptions],
) -> int | None:
    """Merge models into DST as CONFIG says, a YAML file as mergekit 0.1.5 takes it.

    Models are local directories. Values are computed in float32 and rounded once; layers that stay as they
    are are linked. DST is a directory of safetensors unless its name or --format says otherwise, with the
    config and the tokenizer files of the base model, or else of the first model.
    """
    import ckpt_surgery
    from ckpt_surgery.api.merging import model_paths
    from ckpt_surgery.inputs import output_files

    named = (config, model_paths(config), dst, options)
    check_documents([output.json_to, recipe_to], *named, page=output.report_to, overwrite=run.overwrite)
    if recipe_to is not None:
        output_files.check_kept(recipe_to, run.overwrite)
        text = ckpt_surgery.merge_recipe(config, seed=seed).to_yaml()
        output_files.write_document(recipe_to, text.encode("utf-8", "surrogatepass"))
    report = Report(terminal, output)
    if dry_run:
        plan = ckpt_surgery.plan_merge(config, dst, seed=seed, overwrite=run.overwrite, **options)
        return report.planned(plan)
    return report.carried_out(partial(ckpt_surgery.merge, config, dst, seed=seed, **vars(run), **options))
