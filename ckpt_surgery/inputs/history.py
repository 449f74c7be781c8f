"""The history of conversions in custom metadata, and the configs of sources.

The history is one entry, `ckpt_surgery`. For each recipe that the checkpoint went through, it holds the
digest of the recipe and the values of its params; it also holds the config of the model that the first
conversion read. A conversion adds to the history that it finds, so that a chain of conversions ends with one
flat entry; a later run of the same recipe replaces the entry of the earlier one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.history import CONFIG, RECIPES, RECORD, History, Origin, PastRecipe, own_metadata
from ckpt_surgery.core.protocols import RecordedSource, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.config_files import check_access, config_place, read_config, read_object
from ckpt_surgery.inputs.opening import in_memory, on_disk
from ckpt_surgery.language.configs import Config, Configs, Layer
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.scope import CONFIGS
from ckpt_surgery.storage.record_files import read_record, record_file

if TYPE_CHECKING:
    from ckpt_surgery.language.loading import LoadedRecipe

NO_HISTORY = f"the entry `{RECORD}` of the custom metadata is not the record of a conversion; it is replaced"


# --- reading ----------------------------------------------------------------------------------------------


ConfigFile = tuple[str, Mapping[str, Any]]
"""Name and content of a config."""


class ConfigFiles:
    """The config files of sources, each of which is read when it is first asked for."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        given: str | None = None,
        known: Mapping[str, ConfigFile | None] | None = None,
    ):
        """`given`: path of the JSON file that is the config of the first source, in place of one beside it.
        `known`: files by source that are not read any more; None where there is none."""
        self.sources = sources
        self.read: dict[str, ConfigFile | None] = dict(known or {})
        """The files that were asked for, by source; None where there is none."""
        self._given = given

    def given(self, name: str) -> str | None:
        """Path of the file that the caller gave for a source."""
        return self._given if name == next(iter(self.sources)) else None

    def of(self, name: str) -> ConfigFile | None:
        """The config file of a source; None where there is none. Raises SourceError."""
        if name not in self.read:
            given, source = self.given(name), self.sources[name]
            if given is not None:
                self.read[name] = os.path.basename(given), read_object(given)
            else:
                self.read[name] = None if in_memory(source) else read_config(source.path)
        return self.read[name]


def configs_of(files: ConfigFiles) -> Configs:
    """Configs of sources by name; each is read when it is first used.

    Raises StorageError for one that may not be read, before a recipe can take it for missing.
    """
    for source in on_disk(source for name, source in files.sources.items() if name not in files.read):
        check_access(source.path)
    first = next(iter(files.sources), None)
    return Configs(
        {
            name: _config_of(CONFIG if name == first else f"{CONFIGS}[{name!r}]", name, files)
            for name in files.sources
        }
    )


def _config_of(called: str, name: str, files: ConfigFiles) -> Config:
    source, given = files.sources[name], files.given(name)
    if given is not None:
        return Config(called, f"{shown(given)} does not exist", lambda: list(_config_layers(name, files)))
    if in_memory(source):
        return Config(called, f"{source.path} is in memory, where no config is beside it", list)
    absent = f"there is no {os.path.basename(config_place(source.path))} beside {shown(source.path)}"
    return Config(called, absent, lambda: list(_config_layers(name, files)))


def _config_layers(name: str, files: ConfigFiles) -> Iterator[Layer]:
    """Yield the mappings that make up a source's config, by decreasing precedence.

    They are the config that is given, or the file beside the checkpoint or, without one, the recorded config
    and the custom metadata; and in all cases the record of earlier conversions.
    """
    metadata = files.sources[name].metadata
    record = history_entry(metadata)
    found = files.of(name)
    if found is None:
        yield Layer("the recorded config", record.get(CONFIG, {}))
        yield Layer("the custom metadata", own_metadata(metadata), of_model=False)
    else:
        yield Layer(*found)
    yield Layer("the record of the conversion", {RECORD: record} if record else {}, of_model=False)


# --- writing ----------------------------------------------------------------------------------------------


def metadata_with_history(
    files: ConfigFiles, loaded: "LoadedRecipe | None", format: str
) -> tuple[dict[str, Any], list[str]]:
    """Make the destination's custom metadata: the first source's, with the history. Returns warnings, too.

    `loaded` is None where there is no recipe and every leaf is kept; `format` is the destination's.
    """
    name, source = next(iter(files.sources.items()))
    if not formats.named(format).holds_metadata:
        return dict(source.metadata), []
    record, warnings = _extended_history(name, files, loaded)
    users = own_metadata(source.metadata)
    whole = {**formats.named(format).metadata_entries, **users, RECORD: record} if record else users
    most = formats.named(format).metadata_bytes
    if record and most is not None and len(json.dumps(whole)) > most:
        return users, [
            *warnings,
            f"{format} has no room for recipe, params and config: they are not recorded",
        ]
    return whole, warnings


def _extended_history(
    name: str, files: ConfigFiles, loaded: "LoadedRecipe | None"
) -> tuple[dict[str, Any], list[str]]:
    metadata = files.sources[name].metadata
    before = history_entry(metadata)
    warnings = [NO_HISTORY] if RECORD in metadata and not before else []
    recipes = dict(before.get(RECIPES, {}))
    if loaded is not None:
        # Some readers refuse names in JSON that are not Unicode, as those of files may be.
        called = shown(loaded.path if loaded.path.startswith(PREFIX) else os.path.basename(loaded.path))
        recipes.pop(called, None)
        recipes[called] = {"sha256": loaded.sha256, "params": dict(loaded.params)}
    try:
        found = files.of(name)
    except SourceError as error:
        if files.given(name) is not None:
            raise
        found = None
        warnings.append(f"the config is not recorded: {error.problems[0].message}")
    config = before.get(CONFIG, {}) if found is None else found[1]
    parts = {RECIPES: recipes, CONFIG: config}
    return {name: part for name, part in parts.items() if part}, warnings


def history_entry(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Read the history from custom metadata, parsed where it is JSON text; malformed parts are left out."""
    record = metadata.get(RECORD)
    if isinstance(record, str):
        try:
            record = json.loads(record)
        except (ValueError, RecursionError):
            return {}
    kept = record if isinstance(record, dict) else {}
    return {name: kept[name] for name in (RECIPES, CONFIG) if isinstance(kept.get(name), dict)}


def history_of(source: Source) -> History | None:
    """Tell how an open checkpoint was made; None where neither its metadata nor a record says so.

    What is malformed is left out: `verify` says what is wrong with a record.
    """
    entry, document = history_entry(source.metadata), _record_document(source)
    recipes = [_recipe(name, one) for name, one in entry.get(RECIPES, {}).items() if isinstance(one, dict)]
    last = document.get("recipe")
    if isinstance(last, dict) and not any(one.sha256 == last.get("sha256") for one in recipes):
        recipes.append(_recipe(str(last.get("path")), {**last, "params": document.get("params")}))
    elif isinstance(last, dict):  # a run of the same recipe again comes last
        recipes.sort(key=lambda one: one.sha256 == last.get("sha256"))
    if not (recipes or document or entry):
        return None
    version, sources = document.get("version"), document.get("sources")
    return History(
        tuple(recipes),
        tuple(_origin(one) for one in sources if isinstance(one, dict)) if isinstance(sources, list) else (),
        version if isinstance(version, str) else None,
        _time_of_record(source) if document else None,
        tuple(entry.get(CONFIG, {})),
    )


def _record_document(source: Source) -> dict[str, Any]:
    """Read the record of a checkpoint; empty where it has none, or none that can be read."""
    try:
        text = source.record() if isinstance(source, RecordedSource) else None
        text = read_record(record_file(source.path)) if text is None else text
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
    own = source.record_file if isinstance(source, RecordedSource) else None
    place = record_file(source.path) if own is None else own
    place = place if os.path.exists(place) else source.path
    return datetime.fromtimestamp(os.stat(place).st_mtime, UTC)
