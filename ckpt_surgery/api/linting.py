"""`lint`: find problems of recipes without a checkpoint. Imports nothing of planning."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import Problem, RecipeError, UsageError
from ckpt_surgery.core.text import brief
from ckpt_surgery.inputs.request import read_recipe
from ckpt_surgery.language.checks.forgotten_mirrors import forgotten_mirrors
from ckpt_surgery.language.checks.recipe import unused_lets
from ckpt_surgery.language.loading import located


@dataclass(frozen=True)
class CheckedRecipe:
    """Problems and warnings of a recipe that was checked without a checkpoint."""

    path: str
    """Its path, as the caller gave it."""
    problems: tuple[Problem, ...] = ()
    """Reasons why it cannot be used."""
    warnings: tuple[Problem, ...] = ()
    """Possible mistakes in a recipe without problems."""

    __repr__ = brief


def lint(recipes: PathLike | Iterable[PathLike]) -> list[tuple[str, tuple[Problem, ...]]]:
    """Check recipes without a checkpoint: return each path with all problems, a missing file included.

    Raises nothing for a recipe that is wrong, so that all recipes are checked.
    """
    paths = [recipes] if isinstance(recipes, str | os.PathLike) else recipes
    return [(checked.path, checked.problems) for checked in map(check_recipe, paths)]


def check_recipe(path: PathLike) -> CheckedRecipe:
    """Check a recipe without a checkpoint. Raises nothing for a recipe that is wrong."""
    path = os.fspath(path)
    try:
        loaded = read_recipe(path)
    except (RecipeError, UsageError) as error:
        return CheckedRecipe(path, problems=error.problems)
    findings = (*forgotten_mirrors(loaded.recipe), *unused_lets(loaded.recipe))
    return CheckedRecipe(path, warnings=tuple(located(loaded.document, finding) for finding in findings))
