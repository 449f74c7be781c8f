"""Reading safetensors: one file, or shards with an index that maps names to files."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.arrays import (
    ArraySpec,
    Codec,
    Leaf,
    LeafKind,
    Region,
    encoding_of,
    raw_codec,
)
from ckpt_surgery.errors import SourceError, UsageError
from ckpt_surgery.formats import Selection
from ckpt_surgery.formats.byte_ranges import OpenFile, opened, read_region, stat_file
from ckpt_surgery.formats.files import DAMAGED, FileStat, about, check_link, entries
from ckpt_surgery.formats.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.formats.safetensors_header import (
    DTYPES,
    MOST_HEADER_BYTES,
    PACKED,
    PREFIX_BYTES,
    Header,
    Tensor,
    header_length,
    parse_header,
)
from ckpt_surgery.formats.stretches import StretchesSource, stretch
from ckpt_surgery.keys import Key, shown

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.safetensors\Z")
PACKED_NAME = "packed"
"""How the codec of tensors with two elements to a byte is called."""
_ZIP = b"PK\x03\x04"
"""How a PyTorch file begins, whatever its name."""


@dataclass(frozen=True)
class Shard:
    """One file, its header read."""

    name: str
    """Relative to the checkpoint's directory."""
    path: str
    stat: FileStat
    data: int
    """Offset of the first tensor's byte."""
    header: Header


# --- which files ------------------------------------------------------------------------------------------


def detect(path: Path) -> bool:
    """Whether a path is a safetensors file, an index, or a directory that holds some; damaged ones too."""
    try:
        if path.is_dir():
            return any(entry.name.endswith((SUFFIX, INDEX_SUFFIX)) for entry in entries(os.fspath(path)))
        return path.name.endswith(INDEX_SUFFIX) or _looks_right(path)
    except SourceError:
        return False


def _looks_right(path: Path) -> bool:
    """By the first bytes; a file that is named so is taken for one unless it is clearly another thing."""
    with opened(os.fspath(path)) as file:
        head = file.read(0, min(PREFIX_BYTES + 1, file.stat.size))
    length = int.from_bytes(head[:PREFIX_BYTES], "little")
    fits = 2 <= length <= min(MOST_HEADER_BYTES, file.stat.size - PREFIX_BYTES)
    named = path.name.endswith(SUFFIX) and not head.startswith(_ZIP)
    return named or (fits and head.endswith(b"{"))


def _chosen(directory: str) -> str:
    """The name of the file in a directory that stands for all of it: the single one, or the index."""
    names = sorted(entry.name for entry in entries(directory))
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    files = [name for name in names if name.endswith(SUFFIX)]
    usual = [name for name in (SINGLE_NAME, INDEX_NAME) if name in names]
    found = usual or indexes or files
    if len(found) != 1:
        raise _unclear(directory, found)
    part = _SHARD.search(found[0])
    if part and int(part[2]) != 1:
        raise _unclear(directory, found)
    return found[0]


def _unclear(directory: str, found: Sequence[str]) -> SourceError:
    listed = ", ".join(map(shown, found[:3])) + (", …" if len(found) > 3 else "")
    if found and all(map(_SHARD.search, found)):
        return SourceError(
            f"{shown(directory)} holds shards ({listed}) without their index {INDEX_NAME}", hint=DAMAGED
        )
    return SourceError(
        f"{shown(directory)} holds {len(found)} safetensors checkpoints: {listed}",
        hint="Name the file that is meant.",
    )


# --- reading headers --------------------------------------------------------------------------------------


def read_shard(directory: str, name: str) -> Shard:
    """A file's header, checked against the file's size. Raises SourceError with the file's path."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        size = file.stat.size
        prefix = file.read(0, min(PREFIX_BYTES, size))
        with about(path):
            length = header_length(prefix, size)
        text = file.read(PREFIX_BYTES, length)
    data = PREFIX_BYTES + length
    with about(path):
        return Shard(name, path, file.stat, data, parse_header(text, size - data))


def read_shards(directory: str, files: Mapping[str, str]) -> list[Shard]:
    """Every file that an index names, in the order of their names.

    Raises SourceError where files and index differ, and for links that leave the directory.
    """
    shards = [read_shard(directory, name) for name in shard_names(directory, files)]
    check_shards(directory, files, {s.name: [t.name for t in s.header.tensors] for s in shards})
    return shards


# --- the source -------------------------------------------------------------------------------------------


class SafetensorsSource(StretchesSource):
    """A safetensors checkpoint, opened for reading. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        directory: str,
        index: Mapping[str, FileStat],
        shards: Sequence[Shard],
        metadata: Mapping[str, Any],
    ):
        leaves = {t.name: _leaf(shard, t) for shard in shards for t in shard.header.tensors}
        files = {**index, **{shard.name: shard.stat for shard in shards}}
        super().__init__(path, "safetensors", directory, leaves, files, metadata)

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        assert leaf.manifest is not None
        if leaf.manifest.codec.name != PACKED_NAME or not region.size:
            return super().read(leaf, region)
        (chunk,) = leaf.manifest.chunks.values()
        with opened(os.path.join(self.directory, chunk.file), self._files[chunk.file]) as file:
            return read_packed(file, chunk.offset, leaf.manifest.spec, region)


def paired(spec: ArraySpec, region: Region) -> tuple[ArraySpec, Region]:
    """The bytes behind an array with two elements to a byte, and those that a region touches."""
    halves = ArraySpec((*spec.shape[:-1], spec.shape[-1] // 2), DTYPES["U8"])
    starts, stops = (
        (*region.starts[:-1], region.starts[-1] // 2),
        (*region.stops[:-1], -(-region.stops[-1] // 2)),
    )
    return halves, Region(starts, stops)


def read_packed(file: OpenFile, offset: int, spec: ArraySpec, region: Region) -> np.ndarray:
    """Elements that lie two to a byte, each in a byte of its own."""
    if not region.size:
        return np.empty(region.shape, spec.dtype)
    both = read_region(file, offset, *paired(spec, region))
    apart = np.stack([both & 15, both >> 4], axis=-1).reshape(*both.shape[:-1], -1)
    first = region.starts[-1] % 2
    return np.ascontiguousarray(apart[..., first : first + region.shape[-1]]).view(spec.dtype)


def _leaf(shard: Shard, tensor: Tensor) -> Leaf:
    codec = _packed_codec(tensor.spec.ndim) if tensor.packed else None
    manifest = stretch(tensor.spec, shard.name, shard.data + tensor.start, codec, tensor.stop - tensor.start)
    return Leaf(Key.parse(tensor.name), LeafKind.ARRAY, tensor.spec, manifest)


@cache
def _packed_codec(ndim: int) -> Codec:
    """Two elements to a byte. Its encoding has no `name`, for zarr has nothing like it."""
    return replace(raw_codec(ndim), name=PACKED_NAME, encoding=encoding_of([{"packed": PACKED}]))


def open_safetensors(path: str, selection: Selection) -> SafetensorsSource:
    """Open a file, an index, or a directory that holds one of them.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item.
    """
    if selection.step is not None or selection.item is not None:
        raise UsageError(
            f"{shown(path)} is a safetensors checkpoint, which has no steps or items",
            hint="Leave out --step and --item.",
        )
    if os.path.isdir(path):
        directory, name = path, _chosen(path)
        check_link(os.path.join(directory, name), os.path.realpath(directory))
    else:
        directory, name = os.path.split(path)
    if not name.endswith(INDEX_SUFFIX):
        shard = read_shard(directory, name)
        return SafetensorsSource(path, directory, {}, [shard], shard.header.metadata)
    files, metadata = read_index(os.path.join(directory, name))
    shards = read_shards(directory, files)
    index = {name: stat_file(os.path.join(directory, name))}
    return SafetensorsSource(path, directory, index, shards, dict(_merged(metadata, shards)))


def _merged(index: Mapping[str, Any], shards: Sequence[Shard]) -> Iterator[tuple[str, Any]]:
    """The metadata of index and shards; the first shard that has a name decides."""
    yield from index.items()
    for shard in reversed(shards):
        yield from shard.header.metadata.items()
