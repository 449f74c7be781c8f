"""Merges of models by a configuration of mergekit: `merge`, `plan_merge` and `merge_recipe`."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ckpt_surgery.api import applying
from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike, takes
from ckpt_surgery.core.errors import Code, RecipeError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.shared.config_files import CONFIG, read_config
from ckpt_surgery.inputs.options import ConvertOptions
from ckpt_surgery.inputs.request import Request, checked_path, requested
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.merging import recipes
from ckpt_surgery.merging.models import models_of, slices_of
from ckpt_surgery.merging.reading import LORA, LoadedConfig, ignored
from ckpt_surgery.merging.reading import read_config as read_merge_config
from ckpt_surgery.merging.recipes import config_changes
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.runs.run import ConvertArguments, Result, RunOptions, run_options
from ckpt_surgery.system.progress_bars import reported

FORMAT = "safetensors"
"""Default format of the result, unless the caller or the destination's name says another."""


@takes(ConvertArguments, Request, RunOptions)
def merge(config: PathLike, dst: PathLike, *, seed: int = 0, **options: Unpack[ConvertArguments]) -> Result:
    """Merge models as a configuration of mergekit says, and publish the result at `dst`.

    `config` is the path of a YAML file as mergekit 0.1.5 takes it. Models are paths of directories, relative
    to the working directory or else to that of the file. The result is a directory of safetensors, unless the
    name of `dst` or `format` says otherwise, with the config and tokenizer files of the base model, or else
    of the first one; in `config.json` the number of layers and the dtype are those of the result. Values are
    computed in float32 and rounded once. `seed` is for methods that draw at random. Other arguments: see
    `apply`.

    Raises RecipeError or PlanError with all problems of the configuration, and what `apply` raises; then
    nothing is published.
    """
    with reported(options.get("progress")) as report:
        return applying.run_request(_requested(config, dst, seed, options), run_options(options, report))


@takes(ConvertOptions, Request)
def plan_merge(
    config: PathLike,
    dst: PathLike | None = None,
    *,
    seed: int = 0,
    overwrite: bool = False,
    **options: Unpack[ConvertOptions],
) -> Plan:
    """Decide what `merge` would do, from metadata alone, and create nothing.

    With `dst`, everything is refused that `merge` would refuse there. Raises what `merge` raises.
    """
    return applying.plan_request(_requested(config, dst, seed, options), overwrite)


def merge_recipe(config: PathLike, *, seed: int = 0) -> MigratedRecipe:
    """Make the recipe that `merge` carries out. Its sources are the models: the base model, or else the
    first one, comes first; the others follow in the order of the configuration.

    Raises what `merge` raises.
    """
    loaded = read_merge_config(os.fspath(config))
    return MigratedRecipe(_document(loaded, _places(loaded), seed, {}))


def _requested(config: PathLike, dst: PathLike | None, seed: int, options: ConvertOptions) -> Request:
    """Make the request of a merge, with the entries of the config that the result changes."""
    loaded = read_merge_config(os.fspath(config))
    places = _places(loaded)
    name = "" if dst is None else os.path.basename(urls.absolute(checked_path(dst)))
    usual = FORMAT if formats.promised(name) is None else None
    chosen: ConvertOptions = {**options, "format": options.get("format") or usual}
    recipe, first = MigratedRecipe(_document(loaded, places, seed, options)), next(iter(places.values()))
    file = None if urls.is_url(first) else read_config(first)
    changes = None if file is None or file[0] != CONFIG else config_changes(loaded.config, file[1])
    request = requested(recipe, tuple(places.values()), dst, chosen)
    return replace(request, made_from=loaded.path, notes=tuple(ignored(loaded.config)), changes=changes)


def _document(
    loaded: LoadedConfig, places: Mapping[str, str], seed: int, options: ConvertOptions
) -> dict[str, Any]:
    chosen = (options.get("src_format"), options.get("step"), options.get("item"))
    listings = {model: opening.open_source(path, *chosen).leaves() for model, path in places.items()}
    return recipes.merge_recipe(loaded, listings, seed)


def model_paths(config: PathLike) -> tuple[str, ...]:
    """Find the models that a configuration names. Raises RecipeError for missing ones."""
    return tuple(_places(read_merge_config(os.fspath(config))).values())


def _places(loaded: LoadedConfig) -> dict[str, str]:
    """The paths of the models, from here or from the configuration. Raises RecipeError for missing ones."""
    directory, places = Path(loaded.path).parent, dict[str, str]()
    for model in models_of(loaded.config):
        paths = (model, os.path.join(directory, model))
        existing = next((path for path in paths if urls.is_url(path) or os.path.exists(path)), None)
        if existing is not None:
            places[model] = existing
    missing = list(_missing(loaded, places))
    if missing:
        raise RecipeError(*loaded.problems(missing))
    return places


def _missing(loaded: LoadedConfig, places: Mapping[str, str]) -> Iterator[Finding]:
    """Find models missing from disk, with every place in the configuration that mentions them."""
    parts = (part for slice in slices_of(loaded.config) for part in slice.parts)
    standing = [((*part.path, "model"), part.model) for part in parts]
    base = loaded.config.base_model
    for path, model in [*standing, *([] if base is None else [(("base_model",), base)])]:
        if model in places or path == ("base_model", "model"):
            continue
        what = f"not a model: `{shown(model)}`"
        hint = "A model is the path of a directory, from here or from the file's; nothing is downloaded."
        if LORA in model:
            what = f"`{shown(model)}` is a model with an adapter"
            hint = "Merge the adapter into it before: `ckpt-surgery apply @lora-merge MODEL ADAPTER DST`."
        yield Finding(path, what, hint=hint, code=Code.WRONG_VALUE)
