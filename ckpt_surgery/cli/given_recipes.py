"""The recipe of a command: a file, a packaged one, or rules that are given with `-e`."""

from collections.abc import Iterable, Sequence
from typing import Any

from ckpt_surgery.cli.console import Terminal


def given_recipe(recipe: str, rules: Sequence[str], set: Iterable[str], terminal: Terminal) -> Any:
    """The recipe, read and checked. Rules are printed as the recipe that they are, before they are checked.

    `recipe` is not looked at where there are rules. Raises RecipeError, UsageError.
    """
    from rich.text import Text

    from ckpt_surgery.checking import read_recipe, recipe_of_rules

    if not rules:
        return read_recipe(recipe, tuple(set))
    text = recipe_of_rules(rules)
    terminal.show([*(Text(line) for line in text.splitlines()), Text()])
    return read_recipe(text, tuple(set))
