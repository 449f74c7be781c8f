"""Flax's MessagePack files: one file, shards of a Hugging Face model, or a step among several.

Source of the conventions: flax 0.12.8's `flax.training.checkpoints` (`<prefix><step>` in one directory, with
multi-host arrays in `<prefix><step>_gda`; `checkpoint_` is the usual prefix), transformers' Flax models
(`flax_model.msgpack`, or shards with `flax_model.msgpack.index.json`), EasyLM's streams (`streaming_params`).
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.registry import Format, Names, Selection, claims
from ckpt_surgery.formats.shared.npy import MAGIC
from ckpt_surgery.formats.shared.orbax_layout import TREE_FILE, UNFINISHED, is_orbax
from ckpt_surgery.formats.shared.steps import ChosenFile, check_no_choice, choose_step
from ckpt_surgery.storage.listing import check_link, directory_names, is_directory, real_path
from ckpt_surgery.storage.reading import OpenFile

SUFFIX = ".msgpack"
INDEX_SUFFIX = ".msgpack.index.json"
SINGLE_NAME = "flax_model.msgpack"
INDEX_NAME = "flax_model.msgpack.index.json"
USUAL_PREFIX = "checkpoint_"

_STEP_NAME = re.compile(r"(.*?)((?:(?<=_)-)?[0-9]{1,18}(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,3})?)\Z")
"""Prefix and step of a name; steps may be fractions, and negative where the prefix ends in `_`."""
_NO_STEP = re.compile(rf"[^_a-zA-Z]*\Z|.*\.data-[0-9]{{5}}-of-[0-9]|.*{re.escape(UNFINISHED)}")
"""Names that end in a number without being steps: chunks of zarr arrays (`0.0`), data files of TensorFlow,
saves that were never finished."""
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.msgpack\Z")
_FOREIGN = (
    *(b"PK\x03\x04", b"\x89HDF", b"\x1f\x8b", MAGIC, b"{"),
    *(bytes((0x80, version)) for version in range(2, 6)),
)
"""First bytes of files of other kinds, whatever their names: zip, HDF5, gzip, npy, JSON, pickle."""
MOST_PREFIXES = 10
"""Largest number of prefixes of steps in one directory that are examined."""


def detect(path: str) -> bool:
    """Whether a path is a Flax checkpoint; damaged ones too, if they are named as usual."""
    if not is_directory(path):
        return NAMES.is_one(path)
    names = directory_names(path).files
    likely = [name for name in names if name.lower().endswith((SUFFIX, INDEX_SUFFIX))]
    likely += map(_latest, _steps(names).values())
    return any(claims(NAMES.is_one, os.path.join(path, name)) for name in likely)


def _begins(file: OpenFile) -> bool | None:
    """Whether a file is Flax's: by its contents, or by the name of a step unless it begins as others do."""
    name, head = os.path.basename(file.path), file.read(0, min(16, file.stat.size))
    if name == TREE_FILE:  # T5X's, or Orbax's from before `_METADATA`
        return False
    length = int.from_bytes(head[:8], "little")
    if head.startswith(_FOREIGN) or (head[8:9] == b"{" and length < file.stat.size):  # safetensors
        return False
    from ckpt_surgery.formats.shared.msgpack.tree import has_t5x_root

    if has_t5x_root(file):
        return False
    step = _STEP_NAME.match(name)
    return (step is not None and step[1] == USUAL_PREFIX) or _begins_right(file) or None


def _begins_right(file: OpenFile) -> bool:
    """Whether a file begins as a stream, or with nested maps whose keys are printable strings."""
    from ckpt_surgery.formats.shared.msgpack.tree import first_path, starts_stream

    if starts_stream(file):
        return True
    head = file.read(0, min(6, file.stat.size))
    first = head[{0xDE: 3, 0xDF: 5}.get(head[0], 1) :][:1] if head else b""
    if first and not (b"\xa0" <= first <= b"\xbf" or b"\xd9" <= first <= b"\xdb"):
        return False  # the first key is not a string, as it never is in an index of TensorFlow
    try:
        path = first_path(file)
    except SourceError:
        return False
    return path is not None and all(part.isprintable() for part in path)


NAMES = Names("Flax checkpoints", _begins, (SUFFIX,), INDEX_SUFFIX, (SINGLE_NAME, INDEX_NAME), _SHARD)


def locate(path: str, selection: Selection) -> ChosenFile:
    """Find the file to read. Raises SourceError or UsageError with the names there are to choose from."""
    if not is_directory(path) or NAMES.whole(directory_names(path).files):
        check_no_choice(path, selection.step)
        return ChosenFile(*NAMES.file_of(path))
    steps = _steps_in(path)
    if not steps:
        what = f"{shown(path)} holds no Flax checkpoint: no `{USUAL_PREFIX}<step>`, no `*{SUFFIX}`"
        raise SourceError(what, hint="Name the file itself.")
    name = choose_step(path, steps, selection.step)
    if is_directory(os.path.join(path, name)):
        what = f"{shown(os.path.join(path, name))} is a directory that Orbax wrote"
        raise SourceError(what, hint="Read it as format `orbax`, or choose another step: `step=N`.")
    check_link(os.path.join(path, name), real_path(path))
    number = steps[name]
    return ChosenFile(path, name, number if isinstance(number, int) else None)


def _steps_in(directory: str) -> dict[str, int | float]:
    """The numbers of the steps of one prefix by name, including those in directories that Orbax wrote."""
    names = directory_names(directory)
    by_orbax = [name for name in names.directories if is_orbax(os.path.join(directory, name))]
    by_prefix = _steps([*names.files, *by_orbax])
    latest = {prefix: _latest(steps) for prefix, steps in by_prefix.items()}
    prefixes = [p for p, n in latest.items() if n in by_orbax or NAMES.is_one(os.path.join(directory, n))]
    if len(prefixes) > 1 and prefixes[0] != USUAL_PREFIX:
        what = f"{shown(directory)} holds checkpoints with several prefixes: {few(prefixes)}"
        raise SourceError(what, hint="Name the path of the one that is meant.")
    return by_prefix[prefixes[0]] if prefixes else {}


def _steps(names: Iterable[str]) -> dict[str, dict[str, int | float]]:
    """The numbers of steps by prefix and name; MOST_PREFIXES prefixes at most, the usual one first."""
    steps: dict[str, dict[str, int | float]] = defaultdict(dict)
    for name in names:
        match = None if _NO_STEP.match(name) else _STEP_NAME.match(name)
        if match is not None:
            steps[match[1]][name] = _number(match[2])
    prefixes = sorted(steps, key=lambda prefix: (prefix != USUAL_PREFIX, prefix))
    return {prefix: steps[prefix] for prefix in prefixes[:MOST_PREFIXES]}


def _number(text: str) -> int | float:
    """The number of a step: an integer where it is one; `1e400` is infinite."""
    value = float(text)
    return int(text) if text.lstrip("-").isdigit() else int(value) if value.is_integer() else value


def _latest(steps: Mapping[str, int | float]) -> str:
    return max(steps, key=lambda name: (steps[name], natural_order(name)))


FORMAT = Format(
    name="flax",
    detect=detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    choices=("step",),
    holds_metadata=False,
    holds_lists=False,
)
