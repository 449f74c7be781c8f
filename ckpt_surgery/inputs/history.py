"""How an open checkpoint was made, by its custom metadata and its record."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.history import CONFIG, RECIPES, History, Origin, PastRecipe, history_entry
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.storage.record_files import read_record_of, record_path


def history_of(source: Source) -> History | None:
    """Read from metadata and record how a checkpoint was made; None if neither says so.

    Malformed entries are left out: `verify` reports what is wrong with a record.
    """
    entry, document = history_entry(source.metadata), _record_document(source)
    recipes = [_recipe(name, raw) for name, raw in entry.get(RECIPES, {}).items() if isinstance(raw, dict)]
    last = document.get("recipe")
    if isinstance(last, dict) and not any(recipe.sha256 == last.get("sha256") for recipe in recipes):
        recipes.append(_recipe(str(last.get("path")), {**last, "params": document.get("params")}))
    elif isinstance(last, dict):  # a run of the same recipe again comes last
        recipes.sort(key=lambda recipe: recipe.sha256 == last.get("sha256"))
    if not (recipes or document or entry):
        return None
    version, sources = document.get("version"), document.get("sources")
    return History(
        tuple(recipes),
        tuple(_origin(raw) for raw in sources if isinstance(raw, dict)) if isinstance(sources, list) else (),
        version if isinstance(version, str) else None,
        _time_of_record(source) if document else None,
        tuple(entry.get(CONFIG, {})),
    )


def _record_document(source: Source) -> dict[str, Any]:
    """Read the record of a checkpoint; empty if there is none, or it cannot be read."""
    try:
        text = read_record_of(source)
        document = {} if text is None else json.loads(text)
    except (SourceError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _recipe(name: str, entry: Mapping[str, Any]) -> PastRecipe:
    params = entry.get("params")
    return PastRecipe(name, str(entry.get("sha256", "")), params if isinstance(params, dict) else {})


def _origin(entry: Mapping[str, Any]) -> Origin:
    step, item = entry.get("step"), entry.get("item")
    return Origin(
        str(entry.get("name", "")),
        str(entry.get("path", "")),
        str(entry.get("format", "")),
        step if isinstance(step, int) else None,
        item if isinstance(item, str) else None,
    )


def _time_of_record(source: Source) -> datetime | None:
    """Modification time of the file that holds the record; None in a bucket."""
    if is_url(source.path):
        return None
    place = record_path(source)
    place = place if os.path.exists(place) else source.path
    return datetime.fromtimestamp(os.stat(place).st_mtime, UTC)
