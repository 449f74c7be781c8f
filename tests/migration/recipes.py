"""Migrated recipes carried out on real checkpoints."""

from pathlib import Path
from typing import Any

from ckpt_surgery.api import applying
from ckpt_surgery.inputs.request import read_recipe
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.migration.recipes import MigratedRecipe
from tests.oracle.trees import Tree, restore, save


def loaded(recipe: MigratedRecipe) -> LoadedRecipe:
    return read_recipe(recipe)


def carried_out(directory: Path, recipe: MigratedRecipe, original: Tree, target: Tree) -> Any:
    """Save both trees, apply the recipe, and restore the result with stock Orbax."""
    source, towards = save(directory / "source", original), save(directory / "target", target)
    applying.apply(loaded(recipe), source, dst=directory / "result", target=towards)
    return restore(directory / "result")
