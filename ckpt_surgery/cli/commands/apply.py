"""`apply`: run a recipe."""

from functools import partial
from typing import Annotated, Unpack

import click

from ckpt_surgery.cli.parameters.command import command, is_from_variable
from ckpt_surgery.cli.parameters.completion import complete_recipe
from ckpt_surgery.cli.parameters.options import Argument, DryRun, Form, PlanOutput, Rules, RunParameters
from ckpt_surgery.cli.parameters.paths import check_documents, given_recipe, source_names, split_paths
from ckpt_surgery.cli.render.reports import Report
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs.options import PlanOptions

EXAMPLES = {
    "apply recipe.yaml old new": "Write the checkpoint `new` as a recipe says.",
    "apply @hf-llama3-to-jax model jax --memory 8GiB": "A recipe of the package, in 8 GiB of memory.",
    "apply -e 's|params/old/(.*)|params/new/\\1|' -e 'drop:opt_state/.*' old new": "Without a file.",
    "apply plan.json new --overwrite": "Carry out a saved plan, and replace what is there.",
}


@command("apply", EXAMPLES, "Run a recipe: write DST from SRC.")
def apply(
    ctx: click.Context,
    terminal: Terminal,
    recipe: Annotated[str, Argument("RECIPE", complete=complete_recipe)],
    paths: Annotated[tuple[str, ...], Argument("SRC... DST", more={"nargs": -1})],
    rules: Rules,
    output: PlanOutput,
    dry_run: DryRun,
    run: RunParameters,
    shard: Annotated[
        str | None,
        "Do part I of N (from 0 on) of a saved plan; any machine can do any part. Then: commit DST.",
        Form("I/N"),
    ],
    **options: Unpack[PlanOptions],
) -> int | None:
    """Write the checkpoint that RECIPE makes of SRC to DST.

    A recipe takes one SRC unless it names several `sources`. The diff is printed before any data is read.
    A plan saved with `plan --out` replaces RECIPE and its sources: `apply plan.json DST`. So do rules: `apply
    -e 's|old/(.*)|new/\\1|' SRC DST`.
    """
    from ckpt_surgery.api import applying
    from ckpt_surgery.inputs.request import is_plan_file

    paths = (recipe, *paths) if rules else paths
    given = options.pop("set", None) or ()
    loaded = None if is_plan_file(recipe) and not rules else given_recipe(recipe, rules, given, terminal)
    if loaded is None and is_from_variable(ctx, "link_mode"):
        options["link_mode"] = None  # the plan has decided it
    if loaded is not None:
        sources, dst = split_paths(source_names(loaded, options.get("last")), paths, needs_dst=True)
    elif dry_run:
        raise UsageError(f"{recipe} is a plan already", hint="Leave out --dry-run to carry it out.")
    else:
        sources, dst = paths[:-1], paths[-1] if paths else None  # a plan may know its destination
    named = (loaded or recipe, sources, dst, options)
    check_documents([output.json_to], *named, page=output.report_to, overwrite=run.overwrite)
    if shard is not None:
        given = {
            "--dry-run": dry_run,
            "--resume": run.resume,
            "--engine": run.engine != "local" and not is_from_variable(ctx, "engine"),
            "--report": output.report_to is not None,
            "--copy-config": run.copy_config is not None,
        }
        if wrong := [*(name for name, there in given.items() if there), *map(shown, sources)]:
            hint = (
                "A shard is `apply plan.json DST --shard I/N`; a killed one is run again from its beginning."
            )
            raise UsageError(f"{wrong[0]} does not go with --shard", hint=hint)
        return _shard(terminal, recipe, dst, shard, run, options)
    report = Report(terminal, output, loaded)
    if dry_run:
        return report.planned(applying.plan(loaded, *sources, dst=dst, overwrite=run.overwrite, **options))
    carry_out = partial(applying.apply, loaded or recipe, *sources, dst=dst, **vars(run), **options)
    return report.carried_out(carry_out)


def _shard(
    terminal: Terminal, plan: str, dst: str | None, shard: str, run: RunParameters, options: PlanOptions
) -> int:
    """Carry out one shard, and print what was done, and which shards are left to do."""
    from ckpt_surgery.api import applying
    from ckpt_surgery.core.text import bytes_text, few, number_of, seconds_text

    carry_out = partial(applying.apply_shard, plan, dst=dst, shard=shard, overwrite=run.overwrite)
    with terminal.reading() as progress:
        done = carry_out(verify=run.verify, progress=progress, **options)
    terminal.write(lambda: done)
    what = f" · {number_of(done.tasks, 'task')} · {bytes_text(done.bytes)} in {seconds_text(done.seconds)}"
    what = f"{done.shard}/{done.shards}{' was done before' if done.already_done else what}"
    destination = shown(done.destination)
    terminal.show([(("done", "bold green"), f"  shard {what} · {destination}")])
    if missing := [f"{index}/{done.shards}" for index in done.missing_shards]:
        left = f"{len(missing)} not done yet: {few(missing, 20)}"
        terminal.show([((left, "dim"),)])
    else:
        terminal.show([f"all shards are done: ckpt-surgery commit {destination}"])
    return 0
