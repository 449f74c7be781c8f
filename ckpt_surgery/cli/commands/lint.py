"""`lint`: all problems of recipes, and warnings."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import click

from ckpt_surgery.cli.documents.reported_problems import as_report, rendered
from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_recipe
from ckpt_surgery.cli.parameters.options import Argument, ReportAs, ReportFormat, report_format
from ckpt_surgery.cli.terminal import console
from ckpt_surgery.core.errors import Problem, RecipeError
from ckpt_surgery.core.text import number_of, shown

if TYPE_CHECKING:
    from ckpt_surgery.api.linting import CheckedRecipe

EXAMPLES = {
    "lint recipe.yaml": "All problems of a recipe.",
    "lint recipe.yaml --fix": "Mend what has a single remedy, and print what changed.",
    "lint recipes/*.yaml --format github": "As annotations of GitHub Actions.",
}
STYLES = {"-": "red", "+": "green", "@": "cyan"}
"""Styles of the lines of a diff."""


@command("lint", EXAMPLES, "Check recipes without a checkpoint.")
def lint(
    ctx: click.Context,
    recipes: Annotated[
        tuple[str, ...], Argument("RECIPE...", complete=complete_recipe, more={"nargs": -1, "required": True})
    ],
    fix: Annotated[bool, "Rewrite RECIPE without the mistakes that have a single remedy."],
    report_format: Annotated[ReportAs, report_format("--format", "--report-format")],
) -> int:
    """List all problems of each RECIPE, each with its line and its code. Exits with 2 if there are any.

    Warnings are about what a recipe seems to forget, such as `mirror` for an optimizer's slots, and about
    names of `let` that nothing uses. They leave the exit code as it is.

    With --fix, misspelt fields and functions, texts that need quotes, and signs of templates in expressions
    are mended where there is one remedy only; comments stay, and the changes are printed as a diff. Then the
    problems that are left are listed.
    """
    from ckpt_surgery.api.linting import check_recipe

    settings = ctx.find_root().obj
    if fix:
        from ckpt_surgery.api.linting import mend_recipe

        terminal = console.open_terminal(settings, taken=report_format is not ReportFormat.TEXT)
        for recipe in recipes:
            terminal.show(((shown(line), STYLES.get(line[:1], "")),) for line in mend_recipe(recipe).diff)
    checked = [check_recipe(path) for path in recipes]
    code = RecipeError.exit_code if any(recipe.problems for recipe in checked) else 0
    if report_format is ReportFormat.TEXT:
        _show(checked, console.open_terminal(settings))
        return code
    problems = [as_report(problem, recipe.path) for recipe in checked for problem in recipe.problems]
    warnings = [as_report(warning, recipe.path) for recipe in checked for warning in recipe.warnings]
    warnings = [replace(warning, code=None) for warning in warnings]
    if report_format is ReportFormat.JSON:
        from ckpt_surgery.cli.documents.problems import lint_document

        paths = [recipe.path for recipe in checked]
        console.write_document(lint_document(paths, problems, warnings, code), console.STDOUT)
    else:
        sys.stdout.write(rendered(report_format, [*problems, *warnings], code))
    return code


def _show(checked: Sequence["CheckedRecipe"], terminal: console.Terminal) -> None:
    for recipe in checked:
        warnings = [replace(w, message=f"Warning: {w.message}", code=None) for w in recipe.warnings]
        if warnings:
            terminal.warn(console.styled_lines(_lines(warnings), terminal.text))
        elif not recipe.problems:
            terminal.show([(f"{shown(recipe.path)}: ", ("no problems", "green"))])
        elif _is_unreadable(recipe):
            console.print_errors(console.problem_texts(recipe.problems), terminal.settings)
        else:
            terminal.show(console.styled_lines(_lines(recipe.problems), terminal.text))
    if problems := sum(len(recipe.problems) for recipe in checked if not _is_unreadable(recipe)):
        terminal.show([((number_of(problems, "problem"), "bold red"),)])
    if count := sum(len(recipe.warnings) for recipe in checked):
        terminal.warn([((number_of(count, "warning"), "bold yellow"),)])


def _is_unreadable(recipe: "CheckedRecipe") -> bool:
    return bool(recipe.problems) and all(problem.place is None for problem in recipe.problems)


def _lines(problems: Iterable[Problem]) -> list[str]:
    return [line for problem in problems for line in f"{console.problem_text(problem)}\n".split("\n")]
