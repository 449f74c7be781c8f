"""Record how a checkpoint was made: by which recipes, from what, when.

In custom metadata it is one entry, `ckpt_surgery`. For each recipe that the checkpoint went through, it holds
the digest of the recipe and the values of its params; it also holds the config of the model that the first
conversion read. A conversion adds to the history that it finds, so that a chain of conversions ends with one
flat entry; a later run of the same recipe replaces the entry of the earlier one.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.text import brief

RECORD = "ckpt_surgery"
"""Name of the entry in custom metadata; recipes read it as `ckpt_surgery/recipes/NAME/params/PARAM`."""
RECIPES = "recipes"
CONFIG = "config"
"""Its members: the recipes that the checkpoint went through, and the config of its model."""
NO_RECIPE = "(none)"
"""Name in plans of the empty recipe, that of a conversion: it has no file."""
IN_MEMORY = "(recipe)"
"""Name of a recipe that was given as data, not as a file, in messages and histories."""


@dataclass(frozen=True)
class Origin(Document):
    """Inputs that the checkpoint was made from."""

    name: str
    """Name of the source in the recipe."""
    path: str
    """As it was given."""
    format: str
    """Name of its format."""
    step: int | None
    """Step inside a CheckpointManager's directory."""
    item: str | None
    """Item of that step."""


@dataclass(frozen=True)
class PastRecipe(Document):
    """A recipe that the checkpoint went through."""

    name: str
    """Its path or name; `(recipe)` where it was given as data."""
    sha256: str
    """Hexadecimal digest of its text."""
    params: Mapping[str, Any]
    """Values of its params."""

    __repr__ = brief


@dataclass(frozen=True)
class History:
    """Runs of this tool that made a checkpoint."""

    recipes: tuple[PastRecipe, ...]
    """The recipes that it went through, the latest last."""
    sources: tuple[Origin, ...] = ()
    """Inputs of the last run; empty if no record names them."""
    version: str | None = None
    """Version of the tool that made it; None where no record says that."""
    written: datetime | None = None
    """When its record was written, by the time of that file; None in a bucket, or where there is none."""
    config: tuple[str, ...] = ()
    """Names of the entries of the config that is recorded in it."""

    __repr__ = brief


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own custom metadata: all but the entry of this tool."""
    return {name: value for name, value in metadata.items() if name != RECORD}


def history_entry(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Read the history from custom metadata, parsed where it is JSON text; malformed parts are left out."""
    record = metadata.get(RECORD)
    if isinstance(record, str):
        with suppress(ValueError, RecursionError):
            record = json.loads(record)
    kept = record if isinstance(record, dict) else {}
    return {name: kept[name] for name in (RECIPES, CONFIG) if isinstance(kept.get(name), dict)}


def extended_history(
    before: Mapping[str, Any], recipe: PastRecipe | None, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Add a recipe to a history, in place of an earlier entry of its name, and set the model's config."""
    recipes = dict(before.get(RECIPES, {}))
    if recipe is not None:
        recipes.pop(recipe.name, None)
        recipes[recipe.name] = {"sha256": recipe.sha256, "params": dict(recipe.params)}
    parts = {RECIPES: recipes, CONFIG: config}
    return {name: part for name, part in parts.items() if part}
