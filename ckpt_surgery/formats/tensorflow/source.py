"""Reading tensor bundles: TensorFlow's checkpoints of version 2, and the variables of a SavedModel."""

import functools
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import google_crc32c
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, contiguous
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.chunk_reading import Check
from ckpt_surgery.formats.registry import Listing, Reader, Selection
from ckpt_surgery.formats.shared.boxes import Box, Boxes, on_grid
from ckpt_surgery.formats.shared.steps import ChosenFile
from ckpt_surgery.formats.tensorflow import GRAPH_SUFFIX, STATE, SUFFIX, is_table, locate
from ckpt_surgery.formats.tensorflow import index as bundles
from ckpt_surgery.formats.tensorflow.table import mask, table_entries, varint
from ckpt_surgery.storage.failures import about_key, damaged, with_path
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_file, real_path
from ckpt_surgery.storage.reading import opened, stat_file

MOST_STRING_BYTES = 2**20
"""Longest text that is read when a checkpoint is listed."""
_PIECE = 2**28
"""Bytes that a checksum is updated with at once."""


@dataclass(frozen=True)
class MissingFile:
    """Reads nothing: the data file is missing, which only values need."""

    path: str

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """Raise SourceError that names the file."""
        hint = "Listing and planning need only the index; values need the data files beside it."
        raise SourceError(f"its data file {shown(self.path)} is missing", hint=hint)


def _check(wanted: int, chunk: Chunk, stored: np.ndarray) -> None:
    """Compare the bytes of a part with its masked CRC-32C."""
    pieces = (stored[i : i + _PIECE] for i in range(0, stored.size, _PIECE))
    crc = mask(functools.reduce(google_crc32c.extend, pieces, 0))
    if crc != wanted:
        what = f"its {chunk.length} bytes from byte {chunk.offset} of {shown(chunk.file)} on have"
        raise damaged(f"{what} the checksum {crc:08x} where {wanted:08x} is recorded")


def _without_numbers(key: Key, variable: bundles.Variable, path: str, files: Mapping[str, FileStat]) -> Leaf:
    """A short text, or an array that cannot be read. `path`: that of the data file with its first part."""
    (part, *others) = variable.parts
    plain = variable.type == bundles.STRING and not variable.shape and not others
    if plain and part.size <= MOST_STRING_BYTES and path in files:
        with opened(path, files[path]) as file:
            stored = file.read(part.offset, part.size)
        with suppress(UnicodeDecodeError), about_key(key), with_path(path):
            return Leaf(key, LeafKind.STRING, string=decoded_text(stored, part).decode())
    why = f"has the TensorFlow type {bundles.TYPES[variable.type]}, which no array here can have"
    unreadable = Unreadable(why, "Drop it, or leave it where it is.")
    return Leaf(key, LeafKind.ARRAY, ArraySpec(variable.shape, np.dtype(object)), unreadable=unreadable)


def decoded_text(stored: bytes, part: bundles.VariablePart) -> bytes:
    """The only element of an array of strings: a varint of its length, a checksum of that, its bytes.

    In the checksum of the whole, the length counts as a number of 4 bytes.
    """
    length, at = varint(stored, 0)
    if length != len(stored) - at - 4:
        raise damaged(f"a text of {length} bytes does not take {len(stored)}")
    crc = google_crc32c.value(length.to_bytes(4, "little"))
    if mask(google_crc32c.extend(crc, stored[at:])) != part.checksum:
        raise damaged("a text does not have the checksum that is recorded")
    return stored[at + 4 :]


def read(path: str, selection: Selection) -> Listing:
    """Open a prefix, one of a bundle's files, a directory with a `checkpoint` file, or a SavedModel.

    Reads the index. Data files can be missing, and leaves in such files have no manifest; those that exist
    must be long enough. Arrays of other things than numbers are listed with the dtype `object`, and cannot be
    read. The checksum of a part of a variable (most have only one) is compared where the part is read whole.
    """
    bundle = locate(path, selection)
    _check_version(bundle.path, path)
    name, state = bundle.path + SUFFIX, os.path.join(path, STATE)
    files = {state: stat_file(state)} if has_entry(state) else {}
    with opened(name) as file:
        files[name] = file.stat
        with with_path(name):
            index = bundles.read_index(table_entries(file))
    paths, stats = _data_files(index, bundle)
    files |= stats
    leaves: dict[str, Leaf] = {}
    readers: dict[str, Reader] = {}
    checks: dict[Chunk, Check] = {}
    for name, variable in index.variables.items():
        key = Key.parse(name)
        if variable.type not in bundles.NUMBERS:
            leaves[name] = _without_numbers(key, variable, paths[variable.parts[0].shard], files)
            continue
        spec = ArraySpec(variable.shape, bundles.NUMBERS[variable.type])
        boxes = []
        for part in variable.parts:
            box, at = ArraySpec(part.region.shape, spec.dtype), paths[part.shard]
            if box.size and at not in files:
                boxes.append(Box(part.region, MissingFile(at)))
                continue
            stored = contiguous(box, at, part.offset)
            boxes.append(Box(part.region, stored))
            checks |= dict.fromkeys(stored.chunks.values(), functools.partial(_check, part.checksum))
        manifest = on_grid(spec, boxes)
        leaves[name] = Leaf(key, LeafKind.ARRAY, spec, manifest)
        if manifest is None:
            readers[name] = Boxes(spec, boxes, checks)
    expected = (*paths.values(), bundle.path + GRAPH_SUFFIX)
    return Listing(leaves, files, step=bundle.step, readers=readers, checks=checks, expected_files=expected)


def _check_version(name: str, path: str) -> None:
    """Refuse checkpoints of version 1, whose only table has the name that is a prefix in version 2."""
    if has_entry(name + SUFFIX):
        return
    if not is_file(name):
        raise damaged(f"{shown(name + SUFFIX)} does not exist")
    with opened(name) as file:
        if is_table(file):
            raise bundles.v1_checkpoint(shown(name))
    what = f"{shown(path)} is not a TensorFlow checkpoint"
    raise SourceError(what, hint="Name its prefix, or its .index file.")


def _data_files(index: bundles.BundleIndex, bundle: ChosenFile) -> tuple[dict[int, str], dict[str, FileStat]]:
    """Paths of the data files that are used, by number; and size and time, by path, of those that exist."""
    ends: dict[int, int] = {}
    for variable in index.variables.values():
        for part in variable.parts:
            ends[part.shard] = max(ends.get(part.shard, 0), part.offset + part.size)
    paths = {n: f"{bundle.path}.data-{n:05d}-of-{index.shards:05d}" for n in sorted(ends)}
    root, stats = real_path(bundle.directory), {}
    for number, path in paths.items():
        if not has_entry(path):
            continue
        check_link(path, root)
        stats[path] = stat_file(path)
        if stats[path].size < ends[number]:
            what = f"{shown(path)} has {stats[path].size} bytes"
            raise damaged(f"{what}, and its variables end at byte {ends[number]}")
    return paths, stats
