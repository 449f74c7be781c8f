"""`merge`: models merged by a configuration of mergekit."""

from functools import partial
from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import file_path, global_options, plan_options, run_options
from ckpt_surgery.cli.reports import Report
from ckpt_surgery.cli.written_files import check_documents, check_kept

if TYPE_CHECKING:
    from typing import Unpack

    from ckpt_surgery.inputs.options import ConvertOptions

EXAMPLES = {
    "merge merge.yaml merged": "Merge models as the file says, into a directory of safetensors.",
    "merge merge.yaml merged --dry-run": "What would be made of which tensors, and what it costs.",
    "merge dare.yaml merged --seed 7 --shard-size 5GB": "Other random masks; files of 5 GB at most.",
    "merge merge.yaml merged --dry-run --recipe as-recipe.yaml": "The recipe, to change it and run it.",
}


@click.command(
    "merge", cls=Command, short_help="Merge models by a configuration of mergekit.", examples=EXAMPLES
)
@click.argument("config", metavar="CONFIG", shell_complete=complete_path)
@click.argument("dst", metavar="DST", shell_complete=complete_path)
@click.option(
    "--seed", type=int, default=0, metavar="N", help="For methods that draw at random. [default: 0]"
)
@click.option(
    "--recipe",
    "recipe_to",
    callback=file_path,
    shell_complete=complete_path,
    metavar="FILE",
    help="Also write the recipe that is carried out.",
)
@plan_options
@run_options
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    config: str,
    dst: str,
    seed: int,
    recipe_to: str | None,
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
    """Merge models into DST as CONFIG says, a YAML file as mergekit 0.1.5 takes it.

    Models are local directories. Values are computed in float32 and rounded once; layers that stay as they
    are are linked. DST is a directory of safetensors unless its name or --format says otherwise, with the
    config and the tokenizer files of the base model, or else of the first model.
    """
    import ckpt_surgery

    terminal = open_terminal(ctx.find_root().obj, json_to)
    check_documents([json_to, report_to, recipe_to], config, (), dst, options)
    check_kept(overwrite, recipe=recipe_to, page=report_to)
    if recipe_to is not None:
        _write_recipe(config, seed, recipe_to)
    report = Report(terminal, full, json_to, detailed_exitcode, report_to)
    if dry_run:
        plan = ckpt_surgery.plan_merge(config, dst, seed=seed, overwrite=overwrite, **options)
        return report.planned(plan)
    run = partial(ckpt_surgery.merge, config, dst, seed=seed, copy_config=copy_config, **options)
    manner = {"engine": engine, "scheduler": scheduler, "resume": resume, "verify": verify}
    return report.carried_out(partial(run, overwrite=overwrite, **manner))


def _write_recipe(config: str, seed: int, file: str) -> None:
    import ckpt_surgery
    from ckpt_surgery.inputs import output_files

    text = ckpt_surgery.merge_recipe(config, seed=seed).to_yaml()
    output_files.write_document(file, text.encode("utf-8", "surrogatepass"))
