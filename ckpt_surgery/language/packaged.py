"""Recipes that come with the package: found by name, `@lora-merge`, and listed with what they are for."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import did_you_mean

PREFIX = "@"
"""What begins with it, where a recipe is wanted, is a name. A file of such a name is `./@name`."""
SUFFIX = ".yaml"


@dataclass(frozen=True)
class Packaged:
    """One of the recipes that come with the package."""

    name: str
    """Without the `@`."""
    path: Path
    summary: str
    """What it is for: the first line of its header."""


def directory() -> Path:
    """Where they are: inside the installed package; beside it in a source checkout."""
    package = Path(__file__).parent.parent
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


@functools.cache
def packaged_recipes() -> Mapping[str, Packaged]:
    """All of them by name, in alphabetical order."""
    found = sorted(directory().glob(f"*{SUFFIX}"))
    return {path.stem: Packaged(path.stem, path, _summary(path)) for path in found}


def _summary(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next(lines, "").lstrip("#").strip()


def recipe_path(recipe: str) -> str:
    """The file of a packaged recipe where `recipe` is `@name`; otherwise `recipe` is a path itself.

    Raises UsageError for a name that there is not.
    """
    if not recipe.startswith(PREFIX):
        return recipe
    name = recipe.removeprefix(PREFIX)
    if name not in packaged_recipes():
        guess = did_you_mean(recipe, (PREFIX + known for known in packaged_recipes()))
        raise UsageError(
            f"no recipe `{recipe}` comes with the package{guess}",
            hint=f"`ckpt-surgery recipes` lists them; a file of that name is `./{recipe}`.",
        )
    return str(packaged_recipes()[name].path)
