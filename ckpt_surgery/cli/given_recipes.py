"""The recipe of a command: a file, a packaged one, or rules that are given with `-e`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ckpt_surgery.cli.console import Terminal

if TYPE_CHECKING:
    from ckpt_surgery.language.loading import LoadedRecipe

SCHEMA_LINE = "# yaml-language-server: $schema=recipe.schema.json"
"""Tells editors where the schema is that `ckpt-surgery schema > recipe.schema.json` writes."""


def given_recipe(recipe: str, rules: Sequence[str], set: Iterable[str], terminal: Terminal) -> "LoadedRecipe":
    """The recipe, read and checked. Rules are printed as the recipe that they are, before they are checked.

    `recipe` is not looked at where there are rules. Raises RecipeError, UsageError.
    """
    from ckpt_surgery.checking import read_recipe

    if not rules:
        return read_recipe(recipe, tuple(set))
    from ckpt_surgery.language.one_liners import document_of
    from ckpt_surgery.migration.yaml_text import yaml_text

    text = f"{SCHEMA_LINE}\n{yaml_text(document_of(rules))}"
    terminal.show([*(Text(line) for line in text.splitlines()), Text()])
    return read_recipe(text, tuple(set))
