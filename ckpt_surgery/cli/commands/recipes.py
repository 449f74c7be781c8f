"""`recipes`: what comes with the package."""

import itertools
from typing import Annotated

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_name
from ckpt_surgery.cli.parameters.options import Argument
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.libraries import shipped

EXAMPLES = {"recipes": "List them.", "recipes @hf-llama3-to-jax": "Print one, as a beginning of your own."}


@command("recipes", EXAMPLES, "List the recipes that come with the package.")
def recipes(
    terminal: Terminal,
    name: Annotated[str | None, Argument(complete=complete_name, more={"required": False})],
) -> int:
    """List the recipes that come with the package; with NAME, print that one.

    `apply @NAME SRC DST` uses one; `plan` and `lint` take `@NAME` too.
    """
    from ckpt_surgery.cli.terminal.columns import GAP, NARROWEST, sentence
    from ckpt_surgery.inputs import choices

    if name is not None:
        terminal.show(choices.recipe_text(name).split("\n")[:-1])
        return 0
    listed = choices.recipes()
    column = max((len(name) for name, _ in listed), default=0) + len(GAP)
    for name, purpose in listed:
        lines = sentence(purpose, max(terminal.text.width - column, NARROWEST))
        heads = itertools.zip_longest([name], lines, fillvalue="")
        terminal.show(((f"{head:<{column}}", "bold"), line) for head, line in heads)
    terminal.show([((f"in {shipped('recipes')}", "dim"),)])
    return 0
