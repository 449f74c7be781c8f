"""`lint`: all problems of recipes."""

import click

from ckpt_surgery.cli.console import open_terminal, problem_text
from ckpt_surgery.cli.options import global_options
from ckpt_surgery.errors import RecipeError
from ckpt_surgery.keys import shown


@click.command("lint", short_help="Check recipes without a checkpoint.")
@click.argument("recipes", metavar="RECIPE...", nargs=-1, required=True)
@global_options
@click.pass_context
def command(ctx: click.Context, recipes: tuple[str, ...]) -> int:
    """List all problems of each RECIPE, each with its line. Exits with 2 if there are any."""
    from rich.text import Text

    from ckpt_surgery import api

    terminal = open_terminal(ctx.find_root().obj)
    found = api.lint(recipes)
    for path, problems in found:
        for problem in problems:
            terminal.show([Text(problem_text(problem)), Text()])
        if not problems:
            terminal.show([Text(f"{shown(path)}: ").append("no problems", "green")])
    total = sum(len(problems) for _, problems in found)
    if total:
        terminal.show([Text(f"{total} problem{'' if total == 1 else 's'}", "bold red")])
    return RecipeError.exit_code if total else 0
