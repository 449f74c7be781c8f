"""The recipes that come with the package: `recipes` and `recipe`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.errors import KeyNotFound
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.inputs import choices
from ckpt_surgery.inputs.request import read_recipe
from ckpt_surgery.language.expressions.scope import Constant
from ckpt_surgery.language.packaged import PREFIX, recipe_path


class RecipeParams(dict[str, Constant]):
    """Params of a recipe with their defaults, by name. For an unknown name the error has the nearest one."""

    def __missing__(self, name: str) -> Constant:
        guess = did_you_mean(str(name), self)
        hint = f"Its params: {', '.join(self)}." if self else "It has none."
        raise KeyNotFound(f"the recipe has no param `{shown(str(name))}`{guess}", hint=hint)


@dataclass(frozen=True)
class PackagedRecipe:
    """One of the recipes that come with the package: `apply(recipe.name, …)` runs it."""

    name: str
    """Name with its `@`, as functions take it."""
    summary: str
    """Its purpose, as `recipes` lists it."""
    description: str
    """The field `description` of the recipe; empty where it has none."""
    params: Mapping[str, Constant]
    """Params with their defaults, by name: text, a number, a truth value, or a tuple of those. `set` gives
    others. Looking up another name raises KeyNotFound with the nearest one."""
    help: str
    """The comment at the head of the recipe: what it does, how to run it, and what its params mean."""
    text: str
    """The whole recipe, as a beginning of your own."""
    path: Path
    """Its file."""


def recipes() -> Mapping[str, str]:
    """List the recipes that come with the package: the purpose of each by its name, such as `@lora-merge`."""
    return dict(choices.recipes())


def recipe(name: str) -> PackagedRecipe:
    """Describe a recipe that comes with the package, with its params. The `@` of its name may be left out.

    Raises UsageError for an unknown name, with the nearest one.
    """
    text = choices.recipe_text(name)
    name = PREFIX + name.removeprefix(PREFIX)
    loaded = read_recipe(name).recipe
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return PackagedRecipe(
        name,
        recipes()[name],
        loaded.description or "",
        RecipeParams({param: field.default for param, field in loaded.params.items()}),
        "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:end]),
        text,
        Path(recipe_path(name)),
    )
