"""`recipes`: what comes with the package."""

import click

from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import Command, global_options


@click.command("recipes", cls=Command, short_help="List the recipes that come with the package.")
@click.argument("name", required=False)
@global_options
@click.pass_context
def command(ctx: click.Context, name: str | None) -> int:
    """List the recipes that come with the package; with NAME, print that one.

    `apply @NAME SRC DST` uses one; `plan` and `lint` take `@NAME` too.
    """
    from rich.text import Text

    from ckpt_surgery.language.packaged import PREFIX, directory, packaged_recipes, recipe_path

    terminal = open_terminal(ctx.find_root().obj)
    if name is not None:
        with open(recipe_path(PREFIX + name.removeprefix(PREFIX)), encoding="utf-8") as lines:
            terminal.show([Text(line.rstrip("\n")) for line in lines])
        return 0
    found = packaged_recipes().values()
    width = max((len(recipe.name) for recipe in found), default=0)
    terminal.show(
        Text.assemble((f"@{recipe.name:<{width}}", "bold"), f"  {recipe.summary}") for recipe in found
    )
    terminal.show([Text(f"in {directory()}", "dim")])
    return 0
