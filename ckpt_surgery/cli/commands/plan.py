"""`plan`: what `apply` would do."""

import sys
from typing import TYPE_CHECKING

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path, complete_recipe
from ckpt_surgery.cli.console import STDOUT, open_terminal
from ckpt_surgery.cli.given_recipes import given_recipe
from ckpt_surgery.cli.options import (
    file_path,
    global_options,
    last_option,
    overwrite_option,
    plan_options,
    recipe_options,
    report_format_option,
)
from ckpt_surgery.cli.paths import source_names, split_paths
from ckpt_surgery.cli.problem_reports import ReportFormat, rendered
from ckpt_surgery.cli.reports import Report
from ckpt_surgery.cli.told_problems import warned
from ckpt_surgery.cli.written_files import check_documents, check_kept
from ckpt_surgery.core.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from ckpt_surgery.inputs.options import PlanOptions


PRINTED = (ReportFormat.TEXT, ReportFormat.GITHUB)
"""Reports that leave stdout to text as well."""
_ONE = "Name a file for one of them: --json FILE."


EXAMPLES = {
    "plan recipe.yaml old": "What a recipe would do.",
    "plan recipe.yaml old new --out plan.json": "Check the destination too; save the plan.",
    "plan plan.json": "What a saved plan will do, and whether its sources still fit.",
    "plan recipe.yaml old --target new --detailed-exitcode": "Against a structure; changes exit with 2.",
}


@click.command(
    "plan", cls=Command, short_help="Show what a recipe would do, from metadata alone.", examples=EXAMPLES
)
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.argument("paths", metavar="SRC... [DST]", nargs=-1, shell_complete=complete_path)
@recipe_options
@last_option
@plan_options
@overwrite_option
@report_format_option("--report-format")
@click.option(
    "--out",
    callback=file_path,
    shell_complete=complete_path,
    metavar="FILE",
    help="Save the plan, for `apply FILE`.",
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
    overwrite: bool,
    out: str | None,
    rules: tuple[str, ...],
    report_format: ReportFormat,
    **options: "Unpack[PlanOptions]",
) -> int:
    """Show what RECIPE would do to SRC: every key's fate, and what it costs. Reads metadata only.

    A recipe takes one SRC unless it names several `sources`. With DST, everything is refused that `apply`
    would refuse there, with --overwrite or without; nothing is created.

    A file that --out has saved is shown without its sources, and they are compared with what they were.
    """
    from ckpt_surgery.api import applying
    from ckpt_surgery.inputs.request import is_plan_file

    if is_plan_file(recipe) and not rules:
        from ckpt_surgery.cli.saved_plan_view import show_saved_plan

        code = show_saved_plan(ctx, recipe, paths, full, json_to, report_to, detailed_exitcode)
        if code is not None:
            return code
    if not (paths or rules):
        raise click.MissingParameter(param_hint="'SRC... [DST]'", param_type="argument")
    paths = (recipe, *paths) if rules else paths
    if report_format is ReportFormat.JSON:
        json_to = json_to or STDOUT
    elif report_format is ReportFormat.SARIF and json_to == STDOUT:
        raise UsageError("--json and --report-format sarif would both be written to stdout", hint=_ONE)
    terminal = open_terminal(ctx.find_root().obj, json_to if report_format in PRINTED else STDOUT)
    loaded = given_recipe(recipe, rules, options.pop("set", None) or (), terminal)
    sources, dst = split_paths(source_names(loaded, options.get("last")), paths)
    check_documents([json_to, report_to, out], loaded, sources, dst, options)
    check_kept(overwrite, page=report_to)
    report = Report(terminal, full, json_to, detailed_exitcode, report_to, loaded)
    plan = applying.plan(loaded, *sources, dst=dst, overwrite=overwrite, out=out, **options)
    code = report.planned(plan)
    if report_format in (ReportFormat.GITHUB, ReportFormat.SARIF):
        sys.stdout.write(rendered(report_format, warned(plan.warnings, None if rules else recipe), 0))
    return code
