"""The recipes that come with the package, by name: `@lora-merge`."""

import functools
from collections.abc import Mapping
from pathlib import Path

from ckpt_surgery.core.errors import Code, UsageError
from ckpt_surgery.core.libraries import shipped
from ckpt_surgery.core.text import did_you_mean

PREFIX = "@"  # Begins the name of a packaged recipe. A file whose name begins so is `./@name`.


@functools.cache
def packaged_recipes() -> Mapping[str, Path]:
    """The file of each packaged recipe by its name without the `@`, in alphabetical order."""
    files = sorted(shipped("recipes").glob("*.yaml"), key=lambda path: path.stem)
    return {path.stem: path for path in files}


def summary(path: Path) -> str:
    """Purpose of a packaged recipe: the first line of its file."""
    with path.open(encoding="utf-8") as lines:
        return next(lines, "").lstrip("#").strip()


def recipe_path(recipe: str) -> str:
    """The file of the packaged recipe `@name`. Anything else is a path, and is returned unchanged.

    Raises UsageError for an unknown name.
    """
    if not recipe.startswith(PREFIX):
        return recipe
    name = recipe.removeprefix(PREFIX)
    if name not in packaged_recipes():
        alike = ", ".join(f"`{PREFIX}{known}`" for known in packaged_recipes() if name.lower() in known)
        close = did_you_mean(recipe, (PREFIX + known for known in packaged_recipes()))
        guess = f"; there are {alike}" if name and alike else close
        raise UsageError(
            f"no recipe `{recipe}` comes with the package{guess}",
            hint=f"`ckpt-surgery recipes` lists them; a file of that name is `./{recipe}`.",
            code=Code.UNREADABLE,
        )
    return str(packaged_recipes()[name])
