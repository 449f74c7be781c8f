"""`plan`: what `apply` would do."""

import sys
from collections.abc import Sequence
from typing import Annotated, Unpack

import click
from click.core import ParameterSource

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem, rendered
from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_recipe
from ckpt_surgery.cli.parameters.options import (
    FILE,
    Argument,
    Overwrite,
    PlanOutput,
    ReportAs,
    ReportFormat,
    Rules,
    report_format,
)
from ckpt_surgery.cli.parameters.paths import check_documents, given_recipe, source_names, split_paths
from ckpt_surgery.cli.render.reports import Report
from ckpt_surgery.cli.terminal.console import STDOUT, open_terminal
from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.inputs.options import PlanOptions

PRINTED = (ReportFormat.TEXT, ReportFormat.GITHUB)
"""Reports that leave stdout to text as well."""
SHOWS = frozenset({"recipe", "full", "json_to", "report_to", "detailed_exitcode"})
"""Arguments that say how a saved plan is shown; the plan has decided about all others."""

EXAMPLES = {
    "plan recipe.yaml old": "What a recipe would do.",
    "plan recipe.yaml old new --out plan.json": "Check the destination too; save the plan.",
    "plan plan.json": "What a saved plan will do, and whether its sources still fit.",
    "plan recipe.yaml old --target new --detailed-exitcode": "Against a structure; changes exit with 2.",
}


@command("plan", EXAMPLES, "Show what a recipe would do, from metadata alone.")
def plan(
    ctx: click.Context,
    recipe: Annotated[str, Argument("RECIPE", complete=complete_recipe)],
    paths: Annotated[tuple[str, ...], Argument("SRC... [DST]", more={"nargs": -1})],
    rules: Rules,
    output: PlanOutput,
    overwrite: Overwrite,
    report_format: Annotated[ReportAs, report_format("--report-format")],
    out: Annotated[str | None, "Save the plan, for `apply FILE`.", FILE],
    **options: Unpack[PlanOptions],
) -> int:
    """Show what RECIPE would do to SRC: every key's fate, and what it costs. Reads metadata only.

    A recipe takes one SRC unless it names several `sources`. With DST, everything is refused that `apply`
    would refuse there, with --overwrite or without; nothing is created.

    A file that --out has saved is shown without its sources, and they are compared with what they were.
    """
    from ckpt_surgery.api import applying
    from ckpt_surgery.inputs.request import is_plan_file

    if is_plan_file(recipe) and not rules:
        code = _show_saved_plan(ctx, recipe, paths, output)
        if code is not None:
            return code
    if not (paths or rules):
        raise click.MissingParameter(param_hint="'SRC... [DST]'", param_type="argument")
    paths = (recipe, *paths) if rules else paths
    if report_format is ReportFormat.JSON:
        output.json_to = output.json_to or STDOUT
    elif report_format is ReportFormat.SARIF and output.json_to == STDOUT:
        hint = "Name a file for one of them: --json FILE."
        raise UsageError("--json and --report-format sarif would both be written to stdout", hint=hint)
    settings = ctx.find_root().obj
    terminal = open_terminal(settings, output.json_to, taken=report_format not in PRINTED)
    loaded = given_recipe(recipe, rules, options.pop("set", None) or (), terminal)
    sources, dst = split_paths(source_names(loaded, options.get("last")), paths)
    named = (loaded, sources, dst, options)
    check_documents([output.json_to, out], *named, page=output.report_to, overwrite=overwrite)
    report = Report(terminal, output, loaded)
    planned = applying.plan(loaded, *sources, dst=dst, overwrite=overwrite, out=out, **options)
    code = report.planned(planned)
    if report_format in (ReportFormat.GITHUB, ReportFormat.SARIF):
        path = None if rules else recipe
        warnings = [ReportedProblem(shown(warning), path=path) for warning in planned.warnings]
        sys.stdout.write(rendered(report_format, warnings, 0))
    return code


def _show_saved_plan(ctx: click.Context, path: str, paths: Sequence[str], output: PlanOutput) -> int | None:
    """Show the saved plan in a file; None where the file is something else. Returns the exit code."""
    from ckpt_surgery.inputs import output_files
    from ckpt_surgery.inputs.pinned import refuse_arguments, show_plan

    saved = show_plan(path)
    if saved is None:
        return None
    decided = [
        f"`{param.opts[-1]}`"
        for param in ctx.command.params
        if isinstance(param, click.Option) and param.expose_value and param.name not in SHOWS
        if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    ]
    refuse_arguments(path, [*map(shown, paths), *decided])
    inputs = [output_files.CheckpointPath(i.path, i.format, i.step, i.item) for i in saved.plan.inputs]
    output_files.check_documents([output.json_to, output.report_to], inputs, [path])
    terminal = open_terminal(ctx.find_root().obj, output.json_to)
    code = Report(terminal, output).planned(saved.plan, misfits=dict(saved.misfits))
    request = saved.request
    settings = f"{bytes_text(request.memory)} of memory, {request.workers} threads"
    where = "no destination" if request.dst is None else shown(urls.near(request.dst))
    terminal.show([f"saved for {where} ({request.format}; {settings})"])
    fitting = ", ".join(shown(name) for name, why in saved.misfits.items() if why is None)
    if fitting:
        terminal.show([((f"as when the plan was made: {fitting}", "green"),)])
    misfits = {name: why for name, why in saved.misfits.items() if why is not None}
    terminal.warn_of(f"{name} {why}; `apply` will refuse this plan" for name, why in misfits.items())
    return code
