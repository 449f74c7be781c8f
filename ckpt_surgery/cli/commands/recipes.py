"""`recipes`: what comes with the package."""

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_name
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import global_options

EXAMPLES = {
    "recipes": "List them.",
    "recipes @hf-llama3-to-jax": "Print one, as a beginning of your own.",
}


@click.command(
    "recipes", cls=Command, short_help="List the recipes that come with the package.", examples=EXAMPLES
)
@click.argument("name", required=False, shell_complete=complete_name)
@global_options
@click.pass_context
def command(ctx: click.Context, name: str | None) -> int:
    """List the recipes that come with the package; with NAME, print that one.

    `apply @NAME SRC DST` uses one; `plan` and `lint` take `@NAME` too.
    """
    from rich.text import Text

    from ckpt_surgery.cli.columns import GAP, NARROWEST
    from ckpt_surgery.cli.render import sentence
    from ckpt_surgery.inputs import choices

    terminal = open_terminal(ctx.find_root().obj)
    if name is not None:
        terminal.show([Text(line) for line in choices.recipe_text(name).split("\n")[:-1]])
        return 0
    found = choices.recipes()
    column = max((len(name) for name, _ in found), default=0) + len(GAP)
    for name, purpose in found:
        lines = [line.plain for line in sentence(purpose, max(terminal.text.width - column, NARROWEST))]
        heads = [f"{name:<{column}}", *[" " * column] * (len(lines) - 1)]
        terminal.show(
            Text.assemble((head, "bold"), line) for head, line in zip(heads, lines or [""], strict=True)
        )
    terminal.show([Text(f"in {choices.recipes_directory()}", "dim")])
    return 0
