"""Reads and checks recipes without a checkpoint: `lint`. Imports nothing of planning."""

import os
from collections.abc import Iterable, Iterator

from ckpt_surgery.core.arguments import Assignments, PathLike, assignments_of
from ckpt_surgery.core.errors import Problem, RecipeError, UsageError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.findings import Finding
from ckpt_surgery.language.loading import LoadedRecipe, load_recipe
from ckpt_surgery.language.models import Recipe
from ckpt_surgery.offers import readable_formats, writable_formats


def lint(recipes: PathLike | Iterable[PathLike]) -> list[tuple[str, tuple[Problem, ...]]]:
    """Each recipe's path and all its problems, found without a checkpoint; a missing file is one of them."""
    paths = [recipes] if isinstance(recipes, str | os.PathLike) else recipes
    found: list[tuple[str, tuple[Problem, ...]]] = []
    for path in (os.fspath(path) for path in paths):
        try:
            read_recipe(path)
            found.append((path, ()))
        except (RecipeError, UsageError) as error:
            found.append((path, error.problems))
    return found


def read_recipe(recipe: PathLike, set: Assignments = ()) -> LoadedRecipe:
    """A recipe, read and checked once, for any number of calls of `plan` and `apply`.

    `recipe` is a path, or `@name` for one that comes with the package; `set` gives values to its params.
    Raises RecipeError with all problems of the recipe, UsageError where it cannot be read or `set` does not
    fit.
    """
    return load_recipe(os.fspath(recipe), assignments_of(set), format_findings)


def format_findings(recipe: Recipe) -> Iterator[Finding]:
    """The problem of a recipe that names a format which cannot be written, or not in the way it says."""
    output = recipe.output
    if output is None or output.format is None:
        return
    name, writable = output.format, writable_formats()
    if name not in writable:
        guess = did_you_mean(name, writable)
        wrong = "can be read but not written" if name in readable_formats() else f"is not known{guess}"
        hint = f"Formats to write: {', '.join(writable)}."
        yield Finding(("output", "format"), f"the format `{name}` {wrong}", hint=hint)
    elif output.structure_file and not _has_structure_file(name):
        message = f"{name} checkpoints have no structure file"
        yield Finding(("output", "structure_file"), message, hint="Leave it out.")


def _has_structure_file(format: str) -> bool:
    from ckpt_surgery.formats.registry import formats  # imports every format's detection

    return formats()[format].structure_file
