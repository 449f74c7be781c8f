"""Which files a Flax checkpoint is: one, shards of a Hugging Face model, or a step among several.

Source of the conventions: flax 0.12.8's `flax.training.checkpoints` (`<prefix><step>` in one directory, with
multi-host arrays in `<prefix><step>_gda`; `checkpoint_` is the usual prefix), transformers' Flax models
(`flax_model.msgpack`, or shards with `flax_model.msgpack.index.json`), EasyLM's streams (`streaming_params`).
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.orbax.detect import UNFINISHED
from ckpt_surgery.formats.orbax.detect import detect as detect_orbax
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.t5x.detect import FILE_NAME, has_root
from ckpt_surgery.storage.listing import (
    check_link,
    check_no_item,
    check_no_step,
    entries,
    is_directory,
    not_one,
    without_index,
)
from ckpt_surgery.storage.reading import OpenFile, opened

SUFFIX = ".msgpack"
INDEX_SUFFIX = ".msgpack.index.json"
SINGLE_NAME = "flax_model.msgpack"
INDEX_NAME = "flax_model.msgpack.index.json"
USUAL_PREFIX = "checkpoint_"

_STEP_NAME = re.compile(r"(.*?)((?:(?<=_)-)?[0-9]{1,18}(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,3})?)\Z")
"""Prefix and step; steps may be fractions, and negative where a prefix ends in `_`."""
_NO_STEP = re.compile(rf"[^_a-zA-Z]*\Z|.*\.data-[0-9]{{5}}-of-[0-9]|.*{re.escape(UNFINISHED)}")
"""Chunks of zarr arrays (`0.0`), data of TensorFlow, saves that were never finished."""
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.msgpack\Z")
_FOREIGN = (
    *(b"PK\x03\x04", b"\x89HDF", b"\x1f\x8b", b"\x93NUMPY", b"{"),
    *(bytes((0x80, version)) for version in range(2, 6)),
)
"""How files of other kinds begin, whatever their names: zip, HDF5, gzip, npy, JSON; pickle."""
MOST_PREFIXES = 10
"""So many prefixes of steps in one directory are looked at."""


@dataclass(frozen=True)
class Location:
    """The file that was chosen: a document, a stream, or an index."""

    directory: str
    name: str
    """In the directory."""
    step: int | None = None


@dataclass(frozen=True)
class Step:
    """One of several checkpoints in a directory."""

    name: str
    prefix: str
    number: int | float
    directory: bool
    """Orbax's, not Flax's own."""


# --- recognizing ------------------------------------------------------------------------------------------


def detect(path: Path) -> bool:
    """Whether a path is a Flax checkpoint; damaged ones too, if they are named as usual."""
    place = os.fspath(path)
    if not os.path.isdir(place):
        return _is_claimed(place)
    try:
        names = _files(place)
    except SourceError:
        return False
    likely = [name for name in names if name.endswith((SUFFIX, INDEX_SUFFIX))]
    likely += (step.name for step in _latest_of_each(_steps(names, ())))
    return any(_is_claimed(os.path.join(place, name)) for name in likely)


def _is_claimed(path: str) -> bool:
    """Whether a file is taken for one of Flax's; what cannot be read is not."""
    try:
        return _is_file(path)
    except SourceError:
        return False


def _files(directory: str) -> list[str]:
    return sorted(entry.name for entry in entries(directory) if not is_directory(entry))


def _is_file(path: str) -> bool:
    """By its content; one that has a usual name is taken for one unless it is clearly another thing."""
    name = os.path.basename(path)
    if name.endswith(INDEX_SUFFIX):
        return True
    if name == FILE_NAME:  # T5X's, or Orbax's from before `_METADATA`
        return False
    usual = name.endswith(SUFFIX) or _has_usual_prefix(name)
    with opened(path) as file:
        head = file.read(0, min(16, file.stat.size))
        if head.startswith(_FOREIGN) or _is_safetensors(head, file.stat.size):
            return False
        return (usual or _begins_right(file)) and not has_root(file)


def _has_usual_prefix(name: str) -> bool:
    match = _STEP_NAME.match(name)
    return match is not None and match[1] == USUAL_PREFIX


def _is_safetensors(head: bytes, size: int) -> bool:
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size


def _begins_right(file: OpenFile) -> bool:
    """Whether it begins with a map of strings, down to something that is no map; or as a stream does."""
    from ckpt_surgery.formats.shared.msgpack_tree import first_path, starts_stream

    if starts_stream(file):
        return True
    if not _first_key_is_text(file.read(0, min(6, file.stat.size))):
        return False
    try:
        path = first_path(file)
    except SourceError:
        return False
    return path is not None and all(part.isprintable() for part in path)


def _first_key_is_text(head: bytes) -> bool:
    """Of a MessagePack map. An index of TensorFlow may begin like a map too, but not like one of strings."""
    key = head[{0xDE: 3, 0xDF: 5}.get(head[0], 1) :][:1] if head else b""
    return not key or b"\xa0" <= key <= b"\xbf" or b"\xd9" <= key <= b"\xdb"


# --- choosing ---------------------------------------------------------------------------------------------


def locate(path: str, selection: Selection) -> Location:
    """Find the file to read. Raises SourceError or UsageError with the names there are to choose from."""
    check_no_item(path, selection.item)
    if not os.path.isdir(path):
        directory, name = os.path.split(path)
        check_no_step(path, selection.step)
        return Location(directory, name)
    found = _model(path)
    if found is None:
        found = _step(path, selection)
    else:
        check_no_step(path, selection.step)
    check_link(os.path.join(path, found.name), os.path.realpath(path))
    return found


def _model(directory: str) -> Location | None:
    """The file or the index that stands for a whole directory; None where no name ends as theirs do."""
    names = _files(directory)
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    files = [name for name in names if name.endswith(SUFFIX)]
    found = [name for name in (SINGLE_NAME, INDEX_NAME) if name in names] or indexes or files
    if not found:
        return None
    part = _SHARD.search(found[0])
    if len(found) != 1 or (part and int(part[2]) != 1):
        raise _unclear(directory, found)
    return Location(directory, found[0])


def _unclear(directory: str, found: Sequence[str]) -> SourceError:
    if all(map(_SHARD.search, found)):
        return without_index(directory, found, INDEX_NAME)
    return not_one(directory, "Flax checkpoints", found)


def _step(directory: str, selection: Selection) -> Location:
    """The step that is asked for, or the latest one."""
    steps = _all_steps(directory)
    if not steps:
        raise SourceError(
            f"{shown(directory)} holds no Flax checkpoint: no `{USUAL_PREFIX}<step>`, no `*{SUFFIX}`",
            hint="Name the file itself.",
        )
    if selection.step is None:
        chosen = [step for step in steps if step.number == steps[-1].number]
    else:
        chosen = [step for step in steps if step.number == selection.step]
    names = [step.name for step in chosen]
    if not names:
        known = [step.name for step in steps]
        raise UsageError(
            f"{shown(directory)} has no step {selection.step}", hint=f"It has {few(known[-10:], 10)}."
        )
    if len(names) > 1:
        raise SourceError(
            f"{shown(directory)} has that step more than once: {few(names)}",
            hint="Name the file that is meant.",
        )
    if chosen[0].directory:
        raise SourceError(
            f"{shown(os.path.join(directory, names[0]))} is a directory that Orbax wrote",
            hint="Read it as format `orbax`, or choose another step: `step=N`.",
        )
    number = chosen[0].number
    return Location(directory, names[0], number if isinstance(number, int) else None)


def _all_steps(directory: str) -> list[Step]:
    """The steps of one prefix, the latest last; those in Orbax's directories are among them.

    Raises SourceError where there are several prefixes, none of them the usual one.
    """
    found = entries(directory)
    folders = [e.name for e in found if is_directory(e) and detect_orbax(Path(e.path))]
    steps = _steps([e.name for e in found if not is_directory(e)], folders)
    prefixes = {step.prefix for step in _latest_of_each(steps) if step.directory or _is_step(directory, step)}
    if USUAL_PREFIX in prefixes:
        prefixes = {USUAL_PREFIX}
    if len(prefixes) > 1:
        raise SourceError(
            f"{shown(directory)} holds checkpoints with several prefixes: {few(sorted(prefixes))}",
            hint="Name the file that is meant.",
        )
    return [step for step in steps if step.prefix in prefixes]


def _is_step(directory: str, step: Step) -> bool:
    return _is_file(os.path.join(directory, step.name))


def _steps(files: Iterable[str], folders: Iterable[str]) -> list[Step]:
    """All that is named as a step, the latest last."""
    named = [*((name, False) for name in files), *((name, True) for name in folders)]
    matches = [(_STEP_NAME.match(name), folder) for name, folder in named if not _NO_STEP.match(name)]
    steps = [Step(m[0], m[1], _number(m[2]), folder) for m, folder in matches if m]
    return sorted(steps, key=lambda step: (step.number, natural_order(step.name)))


def _number(text: str) -> int | float:
    value = float(text)
    return int(text) if text.lstrip("-").isdigit() else int(value) if value.is_integer() else value


def _latest_of_each(steps: Iterable[Step]) -> list[Step]:
    """Of every prefix the latest step, of the first few prefixes; the usual one is never left out."""
    latest: Mapping[str, Step] = {step.prefix: step for step in steps}
    prefixes = sorted(latest, key=lambda prefix: (prefix != USUAL_PREFIX, prefix))
    return [latest[prefix] for prefix in prefixes[:MOST_PREFIXES]]
