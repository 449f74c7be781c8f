"""`apply`: run a recipe."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.commands.plan import (
    Choices,
    change_code,
    finish_plan,
    is_saved_plan,
    make_plan,
    show_plan,
    source_names,
)
from ckpt_surgery.cli.console import (
    Terminal,
    expect_arrays,
    open_terminal,
    reuse_memory,
    write_document,
)
from ckpt_surgery.cli.options import (
    Command,
    check_documents,
    global_options,
    plan_options,
    recipe_options,
    run_options,
    split_paths,
)
from ckpt_surgery.core.errors import UsageError

if TYPE_CHECKING:
    from ckpt_surgery import api
    from ckpt_surgery.planner.plan import Plan


@click.command("apply", cls=Command, short_help="Run a recipe: write DST from SRC.")
@click.argument("recipe", metavar="RECIPE")
@click.argument("paths", metavar="SRC... DST", nargs=-1)
@recipe_options
@plan_options
@run_options
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
    dry_run: bool,
    overwrite: bool,
    link_mode: str | None,
) -> int:
    """Write the checkpoint that RECIPE makes of SRC to DST.

    A recipe takes one SRC unless it names several `sources`. The diff is printed before any data is read.
    A plan saved with `plan --out` may stand for RECIPE and its sources: `apply plan.json DST`.
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
    sources, dst = _sources_and_destination(recipe, assignments, paths)
    check_documents([json_to], [recipe, *sources, target, dst])
    terminal = open_terminal(ctx.find_root().obj, json_to)
    if dry_run and is_saved_plan(recipe):
        raise UsageError(f"{recipe} is a plan already", hint="Leave out --dry-run to carry it out.")
    report = Report(terminal, full, json_to, detailed_exitcode)
    if dry_run:
        return rehearse(recipe, sources, dst, choices, overwrite, link_mode, report)
    return carry_out(recipe, sources, dst, choices, overwrite, link_mode, report)


@dataclass(frozen=True)
class Report:
    """Where and how a run is told."""

    terminal: Terminal
    full: bool
    """One line per key."""
    json_to: str | None
    """A file, `-` or None: where the JSON document goes."""
    detailed_exitcode: bool


def rehearse(
    recipe: str | None,
    sources: tuple[str, ...],
    dst: str | None,
    choices: Choices,
    overwrite: bool,
    link_mode: str | None,
    report: Report,
) -> int:
    """Show what would be done; the exit code."""
    made = make_plan(recipe, sources, dst, choices, overwrite, link_mode)
    show_plan(report.terminal, made, report.full)
    return finish_plan(made, report.json_to, report.detailed_exitcode)


def carry_out(
    recipe: str | None,
    sources: tuple[str, ...],
    dst: str | None,
    choices: Choices,
    overwrite: bool,
    link_mode: str | None,
    report: Report,
) -> int:
    """Do it, without a recipe too, and tell; the exit code."""
    from ckpt_surgery import api
    from ckpt_surgery.cli.progress import reporting

    terminal = report.terminal
    reuse_memory()

    def on_plan(plan: "Plan") -> None:
        expect_arrays()
        show_plan(terminal, plan, report.full)

    with reporting(terminal.notes, terminal.settings.quiet) as progress:
        result = api.apply(
            recipe,
            *sources,
            dst=dst,
            target=choices.target,
            set=choices.assignments,
            step=choices.step,
            item=choices.item,
            src_format=choices.src_format,
            format=choices.format,
            dst_step=choices.dst_step,
            dst_item=choices.dst_item,
            shard_size=choices.shard_size,
            overwrite=overwrite,
            link_mode=link_mode,
            memory=choices.memory,
            workers=choices.workers,
            allow_hooks=choices.allow_hooks,
            progress=progress,
            on_plan=on_plan,
        )
    _finish(result, terminal, report.json_to)
    return change_code(result.plan, report.detailed_exitcode)


def _finish(result: "api.Result", terminal: Terminal, json_to: str | None) -> None:
    """Notices, the summary, and the JSON that was asked for."""
    from ckpt_surgery.cli.render import warning_lines
    from ckpt_surgery.cli.render_plan import result_line
    from ckpt_surgery.planner.plan_json import plan_json

    terminal.warn(warning_lines(result.notices))
    terminal.show([result_line(result)])
    if json_to is not None:
        ran = {"seconds": result.seconds, "destination": result.destination}
        write_document({**plan_json(result.plan), **ran}, json_to)


def _sources_and_destination(
    recipe: str, assignments: tuple[str, ...], paths: tuple[str, ...]
) -> tuple[tuple[str, ...], str | None]:
    """What `paths` are. A saved plan may know its destination itself."""
    if is_saved_plan(recipe):
        return paths[:-1], paths[-1] if paths else None
    sources, dst = split_paths(source_names(recipe, assignments), paths)
    if dst is None:
        raise UsageError("DST is missing", hint="Name the directory or file to write after the sources.")
    return sources, dst
