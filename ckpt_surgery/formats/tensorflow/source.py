"""Reading tensor bundles: TensorFlow's checkpoints of version 2, and the variables of a SavedModel."""

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import google_crc32c
import numpy as np

from ckpt_surgery.core.arrays import (
    ArraySpec,
    Region,
    Shape,
)
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import (
    Leaf,
    LeafKind,
)
from ckpt_surgery.core.manifests import (
    BIG,
    RAW,
    Chunk,
    Codec,
    Manifest,
    contiguous,
    raw_codec,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.chunk_reading import read_stored
from ckpt_surgery.formats.shared.raw_arrays import RawArraysSource
from ckpt_surgery.formats.tensorflow.detect import GRAPH_SUFFIX, SUFFIX, Bundle, is_table, locate
from ckpt_surgery.formats.tensorflow.dtypes import NUMBERS, STRING, type_name
from ckpt_surgery.formats.tensorflow.index import (
    BundleIndex,
    Variable,
    VariablePart,
    read_index,
    v1_checkpoint,
)
from ckpt_surgery.formats.tensorflow.proto import varint
from ckpt_surgery.formats.tensorflow.table import mask, table_entries
from ckpt_surgery.storage.failures import DAMAGED, about, named
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_file, real_path
from ckpt_surgery.storage.reading import opened, stat_file

MOST_STRING_BYTES = 2**20
"""Longest text that is read when a checkpoint is listed."""
_PIECE = 2**28
"""Bytes that a checksum is updated with at once."""


@dataclass(frozen=True)
class StoredPart:
    """A box of an array, and what reading it takes."""

    region: Region
    manifest: Manifest
    """Manifest of the box alone."""
    checksum: int
    """Masked CRC-32C of its stored bytes."""


class TensorBundleSource(RawArraysSource):
    """A tensor bundle, opened for reading. Safe to use from several threads.

    A data file can be missing until something is read from it; leaves in such files have no manifest. Arrays
    of other things than numbers are listed with the dtype `object`, and reading them is an error.
    """

    def __init__(self, bundle: Bundle, path: str, index: BundleIndex, files: Mapping[str, FileStat]):
        """`files`: size and time of the files that exist, by path."""
        paths = _data_files(bundle, index)
        stored = {v.name: _stored(paths, index, v) for v in index.variables if v.type in NUMBERS}
        leaves = {v.name: _leaf(paths, index, v, stored.get(v.name, ()), files) for v in index.variables}
        super().__init__(path, "tensorflow", leaves, files, {}, bundle.step)
        self._stored = stored
        self._types = {v.name: v.type for v in index.variables}
        self._beside = (*paths.values(), os.path.join(bundle.directory, f"{bundle.prefix}{GRAPH_SUFFIX}"))

    def files(self) -> Iterator[str]:
        """Paths of all files of the bundle; data files and the graph beside them may be missing."""
        yield from dict.fromkeys((*self._files, *self._beside))

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read.

        The checksum of a part of the variable (most have only one) is checked where the part is read whole
        and is little endian: there is one checksum for all of a part.
        """
        assert leaf.spec is not None
        name = leaf.key.text
        try:
            if name not in self._stored:
                raise _unreadable(self._types[name])
            return self._assembled(self._stored[name], leaf.spec, region)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def _assembled(self, parts: tuple[StoredPart, ...], spec: ArraySpec, region: Region) -> np.ndarray:
        if len(parts) == 1:
            return self._part(parts[0], region)
        block: np.ndarray = np.empty(region.shape, spec.dtype)
        for part in parts if region.size else ():
            common = _common(part.region, region)
            if common is not None:
                origin = part.region.starts
                inner = Region(
                    tuple(a - o for a, o in zip(common.starts, origin, strict=True)),
                    tuple(b - o for b, o in zip(common.stops, origin, strict=True)),
                )
                block[common.within(region)] = self._part(part, inner)
        return block

    def _part(self, part: StoredPart, region: Region) -> np.ndarray:
        """The elements of a region of a part; the region counts from the beginning of the part."""
        if not region.size:
            return np.empty(region.shape, part.manifest.spec.dtype)
        (chunk,) = part.manifest.chunks.values()
        if chunk.file not in self._files:
            raise SourceError(
                f"its data file {shown(chunk.file)} is missing",
                hint="Listing and planning need only the index; values need the data files beside it.",
            )
        block = read_stored(part.manifest, region, self._files)
        if region == Region.whole(part.manifest.spec.shape) and part.manifest.codec.encoding == RAW:
            _check(block, part.checksum, chunk)
        return block


def _common(a: Region, b: Region) -> Region | None:
    """The intersection of two regions; None where it is empty."""
    starts, stops = tuple(map(max, a.starts, b.starts)), tuple(map(min, a.stops, b.stops))
    return Region(starts, stops) if all(a < b for a, b in zip(starts, stops, strict=True)) else None


def _check(block: np.ndarray, wanted: int, chunk: Chunk) -> None:
    data = block.reshape(-1).view(np.uint8)
    pieces = (data[i : i + _PIECE] for i in range(0, data.size, _PIECE))
    found = mask(functools.reduce(google_crc32c.extend, pieces, 0))
    if found != wanted:
        raise SourceError(
            f"its {chunk.length} bytes from byte {chunk.offset} of {shown(chunk.file)} on have the checksum "
            f"{found:08x} where {wanted:08x} is recorded",
            hint=DAMAGED,
        )


def _unreadable(type: int) -> SourceError:
    return SourceError(
        f"its type in TensorFlow is {type_name(type)}, which no array here can have",
        hint="Drop it, or leave it where it is.",
    )


# --- leaves -----------------------------------------------------------------------------------------------


def _stored(paths: Mapping[int, str], index: BundleIndex, variable: Variable) -> tuple[StoredPart, ...]:
    dtype = NUMBERS[variable.type]
    codec = _codec(len(variable.shape), index.big and dtype.itemsize > 1)
    return tuple(
        StoredPart(
            part.region,
            contiguous(ArraySpec(part.region.shape, dtype), paths[part.shard], part.offset, codec),
            part.checksum,
        )
        for part in variable.parts
    )


@functools.cache
def _codec(ndim: int, big: bool) -> Codec:
    return Codec("big endian", tuple(range(ndim)), BIG) if big else raw_codec(ndim)


def _leaf(
    paths: Mapping[int, str],
    index: BundleIndex,
    variable: Variable,
    parts: tuple[StoredPart, ...],
    files: Mapping[str, FileStat],
) -> Leaf:
    key = Key.parse(variable.name)
    if parts:
        spec = ArraySpec(variable.shape, parts[0].manifest.spec.dtype)
        return Leaf(key, LeafKind.ARRAY, spec, _manifest(spec, parts, files))
    text = _text(paths, index, variable, files)
    if text is not None:
        return Leaf(key, LeafKind.STRING, string=text)
    return Leaf(key, LeafKind.ARRAY, ArraySpec(variable.shape, np.dtype(object)))


def _manifest(
    spec: ArraySpec, parts: tuple[StoredPart, ...], files: Mapping[str, FileStat]
) -> Manifest | None:
    """The manifest of an array whose parts have one shape and whose files exist; None for any other."""
    here = all(chunk.file in files for part in parts for chunk in part.manifest.chunks.values())
    if not here or len({part.region.shape for part in parts}) > 1:
        return None
    if len(parts) == 1:
        return parts[0].manifest
    first = parts[0].manifest
    chunks = {_cell(part.region, first.chunk_shape): part.manifest.chunks for part in parts}
    return Manifest(
        spec,
        first.chunk_shape,
        first.codec,
        {cell: found[(0,) * spec.ndim] for cell, found in chunks.items() if found},
    )


def _cell(region: Region, chunk_shape: Shape) -> Shape:
    return tuple(start // length for start, length in zip(region.starts, chunk_shape, strict=True))


# --- texts ------------------------------------------------------------------------------------------------


def _text(
    paths: Mapping[int, str], index: BundleIndex, variable: Variable, files: Mapping[str, FileStat]
) -> str | None:
    """The value of a variable that is one short text; None for others, and where its file is missing."""
    (part, *others) = variable.parts
    path = paths[part.shard]
    plain = variable.type == STRING and not variable.shape and not others
    if not plain or part.size > MOST_STRING_BYTES or path not in files:
        return None
    with opened(path, files[path]) as file:
        stored = file.read(part.offset, part.size)
    try:
        with about(path):
            return decoded_text(stored, part, index.big).decode()
    except UnicodeDecodeError:
        return None
    except SourceError as error:
        raise named(Key.parse(variable.name), error) from error


def decoded_text(stored: bytes, part: VariablePart, big: bool) -> bytes:
    """The only element of an array of strings: a varint of its length, a checksum of that, its bytes.

    In the checksum of the whole, the length counts as a number of 4 bytes. Raises SourceError where the
    checksum differs.
    """
    length, at = varint(stored, 0)
    if length != len(stored) - at - 4:
        raise SourceError(f"a text of {length} bytes does not take {len(stored)}", hint=DAMAGED)
    crc = google_crc32c.value(length.to_bytes(4, "big" if big else "little"))
    if mask(google_crc32c.extend(crc, stored[at:])) != part.checksum:
        raise SourceError("a text does not have the checksum that is recorded", hint=DAMAGED)
    return stored[at + 4 :]


# --- opening ----------------------------------------------------------------------------------------------


def open_tensor_bundle(path: str, selection: Selection) -> TensorBundleSource:
    """Open a prefix, one of a bundle's files, a directory with a `checkpoint` file, or a SavedModel.

    Reads the index; data files can be missing, but those that exist must be long enough. Raises
    SourceError where the checkpoint is damaged, UsageError for an item, and for a step that does not exist.
    """
    bundle = locate(path, selection)
    directory, name = bundle.directory, os.path.join(bundle.directory, bundle.index)
    _check_version(bundle, path)
    if bundle.in_directory:
        check_link(name, real_path(directory))
    state = None if bundle.state is None else os.path.join(directory, bundle.state)
    files = {} if state is None else {state: stat_file(state)}
    with opened(name) as file:
        files[name] = file.stat
        with about(name):
            index = read_index(table_entries(file))
    return TensorBundleSource(bundle, path, index, files | _shards(bundle, index))


def _check_version(bundle: Bundle, path: str) -> None:
    """Refuse checkpoints of version 1, whose only table has the name that is a prefix in version 2."""
    name = os.path.join(bundle.directory, bundle.prefix)
    if has_entry(name + SUFFIX):
        return
    if not is_file(name):
        raise SourceError(f"{shown(name + SUFFIX)} does not exist", hint=DAMAGED)
    with opened(name) as file:
        if is_table(file):
            raise v1_checkpoint(shown(name))
    raise SourceError(
        f"{shown(path)} is not a TensorFlow checkpoint", hint="Name its prefix, or its .index file."
    )


def _shards(bundle: Bundle, index: BundleIndex) -> dict[str, FileStat]:
    """The data files that exist. Raises SourceError for one that is too short, or a link that leaves."""
    root = real_path(bundle.directory)
    found, paths = {}, _data_files(bundle, index)
    for number, end in sorted(_ends(index).items()):
        path = paths[number]
        if not has_entry(path):
            continue
        check_link(path, root)
        stat = stat_file(path)
        if stat.size < end:
            raise SourceError(
                f"{shown(path)} has {stat.size} bytes, and its variables end at byte {end}", hint=DAMAGED
            )
        found[path] = stat
    return found


def _data_files(bundle: Bundle, index: BundleIndex) -> dict[int, str]:
    """The paths of the data files that are used, by number."""
    numbers = {part.shard for variable in index.variables for part in variable.parts}
    return {n: os.path.join(bundle.directory, bundle.shard(n, index.shards)) for n in numbers}


def _ends(index: BundleIndex) -> dict[int, int]:
    """For each data file that is used, the bytes that it must have at least."""
    ends: dict[int, int] = {}
    for variable in index.variables:
        for part in variable.parts:
            ends[part.shard] = max(ends.get(part.shard, 0), part.offset + part.size)
    return ends
