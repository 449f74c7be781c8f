"""Migrated recipes carried out on real checkpoints."""

from pathlib import Path
from typing import Any

from ckpt_surgery import api
from ckpt_surgery.core.documents import json_text
from ckpt_surgery.language.hook_functions import HookFunctions
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.migration.recipes import MigratedRecipe
from tests.oracle.trees import Tree, restore, save


def loaded(recipe: MigratedRecipe) -> LoadedRecipe:
    hooks = HookFunctions(recipe.hooks) if recipe.hooks else None
    return parse_recipe(json_text(recipe.document), "(recipe)", hooks=hooks)


def carried_out(directory: Path, recipe: MigratedRecipe, original: Tree, target: Tree) -> Any:
    """Save both trees, apply the recipe, and restore the result with stock Orbax."""
    source, towards = save(directory / "source", original), save(directory / "target", target)
    api.apply(loaded(recipe), source, dst=directory / "result", target=towards)
    return restore(directory / "result")
