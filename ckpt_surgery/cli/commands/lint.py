"""`lint`: all problems of recipes."""

import sys
from collections.abc import Sequence

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_recipe
from ckpt_surgery.cli.console import (
    STDOUT,
    Terminal,
    cut_lines,
    open_terminal,
    print_errors,
    problem_text,
    problem_texts,
    styled_line,
    write_document,
)
from ckpt_surgery.cli.options import global_options, report_format_option
from ckpt_surgery.cli.problem_reports import ReportFormat, error_json, rendered
from ckpt_surgery.cli.told_problems import told
from ckpt_surgery.core.errors import Problem, RecipeError
from ckpt_surgery.core.text import shown

Found = Sequence[tuple[str, Sequence[Problem]]]
"""The path of each recipe, and its problems."""


EXAMPLES = {
    "lint recipe.yaml": "All problems of a recipe.",
    "lint recipe.yaml --fix": "Mend what has a single remedy, and print what changed.",
    "lint recipes/*.yaml --format github": "As annotations of GitHub Actions.",
}


@click.command("lint", cls=Command, short_help="Check recipes without a checkpoint.", examples=EXAMPLES)
@click.argument("recipes", metavar="RECIPE...", nargs=-1, required=True, shell_complete=complete_recipe)
@click.option("--fix", is_flag=True, help="Rewrite RECIPE without the mistakes that have a single remedy.")
@report_format_option("--format", "--report-format")
@global_options
@click.pass_context
def command(ctx: click.Context, recipes: tuple[str, ...], fix: bool, report_format: ReportFormat) -> int:
    """List all problems of each RECIPE, each with its line and its code. Exits with 2 if there are any.

    With --fix, misspelt fields and functions, texts that need quotes, and signs of templates in expressions
    are mended where there is one remedy only; comments stay, and the changes are printed as a diff. Then the
    problems that are left are listed.
    """
    import ckpt_surgery

    settings = ctx.find_root().obj
    if fix:
        _mend(recipes, open_terminal(settings, None if report_format is ReportFormat.TEXT else STDOUT))
    found = ckpt_surgery.lint(recipes)
    code = RecipeError.exit_code if any(problems for _, problems in found) else 0
    if report_format is ReportFormat.TEXT:
        _show(found, open_terminal(settings))
    elif report_format is ReportFormat.JSON:
        write_document(_document(found, code), STDOUT)
    else:
        every = [told(problem, path) for path, problems in found for problem in problems]
        sys.stdout.write(rendered(report_format, every, code))
    return code


def _mend(recipes: Sequence[str], terminal: Terminal) -> None:
    """Rewrite recipes, and print what changed in them."""
    from rich.text import Text

    from ckpt_surgery.mending import mend_recipe

    styles = {"-": "red", "+": "green", "@": "cyan"}
    for recipe in recipes:
        lines = mend_recipe(recipe).diff
        terminal.show(Text(shown(line), styles.get(line[:1], "")) for line in lines)


def _show(found: Found, terminal: Terminal) -> None:
    from rich.text import Text

    total = 0
    for path, problems in found:
        if not problems:
            terminal.show([Text(f"{shown(path)}: ").append("no problems", "green")])
        elif all(problem.place is None for problem in problems):  # it could not be read
            print_errors(problem_texts(problems), terminal.settings)
        else:
            lines = [line for problem in problems for line in f"{problem_text(problem)}\n".split("\n")]
            lines = cut_lines(lines, terminal.text.width) if terminal.text.is_terminal else lines
            terminal.show(map(styled_line, lines))
            total += len(problems)
    if total:
        terminal.show([Text(f"{total} problem{'' if total == 1 else 's'}", "bold red")])


def _document(found: Found, code: int) -> dict[str, object]:
    """Which recipes were checked; problems are in it as in the document of a command that fails."""
    from ckpt_surgery.core.documents import JSON_SCHEMA

    every = [told(problem, path) for path, problems in found for problem in problems]
    document: dict[str, object] = {"schema": JSON_SCHEMA, "recipes": [path for path, _ in found]}
    return {**document, "error": error_json(every, code)} if every else document
