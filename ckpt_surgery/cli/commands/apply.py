"""`apply`: run a recipe."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path, complete_recipe
from ckpt_surgery.cli.console import expect_arrays, open_terminal, reuse_memory, write_document
from ckpt_surgery.cli.given_recipes import given_recipe
from ckpt_surgery.cli.options import (
    global_options,
    last_option,
    plan_options,
    recipe_options,
    run_options,
)
from ckpt_surgery.cli.paths import missing_destination, source_names, split_paths
from ckpt_surgery.cli.reports import Report
from ckpt_surgery.cli.variables import is_from_variable
from ckpt_surgery.cli.written_files import check_documents, check_kept
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    from typing import Unpack

    from ckpt_surgery.inputs.options import PlanOptions


EXAMPLES = {
    "apply recipe.yaml old new": "Write the checkpoint `new` as a recipe says.",
    "apply @hf-llama3-to-jax model jax --memory 8GiB": "A recipe of the package, in 8 GiB of memory.",
    "apply -e 's|params/old/(.*)|params/new/\\1|' -e 'drop:opt_state/.*' old new": "Without a file.",
    "apply plan.json new --overwrite": "Carry out a saved plan, and replace what is there.",
}


@click.command("apply", cls=Command, short_help="Run a recipe: write DST from SRC.", examples=EXAMPLES)
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.argument("paths", metavar="SRC... DST", nargs=-1, shell_complete=complete_path)
@recipe_options
@last_option
@plan_options
@run_options
@click.option(
    "--shard",
    metavar="I/N",
    help="Do part I of N (from 0 on) of a saved plan; any machine can do any part. Then: commit DST.",
)
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    recipe: str,
    paths: tuple[str, ...],
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
    shard: str | None,
    rules: tuple[str, ...],
    **options: "Unpack[PlanOptions]",
) -> int:
    """Write the checkpoint that RECIPE makes of SRC to DST.

    A recipe takes one SRC unless it names several `sources`. The diff is printed before any data is read.
    A plan saved with `plan --out` replaces RECIPE and its sources: `apply plan.json DST`. So do rules: `apply
    -e 's|old/(.*)|new/\\1|' SRC DST`.
    """
    from ckpt_surgery.api import applying
    from ckpt_surgery.inputs.request import is_plan_file

    paths = (recipe, *paths) if rules else paths
    terminal = open_terminal(ctx.find_root().obj, json_to)
    given = options.pop("set", None) or ()
    loaded = None if is_plan_file(recipe) and not rules else given_recipe(recipe, rules, given, terminal)
    if loaded is None and is_from_variable(ctx, "link_mode"):
        options["link_mode"] = None  # the plan has decided it
    if loaded is not None:
        sources, dst = split_paths(source_names(loaded, options.get("last")), paths)
        if dst is None:
            raise missing_destination(source_names(loaded, options.get("last")))
    elif dry_run:
        raise UsageError(f"{recipe} is a plan already", hint="Leave out --dry-run to carry it out.")
    else:
        sources, dst = paths[:-1], paths[-1] if paths else None  # a plan may know its destination
    check_documents([json_to, report_to], loaded or recipe, sources, dst, options)
    check_kept(overwrite, page=report_to)
    if shard is not None:
        _check_shard(
            sources,
            {
                "--dry-run": dry_run,
                "--resume": resume,
                "--engine": engine != "local" and not is_from_variable(ctx, "engine"),
                "--report": report_to is not None,
                "--copy-config": copy_config is not None,
            },
        )
        return _shard(ctx, recipe, dst, shard, json_to, overwrite, verify, options)
    report = Report(terminal, full, json_to, detailed_exitcode, report_to, loaded)
    if dry_run:
        return report.planned(applying.plan(loaded, *sources, dst=dst, overwrite=overwrite, **options))
    run = partial(applying.apply, loaded or recipe, *sources, dst=dst, copy_config=copy_config)
    manner = {"engine": engine, "scheduler": scheduler, "resume": resume, "verify": verify}
    return report.carried_out(partial(run, overwrite=overwrite, **manner, **options))


def _check_shard(sources: tuple[str, ...], given: Mapping[str, bool]) -> None:
    """Refuse what a shard has no use for. `given`: options, and whether they were. Raises UsageError."""
    wrong = next((name for name, there in given.items() if there), shown(sources[0]) if sources else None)
    if wrong is not None:
        raise UsageError(
            f"{wrong} does not go with --shard",
            hint="A shard is `apply plan.json DST --shard I/N`; one that was killed is run again from its "
            "beginning.",
        )


def _shard(
    ctx: click.Context,
    plan: str,
    dst: str | None,
    shard: str,
    json_to: str | None,
    overwrite: bool,
    verify: str,
    options: "PlanOptions",
) -> int:
    """Carry out one shard, and print what was done."""
    from ckpt_surgery.api import sharding
    from ckpt_surgery.cli.progress import reporting
    from ckpt_surgery.cli.render_shards import shard_lines

    terminal = open_terminal(ctx.find_root().obj, json_to)
    reuse_memory()
    expect_arrays()
    with reporting(terminal.notes, terminal.settings.quiet) as progress:
        done = sharding.apply_shard(
            plan, dst=dst, shard=shard, overwrite=overwrite, verify=verify, progress=progress, **options
        )
    if json_to is not None:
        write_document(done, json_to)
    terminal.show(shard_lines(done))
    return 0
