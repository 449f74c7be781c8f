"""`lint`: all problems of recipes."""

import click

from ckpt_surgery.cli.console import open_terminal, print_errors, problem_text
from ckpt_surgery.cli.options import Command, global_options
from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.core.text import shown


@click.command("lint", cls=Command, short_help="Check recipes without a checkpoint.")
@click.argument("recipes", metavar="RECIPE...", nargs=-1, required=True)
@global_options
@click.pass_context
def command(ctx: click.Context, recipes: tuple[str, ...]) -> int:
    """List all problems of each RECIPE, each with its line. Exits with 2 if there are any."""
    from rich.text import Text

    import ckpt_surgery

    settings = ctx.find_root().obj
    terminal = open_terminal(settings)
    found = ckpt_surgery.lint(recipes)
    total = 0
    for path, problems in found:
        if not problems:
            terminal.show([Text(f"{shown(path)}: ").append("no problems", "green")])
        elif all(problem.place is None for problem in problems):  # it could not be read
            print_errors([problem_text(problem) for problem in problems], settings)
        else:
            terminal.show(line for p in problems for line in (Text(problem_text(p)), Text()))
            total += len(problems)
    if total:
        terminal.show([Text(f"{total} problem{'' if total == 1 else 's'}", "bold red")])
    return RecipeError.exit_code if any(problems for _, problems in found) else 0
