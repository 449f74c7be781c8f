"""Sidecar files: config and tokenizer files that are copied beside the weights."""

import copy
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.history import CONFIG as RECORDED_CONFIG
from ckpt_surgery.core.history import history_entry
from ckpt_surgery.core.protocols import Companion, Source
from ckpt_surgery.formats.shared.config_files import CONFIG, config_place, read_object
from ckpt_surgery.inputs.model_configs import REMOVED, contradictions
from ckpt_surgery.inputs.opening import in_memory
from ckpt_surgery.inputs.request import Changes
from ckpt_surgery.planner.prepared import DEFAULT_FORMAT, Prepared
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import check_link, directory_names, has_entry, is_directory, real_path
from ckpt_surgery.storage.reading import opened, range_crc, read_pieces
from ckpt_surgery.storage.record_files import KEPT, is_companion, record_path
from ckpt_surgery.verification.record import CopiedSidecar

MOST_KEPT = 64 << 20
"""Limit on the bytes of kept files; beyond it none are kept."""


def find_sidecars(prepared: Prepared, copied: bool | None, changes: Changes) -> tuple[Companion, ...]:
    """Find the config and tokenizer files to copy beside a result.

    They are the target's if that is a checkpoint with a `config.json`, because the result has its
    structure, and otherwise the first source's. `copied` is the caller's choice; None: they are copied if
    the destination can hold them and the source has a `config.json`. `changes` are new values of entries
    of that file. Raises UsageError if they are demanded and there are none or the destination cannot hold
    them, SourceError if one of them cannot be read.
    """
    possible = prepared.encoder.details.holds_config
    if copied is False or (copied is None and not possible):
        return _sidecars_to_keep(prepared) if copied is None else ()
    if not possible:
        hint = 'Leave out `copy_config=True`, or name a directory and write `format="safetensors"`.'
        raise UsageError("config files are copied only into directories of safetensors", hint=hint)
    place, first = None, next(iter(prepared.sources.values()))
    for source in (prepared.sources.get(TARGET), first):
        if place is None and source is not None and not in_memory(source):
            directory = _directory(source)
            place = directory if source is first or has_entry(os.path.join(directory, CONFIG)) else None
    files = () if place is None else tuple(_sidecars_in(place))
    if not any(file.name == CONFIG for file in files):
        files = _kept_sidecars(first) or files
    config = _config(prepared, place, files, changes)
    if config is not None:
        files = (config, *(file for file in files if file.name != CONFIG))
    if copied and not files:
        hint = "Leave out `copy_config=True`."
        raise UsageError("no config or tokenizer files lie beside the source", hint=hint)
    return files if copied or config is not None else ()


def _config(
    prepared: Prepared, place: str | None, files: Sequence[Companion], changes: Changes
) -> Companion | None:
    """The config of the result: the source's or the recorded one, corrected if it misfits; None without."""
    file = next((proof for proof in files if proof.name == CONFIG), None)
    noted = history_entry(prepared.plan.metadata).get(RECORDED_CONFIG, {})
    try:
        given = {} if file is None else read_object(file.source)
    except SourceError:
        return file  # whoever loads the model will see it
    target = prepared.sources.get(TARGET)
    is_targets = target is not None and file is not None and place == _directory(target)
    document = given if is_targets or not noted else noted
    if not document:
        return file
    corrected = _changed_config(document, changes)
    proved = contradictions([step.leaf for step in prepared.plan.steps], corrected)
    certain = {proof.place: proof.proved for proof in proved if proof.proved is not None}
    corrected = _changed_config(corrected, certain)
    if file is not None and corrected == given:
        return file
    content = f"{json.dumps(corrected, indent=2, ensure_ascii=False)}\n".encode("utf-8", "surrogatepass")
    source = next(iter(prepared.sources.values())).path if file is None else file.source
    return Companion(CONFIG, source, len(content), content)


def _changed_config(document: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Copy a config with some entries changed or removed."""
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


def _sidecars_to_keep(prepared: Prepared) -> tuple[Companion, ...]:
    """The first source's sidecar files, which an Orbax checkpoint keeps for a conversion back."""
    first, options = next(iter(prepared.sources.values())), prepared.destination
    if options.format != DEFAULT_FORMAT or urls.is_url(options.path or "") or in_memory(first):
        return ()
    files = tuple(_sidecars_in(_directory(first)))
    if not any(file.name == CONFIG for file in files):
        files = _kept_sidecars(first)
    if sum(file.size for file in files) > MOST_KEPT:
        return ()
    return tuple(replace(file, name=f"{KEPT}/{file.name}") for file in files)


def _kept_sidecars(source: Source) -> tuple[Companion, ...]:
    """Sidecar files that a source keeps beside its record."""
    if in_memory(source) or not is_directory(source.path):
        return ()
    directory = os.path.join(os.path.dirname(record_path(source)), KEPT)
    return tuple(_sidecars_in(directory)) if is_directory(directory) else ()


def _sidecars_in(directory: str) -> Iterator[Companion]:
    """Sidecar files in a directory, after opening each of them. Raises SourceError."""
    root = real_path(directory)
    for name in sorted(directory_names(directory).files):
        if is_companion(name):
            path = os.path.join(directory, name)
            check_link(path, root)
            with opened(path) as file:
                yield Companion(name, path, file.stat.size)


def keep_sidecars(companions: Sequence[Companion], directory: Path) -> None:
    """Copy files beside the record of a checkpoint. Raises SourceError, StorageError."""
    place = directory / KEPT
    with storage_errors(place):
        shutil.rmtree(place, ignore_errors=True)
        if companions:
            place.mkdir()
    for companion in companions:
        _copy(companion, directory / companion.name)


def copy_sidecars(companions: Sequence[Companion], directory: str) -> tuple[CopiedSidecar, ...]:
    """Copy files beside unpublished weights, in place of older ones. Raises SourceError, StorageError."""
    with storage_errors(Path(directory)):
        for name in os.listdir(directory):
            if is_companion(name):
                os.unlink(os.path.join(directory, name))
    return tuple(_copy(companion, Path(directory, companion.name)) for companion in companions)


def _copy(companion: Companion, place: Path) -> CopiedSidecar:
    if companion.content is not None:
        with storage_errors(place), open(place, "wb") as new:
            new.write(companion.content)
        return CopiedSidecar(companion.name, companion.size, bytes_crc(companion.content))
    with opened(companion.source) as file, storage_errors(place), open(place, "wb") as new:
        crc = 0
        for _, part in read_pieces(file, 0, file.stat.size):
            crc = bytes_crc(part, crc)
            new.write(part)
        return CopiedSidecar(companion.name, file.stat.size, crc)


def edited_sidecars(directory: str, copied: Sequence[CopiedSidecar]) -> list[str]:
    """Names of copied files that were edited or removed since."""
    edited = []
    for file in copied:
        now = None
        with suppress(SourceError), opened(os.path.join(directory, file.name)) as there:
            now = there.stat.size, range_crc(there, 0, there.stat.size)
        edited += [] if now == (file.size, file.crc32c) else [file.name]
    return edited
