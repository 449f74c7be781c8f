"""The record that a conversion leaves in the custom metadata of its destination, and the configs of sources.

The record is one entry, `ckpt_surgery`. For each recipe that the checkpoint went through, it holds the digest
of the recipe and the values of its params; it also holds the config of the model that the first conversion
read. A conversion adds to the record that it finds, so that a chain of conversions ends with one flat record;
a later run of the same recipe replaces the entry of the earlier one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.config_files import check_access, config_place, read_config, read_object
from ckpt_surgery.history import RECIPES, recorded
from ckpt_surgery.language.configs import Config, Configs, Layer
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.scope import CONFIG, CONFIGS
from ckpt_surgery.opening import in_memory, on_disk
from ckpt_surgery.report.history import RECORD, own_metadata

NO_RECORD = f"the entry `{RECORD}` of the custom metadata is not the record of a conversion; it is replaced"


# --- reading ----------------------------------------------------------------------------------------------


def configs_of(sources: Mapping[str, Source], given: str | None = None) -> Configs:
    """The configs of sources by name; each is read when it is first used.

    `given`: path of the JSON file that is the config of the first one, in place of a file beside it.
    Raises StorageError for one that may not be read, before a recipe can take it for missing.
    """
    for source in on_disk(sources.values()):
        check_access(source.path)
    first = next(iter(sources), None)
    return Configs(
        {
            name: _config(CONFIG, source, given) if name == first else _config(f"{CONFIGS}[{name!r}]", source)
            for name, source in sources.items()
        }
    )


def _config(name: str, source: Source, given: str | None = None) -> Config:
    if given is not None:
        return Config(name, f"{shown(given)} does not exist", lambda: list(_layers(source, given)))
    if in_memory(source):
        return Config(name, f"{source.path} is in memory, where no config is beside it", list)
    absent = f"there is no {os.path.basename(config_place(source.path))} beside {shown(source.path)}"
    return Config(name, absent, lambda: list(_layers(source)))


def _layers(source: Source, given: str | None = None) -> Iterator[Layer]:
    """The mappings that make up a source's config, by decreasing precedence.

    They are the config that is given, or the file beside the checkpoint or, without one, the recorded config
    and the custom metadata; and in all cases the record of earlier conversions.
    """
    record = recorded(source.metadata)
    found = _file(source, given)
    if found is None:
        yield Layer("the recorded config", record.get(CONFIG, {}))
        yield Layer("the custom metadata", own_metadata(source.metadata), of_model=False)
    else:
        yield Layer(*found)
    yield Layer("the record of the conversion", {RECORD: record} if record else {}, of_model=False)


def _file(source: Source, given: str | None) -> tuple[str, dict[str, Any]] | None:
    """Name and content of the config file of a source; None where there is none. Raises SourceError."""
    if given is not None:
        return os.path.basename(given), read_object(given)
    return None if in_memory(source) else read_config(source.path)


# --- writing ----------------------------------------------------------------------------------------------


def noted(
    source: Source, loaded: LoadedRecipe | None, format: str, config: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The custom metadata of the destination, which is the first source's with the record, and warnings.

    `loaded` is None where there is no recipe and every leaf is kept; `format` is the destination's, `config`
    the path of a config that was given.
    """
    if not formats.named(format).holds_metadata:
        return dict(source.metadata), []
    record, warnings = _record(source, loaded, config)
    users = own_metadata(source.metadata)
    whole = {**formats.named(format).metadata_entries, **users, RECORD: record} if record else users
    most = formats.named(format).metadata_bytes
    if record and most is not None and len(json.dumps(whole)) > most:
        return users, [
            *warnings,
            f"{format} has no room for recipe, params and config: they are not recorded",
        ]
    return whole, warnings


def _record(
    source: Source, loaded: LoadedRecipe | None, given: str | None
) -> tuple[dict[str, Any], list[str]]:
    before = recorded(source.metadata)
    warnings = [NO_RECORD] if RECORD in source.metadata and not before else []
    recipes = dict(before.get(RECIPES, {}))
    if loaded is not None:
        # Some readers refuse names in JSON that are not Unicode, as those of files may be.
        name = shown(loaded.path if loaded.path.startswith(PREFIX) else os.path.basename(loaded.path))
        recipes.pop(name, None)
        recipes[name] = {"sha256": loaded.sha256, "params": dict(loaded.params)}
    try:
        found = _file(source, given)
    except SourceError as error:
        if given is not None:
            raise
        found = None
        warnings.append(f"the config is not recorded: {error.problems[0].message}")
    config = before.get(CONFIG, {}) if found is None else found[1]
    parts = {RECIPES: recipes, CONFIG: config}
    return {name: part for name, part in parts.items() if part}, warnings
