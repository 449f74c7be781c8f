"""Config and tokenizer files beside a source: they are copied into a directory of safetensors."""

import copy
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.history import CONFIG as RECORDED_CONFIG
from ckpt_surgery.core.protocols import Companion, Source
from ckpt_surgery.formats.shared.config_files import CONFIG, config_place, read_object
from ckpt_surgery.inputs.history import recorded
from ckpt_surgery.inputs.model_configs import REMOVED, contradictions
from ckpt_surgery.inputs.opening import in_memory, on_disk
from ckpt_surgery.planner.options import DEFAULT_FORMAT, Prepared
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.storage.companion_names import KEPT, is_companion
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import check_link, directory_names, has_entry, is_directory, real_path
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.verification.descriptions import place_of_record
from ckpt_surgery.verification.reading_back import range_crc
from ckpt_surgery.verification.record import Copied

MOST_KEPT = 64 << 20
"""Bytes of files that are kept at most; of more, none are."""
PIECE = 1 << 20
"""Bytes that are copied at once."""
Changes = Mapping[tuple[str, ...], Any]
"""New values of a config's entries, by their path in it."""


@dataclass(frozen=True)
class Wanted:
    """Which files are to come along into a result."""

    copied: bool | None = None
    """What the caller says; None: they do where the destination can have them and the source has a
    `config.json`."""
    changes: Changes = field(default_factory=dict)
    """Entries of `config.json` that the result describes differently."""


def companions_of(prepared: Prepared, wanted: Wanted) -> tuple[Companion, ...]:
    """The files that come along into a result.

    They are the target's where that is a checkpoint with a `config.json`, because the result has its
    structure, and otherwise the first source's. Raises UsageError where they are wanted and cannot come
    along, SourceError where one of them cannot be read.
    """
    possible = prepared.form.holds_config
    if wanted.copied is False or (wanted.copied is None and not possible):
        return _kept(prepared) if wanted.copied is None else ()
    if not possible:
        raise UsageError(
            "config files are copied only into directories of safetensors",
            hint='Leave out `copy_config=True`, or name a directory and write `format="safetensors"`.',
        )
    place = _place(prepared.sources)
    found = () if place is None else tuple(_in(place))
    if not any(one.name == CONFIG for one in found):
        found = _kept_beside(next(iter(prepared.sources.values()))) or found
    config = _config(prepared, place, found, wanted.changes)
    if config is not None:
        found = (config, *(one for one in found if one.name != CONFIG))
    if wanted.copied and not found:
        raise UsageError(
            "no config or tokenizer files lie beside the source", hint="Leave out `copy_config=True`."
        )
    return found if wanted.copied or config is not None else ()


def _config(
    prepared: Prepared, place: str | None, found: Sequence[Companion], changes: Changes
) -> Companion | None:
    """The config that comes along: the file where that says what the weights are, otherwise its correction.

    Without a file it is the config that is recorded for the result. None where there is neither.
    """
    file = next((one for one in found if one.name == CONFIG), None)
    noted = recorded(prepared.plan.metadata).get(RECORDED_CONFIG, {})
    try:
        given = {} if file is None else read_object(file.source)
    except SourceError:
        return file  # whoever loads the model will see it
    is_targets = (
        TARGET in prepared.sources and file is not None and place == _directory(prepared.sources[TARGET])
    )
    document = given if is_targets or not noted else noted
    if not document:
        return file
    corrected = _with(document, changes)
    proved = contradictions([step.leaf for step in prepared.plan.steps], corrected)
    corrected = _with(corrected, {one.place: one.proved for one in proved if one.proved is not None})
    if file is not None and corrected == given:
        return file
    content = f"{json.dumps(corrected, indent=2, ensure_ascii=False)}\n".encode("utf-8", "surrogatepass")
    source = next(iter(prepared.sources.values())).path if file is None else file.source
    return Companion(CONFIG, source, len(content), content)


def _with(document: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """A copy of the config with other values of some entries."""
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        holder = changed
        for name in path[:-1]:
            holder = holder[name]
        if value == REMOVED:
            holder.pop(path[-1], None)
        else:
            holder[path[-1]] = value
    return changed


def _directory(source: Source) -> str:
    return os.path.dirname(config_place(source.path)) or os.curdir


def _kept(prepared: Prepared) -> tuple[Companion, ...]:
    """The files that an Orbax checkpoint keeps for the way back: those that came with the first source."""
    first = next(iter(prepared.sources.values()))
    if (
        prepared.destination.format != DEFAULT_FORMAT
        or urls.is_url(prepared.destination.path or "")
        or in_memory(first)
    ):
        return ()
    found = tuple(_in(_directory(first)))
    if not any(one.name == CONFIG for one in found):
        found = _kept_beside(first)
    if sum(one.size for one in found) > MOST_KEPT:
        return ()
    return tuple(replace(one, name=f"{KEPT}/{one.name}") for one in found)


def _kept_beside(source: Source) -> tuple[Companion, ...]:
    """The files that a source keeps beside its record."""
    if in_memory(source) or not is_directory(source.path):
        return ()
    directory = os.path.join(os.path.dirname(place_of_record(source)), KEPT)
    return tuple(_in(directory)) if is_directory(directory) else ()


def _place(sources: Mapping[str, Source]) -> str | None:
    """The directory from which files come along; None where the sources have none."""
    places = {name: _directory(source) for name, source in sources.items() if on_disk([source])}
    target = places.pop(TARGET, None)
    if target is not None and has_entry(os.path.join(target, CONFIG)):
        return target
    first = next(iter(sources))
    return places.get(first)


def _in(directory: str) -> Iterator[Companion]:
    """The companions in a directory, each of which can be read. Raises SourceError."""
    root = real_path(directory)
    for name in sorted(directory_names(directory).files):
        if is_companion(name):
            path = os.path.join(directory, name)
            check_link(path, root)
            with opened(path) as file:
                yield Companion(name, path, file.stat.size)


def along(companions: Sequence[Companion]) -> tuple[Companion, ...]:
    """The files that lie beside the weights of the result: all but those that are kept for the way back."""
    return tuple(one for one in companions if not one.name.startswith(f"{KEPT}/"))


def keep_in(companions: Sequence[Companion], directory: Path) -> None:
    """Keep files beside the record of a checkpoint. Raises SourceError, StorageError."""
    place = directory / KEPT
    with storage_errors(place):
        shutil.rmtree(place, ignore_errors=True)
        if companions:
            place.mkdir()
    for companion in companions:
        _copied(companion, directory / companion.name)


def copy_in(companions: Sequence[Companion], directory: str) -> tuple[Copied, ...]:
    """Copy files into a directory of a checkpoint that is being written. Raises SourceError, StorageError.

    It can be repeated, and replaces what an earlier process has copied, which may have been other files.
    """
    with storage_errors(Path(directory)):
        for name in os.listdir(directory):
            if is_companion(name):
                os.unlink(os.path.join(directory, name))
    return tuple(_copied(companion, Path(directory, companion.name)) for companion in companions)


def _copied(companion: Companion, place: Path) -> Copied:
    if companion.content is not None:
        with storage_errors(place), open(place, "wb") as new:
            new.write(companion.content)
        return Copied(companion.name, companion.size, bytes_crc(companion.content))
    with opened(companion.source) as file, storage_errors(place), open(place, "wb") as new:
        crc = 0
        for at in range(0, file.stat.size, PIECE):
            part = file.read(at, min(PIECE, file.stat.size - at))
            crc = bytes_crc(part, crc)
            new.write(part)
        return Copied(companion.name, file.stat.size, crc)


def changed(directory: str, copied: Sequence[Copied]) -> list[str]:
    """Names of the files that came along and are not what they were, or not there any more."""
    return [one.name for one in copied if not _is_same(os.path.join(directory, one.name), one)]


def _is_same(path: str, copied: Copied) -> bool:
    try:
        with opened(path) as file:
            crc = range_crc(file, 0, file.stat.size)
            return (file.stat.size, crc) == (copied.size, copied.crc32c)
    except SourceError:
        return False
