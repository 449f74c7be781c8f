"""`apply`: run a recipe."""

from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.console import Terminal, open_terminal, write_document
from ckpt_surgery.cli.options import global_options, plan_options, split_paths
from ckpt_surgery.cli.plan import (
    Choices,
    change_code,
    finish_plan,
    is_saved_plan,
    make_plan,
    show_plan,
    source_names,
)
from ckpt_surgery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckpt_surgery import api
    from ckpt_surgery.planner import Plan


@click.command("apply", short_help="Run a recipe: write DST from SRC.")
@click.argument("recipe", metavar="RECIPE")
@click.argument("paths", metavar="SRC... DST", nargs=-1)
@plan_options
@click.option("--dry-run", is_flag=True, help="Stop after the diff; nothing is written.")
@click.option("--overwrite", is_flag=True, help="Replace DST; it stays until the new one is complete.")
@click.option(
    "--link-mode",
    type=click.Choice(["auto", "reflink", "hardlink", "copy"]),
    help="How stored bytes that need no change come into DST; default auto.",
)
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    recipe: str,
    paths: tuple[str, ...],
    target: str | None,
    assignments: tuple[str, ...],
    step: int | None,
    item: str | None,
    dst_step: int | None,
    dst_item: str | None,
    format_: str | None,
    memory: int | None,
    workers: int | None,
    allow_hooks: bool,
    json_to: str | None,
    full: bool,
    detailed_exitcode: bool,
    dry_run: bool,
    overwrite: bool,
    link_mode: str | None,
) -> int:
    """Write the checkpoint that RECIPE makes of SRC to DST.

    A recipe takes one SRC unless it names several `sources`. The diff is printed before any data is read.
    A plan saved with `plan --out` may stand for RECIPE and its sources: `apply plan.json DST`.
    """
    choices = Choices(
        target, assignments, step, item, dst_step, dst_item, format_, memory, workers, allow_hooks
    )
    sources, dst = _sources_and_destination(recipe, assignments, paths)
    terminal = open_terminal(ctx.find_root().obj, json_to)
    if dry_run and is_saved_plan(recipe):
        raise UsageError(f"{recipe} is a plan already", hint="Leave out --dry-run to carry it out.")
    if dry_run:
        made = make_plan(recipe, sources, dst, choices, link_mode=link_mode)
        show_plan(terminal, made, full)
        return finish_plan(made, json_to, detailed_exitcode)
    result = _run(
        recipe,
        sources,
        dst,
        choices,
        overwrite,
        link_mode,
        terminal,
        lambda plan: show_plan(terminal, plan, full),
    )
    _finish(result, terminal, json_to)
    return change_code(result.plan, detailed_exitcode)


def _run(
    recipe: str,
    sources: tuple[str, ...],
    dst: str | None,
    choices: Choices,
    overwrite: bool,
    link_mode: str | None,
    terminal: Terminal,
    on_plan: "Callable[[Plan], None]",
) -> "api.Result":
    from ckpt_surgery import api
    from ckpt_surgery.cli.progress import reporting

    with reporting(terminal.notes, terminal.settings.quiet) as progress:
        return api.apply(
            recipe,
            *sources,
            dst=dst,
            target=choices.target,
            set=choices.assignments,
            step=choices.step,
            item=choices.item,
            format=choices.format,
            dst_step=choices.dst_step,
            dst_item=choices.dst_item,
            overwrite=overwrite,
            link_mode=link_mode,
            memory=choices.memory,
            workers=choices.workers,
            allow_hooks=choices.allow_hooks,
            progress=progress,
            on_plan=on_plan,
        )


def _finish(result: "api.Result", terminal: Terminal, json_to: str | None) -> None:
    """Notices, the summary, and the JSON that was asked for."""
    from ckpt_surgery.cli.render import result_line, warning_lines
    from ckpt_surgery.report import plan_json

    terminal.warn(warning_lines(result.notices))
    terminal.show([result_line(result)])
    if json_to is not None:
        ran = {"seconds": result.seconds, "destination": result.destination, "verified": result.verified}
        write_document({**plan_json(result.plan), **ran}, json_to)


def _sources_and_destination(
    recipe: str, assignments: tuple[str, ...], paths: tuple[str, ...]
) -> tuple[tuple[str, ...], str | None]:
    """What `paths` are. A saved plan may know its destination itself."""
    if is_saved_plan(recipe):
        return paths[:-1], paths[-1] if paths else None
    sources, dst = split_paths(source_names(recipe, assignments), paths)
    if dst is None:
        raise UsageError("DST is missing", hint="Name the directory to write after the sources.")
    return sources, dst
