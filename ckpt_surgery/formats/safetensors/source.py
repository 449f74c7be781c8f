"""Reading safetensors: one file, or shards with an index that maps names to files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import (
    ArraySpec,
    Region,
)
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import (
    Leaf,
    LeafKind,
)
from ckpt_surgery.core.manifests import (
    Codec,
    Manifest,
    contiguous,
    encoding_of,
    raw_codec,
)
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.safetensors.detect import INDEX_SUFFIX, NAMES, PREFIX_BYTES
from ckpt_surgery.formats.safetensors.header import (
    DTYPES,
    PACKED,
    Header,
    TensorEntry,
    header_length,
    parse_header,
)
from ckpt_surgery.formats.shared.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.formats.shared.listings import ListedSource, Listing
from ckpt_surgery.formats.shared.raw_arrays import contiguous
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.storage.failures import about
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened, read_region, stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME
from ckpt_surgery.storage.views import prefetch

PACKED_NAME = "packed"
"""Name of the codec of tensors with two elements per byte."""


@dataclass(frozen=True)
class Shard:
    """One file and its header."""

    name: str
    """Name relative to the checkpoint's directory."""
    path: str
    stat: FileStat
    data: int
    """Offset of the first byte of tensors."""
    header: Header


# --- reading headers --------------------------------------------------------------------------------------


def read_shard(directory: str, name: str) -> Shard:
    """A file and its header, checked against the file's size. Raises SourceError with the file's path."""
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
    names = shard_names(directory, files)
    if urls.is_url(directory):
        prefetch(os.path.join(directory, name) for name in names)
    shards = [read_shard(directory, name) for name in names]
    check_shards(directory, files, {s.name: [t.name for t in s.header.tensors] for s in shards})
    return shards


# --- the source -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """A tensor with two elements per byte."""

    manifest: Manifest

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region. Raises SourceError where bytes are missing, or the file has changed."""
        (chunk,) = self.manifest.chunks.values()
        with opened(chunk.file, files[chunk.file]) as file:
            return read_packed(file, chunk.offset, self.manifest.spec, region)


def _listing(
    index: Mapping[str, FileStat],
    shards: Sequence[Shard],
    metadata: Mapping[str, Any],
    details: SourceDetails,
) -> Listing:
    leaves = {t.name: _leaf(shard, t) for shard in shards for t in shard.header.tensors}
    packed = {text: leaf.manifest for text, leaf in leaves.items() if leaf.manifest is not None}
    return Listing(
        leaves,
        {**index, **{shard.path: shard.stat for shard in shards}},
        metadata,
        readers={text: Packed(m) for text, m in packed.items() if m.codec.name == PACKED_NAME and m.chunks},
        details=details,
    )


def paired(spec: ArraySpec, region: Region) -> tuple[ArraySpec, Region]:
    """An array with two elements per byte as an array of bytes, and the bytes that a region touches."""
    halves = ArraySpec((*spec.shape[:-1], spec.shape[-1] // 2), DTYPES["U8"])
    starts, stops = (
        (*region.starts[:-1], region.starts[-1] // 2),
        (*region.stops[:-1], -(-region.stops[-1] // 2)),
    )
    return halves, Region(starts, stops)


def read_packed(file: OpenFile, offset: int, spec: ArraySpec, region: Region) -> np.ndarray:
    """The elements of a region that are stored two per byte, each in a byte of its own."""
    if not region.size:
        return np.empty(region.shape, spec.dtype)
    both = read_region(file, offset, *paired(spec, region))
    apart = np.stack([both & 15, both >> 4], axis=-1).reshape(*both.shape[:-1], -1)
    first = region.starts[-1] % 2
    return np.ascontiguousarray(apart[..., first : first + region.shape[-1]]).view(spec.dtype)


def _leaf(shard: Shard, tensor: TensorEntry) -> Leaf:
    codec = _packed_codec(tensor.spec.ndim) if tensor.packed else None
    manifest = contiguous(
        tensor.spec, shard.path, shard.data + tensor.start, codec, tensor.stop - tensor.start
    )
    return Leaf(Key.parse(tensor.name), LeafKind.ARRAY, tensor.spec, manifest)


@cache
def _packed_codec(ndim: int) -> Codec:
    """The codec of two elements per byte. Its encoding has no `name`, because zarr has no such codec."""
    return replace(raw_codec(ndim), name=PACKED_NAME, encoding=encoding_of([{"packed": PACKED}]))


def open_safetensors(path: str, selection: Selection) -> ListedSource:
    """Open a file, an index, or a directory that holds one of them.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item.
    """
    check_no_choice(f"{shown(path)} is a safetensors checkpoint, which has", selection.step, selection.item)
    directory, name = NAMES.file_of(path)
    if not name.endswith(INDEX_SUFFIX):
        shard = read_shard(directory, name)
        header = shard.header
        details = SourceDetails(holds_record=True, record=header.record)
        return ListedSource(path, "safetensors", _listing({}, [shard], header.metadata, details))
    index = os.path.join(directory, name)
    files, metadata = read_index(index)
    shards = read_shards(directory, files)
    details = SourceDetails(record_file=os.path.join(directory, RECORD_NAME))
    listing = _listing({index: stat_file(index)}, shards, dict(_merged(metadata, shards)), details)
    return ListedSource(path, "safetensors", listing)


def _merged(index: Mapping[str, Any], shards: Sequence[Shard]) -> Iterator[tuple[str, Any]]:
    """The metadata of index and shards; for a repeated name, the first shard wins over all."""
    yield from index.items()
    for shard in reversed(shards):
        yield from shard.header.metadata.items()
