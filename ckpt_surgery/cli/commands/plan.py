"""`plan`: what `apply` would do."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.console import Terminal, open_terminal, write_document
from ckpt_surgery.cli.options import (
    Command,
    check_documents,
    document_path,
    global_options,
    overwrite_option,
    plan_options,
    recipe_options,
    split_paths,
)

if TYPE_CHECKING:
    from ckpt_surgery.planner.plan import Plan

CHANGES = 2


@dataclass(frozen=True)
class Choices:
    """The options that the commands hand on to the library; there they have the same names."""

    step: int | None
    item: str | None
    src_format: str | None
    dst_step: int | None
    dst_item: str | None
    format: str | None
    shard_size: int | None
    """Bytes."""
    memory: int | None
    """Bytes."""
    workers: int | None
    target: str | None = None
    assignments: tuple[str, ...] = ()
    allow_hooks: bool = False


@click.command("plan", cls=Command, short_help="Show what a recipe would do, from metadata alone.")
@click.argument("recipe", metavar="RECIPE")
@click.argument("paths", metavar="SRC... [DST]", nargs=-1, required=True)
@recipe_options
@plan_options
@overwrite_option
@click.option("--out", callback=document_path, metavar="FILE", help="Save the plan, for `apply FILE`.")
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    recipe: str,
    paths: tuple[str, ...],
    target: str | None,
    assignments: tuple[str, ...],
    allow_hooks: bool,
    step: int | None,
    item: str | None,
    src_format: str | None,
    dst_step: int | None,
    dst_item: str | None,
    format_: str | None,
    shard_size: int | None,
    memory: int | None,
    workers: int | None,
    json_to: str | None,
    full: bool,
    detailed_exitcode: bool,
    overwrite: bool,
    out: str | None,
) -> int:
    """Show what RECIPE would do to SRC: every key's fate, and what it costs. Reads metadata only.

    A recipe takes one SRC unless it names several `sources`. With DST, all is refused that `apply` would
    refuse there, with --overwrite or without; nothing is created.
    """
    choices = Choices(
        step=step,
        item=item,
        src_format=src_format,
        dst_step=dst_step,
        dst_item=dst_item,
        format=format_,
        shard_size=shard_size,
        memory=memory,
        workers=workers,
        target=target,
        assignments=assignments,
        allow_hooks=allow_hooks,
    )
    sources, dst = split_paths(source_names(recipe, assignments), paths)
    check_documents([json_to, out], [recipe, *sources, target, dst])
    made = make_plan(recipe, sources, dst, choices, overwrite, out=out)
    show_plan(open_terminal(ctx.find_root().obj, json_to), made, full)
    return finish_plan(made, json_to, detailed_exitcode)


def make_plan(
    recipe: str | None,
    sources: tuple[str, ...],
    dst: str | None,
    choices: Choices,
    overwrite: bool,
    link_mode: str | None = None,
    out: str | None = None,
) -> "Plan":
    """What the library plans, without a recipe too; `out` saves it."""
    from ckpt_surgery import api

    made = api.plan(
        recipe,
        *sources,
        target=choices.target,
        set=choices.assignments,
        step=choices.step,
        item=choices.item,
        src_format=choices.src_format,
        format=choices.format,
        dst=dst,
        dst_step=choices.dst_step,
        dst_item=choices.dst_item,
        shard_size=choices.shard_size,
        memory=choices.memory,
        workers=choices.workers,
        allow_hooks=choices.allow_hooks,
        overwrite=overwrite,
        link_mode=link_mode,
        out=out,
    )
    click.get_current_context().meta["plan"] = made  # kept until the program has ended: see `leave`
    return made


def source_names(recipe: str, assignments: tuple[str, ...]) -> tuple[str, ...]:
    """The sources that a recipe takes, in order. Raises RecipeError."""
    from ckpt_surgery.language.loading import load_recipe

    return tuple(load_recipe(recipe, assignments).recipe.sources)


def is_saved_plan(recipe: str) -> bool:
    """Whether `recipe` is named like what `plan --out` writes."""
    return Path(recipe).suffix == ".json"


def show_plan(terminal: Terminal, plan: "Plan", full: bool) -> None:
    """The diff, then its warnings."""
    from ckpt_surgery.cli.render import warning_lines
    from ckpt_surgery.cli.render_plan import plan_lines

    verbose = terminal.settings.verbose > 0
    terminal.show(plan_lines(plan, full=full, verbose=verbose, width=terminal.text.width))
    terminal.warn(warning_lines(plan.warnings))


def finish_plan(plan: "Plan", json_to: str | None, detailed: bool) -> int:
    """Write the JSON that was asked for, and say by the exit code what the plan means."""
    from ckpt_surgery.planner.plan_json import plan_json

    if json_to is not None:
        write_document(plan_json(plan), json_to)
    return change_code(plan, detailed)


def change_code(plan: "Plan", detailed: bool) -> int:
    """The exit code of a success: with `--detailed-exitcode` 2 says that there are changes."""
    from ckpt_surgery.report.plan import has_changes

    return CHANGES if detailed and has_changes(plan) else 0
