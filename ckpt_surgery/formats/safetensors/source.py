"""Reading safetensors: one file, or shards with an index that maps names to files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.safetensors import INDEX_SUFFIX, NAMES, PREFIX_BYTES
from ckpt_surgery.formats.safetensors.header import PACKED, Header, TensorEntry, header_length, parse_header
from ckpt_surgery.formats.shared.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import opened, stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME
from ckpt_surgery.storage.views import prefetch

PAIRS = Unreadable(
    f"has two elements in each byte ({PACKED}), which is not read",
    "Unpack it with torch, or take another copy.",
)
"""Why tensors of `float4_e2m1fn_x2` are listed only."""


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
    """A file and its header, checked against the file's size."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        size = file.stat.size
        prefix = file.read(0, min(PREFIX_BYTES, size))
        with with_path(path):
            length = header_length(prefix, size)
        text = file.read(PREFIX_BYTES, length)
    data = PREFIX_BYTES + length
    with with_path(path):
        return Shard(name, path, file.stat, data, parse_header(text, size - data))


def read_shards(directory: str, files: Mapping[str, str]) -> list[Shard]:
    """Every file that an index names, in the order of their names, checked against the index."""
    names = shard_names(directory, files)
    prefetch(directory, names)
    shards = [read_shard(directory, name) for name in names]
    check_shards(directory, files, {s.name: [t.name for t in s.header.tensors] for s in shards})
    return shards


# --- the source -------------------------------------------------------------------------------------------


def _leaf(shard: Shard, tensor: TensorEntry) -> Leaf:
    key = Key.parse(tensor.name)
    if tensor.packed:
        return Leaf(key, LeafKind.ARRAY, tensor.spec, unreadable=PAIRS)
    return Leaf(
        key, LeafKind.ARRAY, tensor.spec, contiguous(tensor.spec, shard.path, shard.data + tensor.start)
    )


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them."""
    directory, name = NAMES.file_of(path)
    files: dict[str, FileStat] = {}
    metadata: Mapping[str, Any] = {}
    if name.endswith(INDEX_SUFFIX):
        index = os.path.join(directory, name)
        weights, metadata = read_index(index)
        shards, files = read_shards(directory, weights), {index: stat_file(index)}
        details = SourceDetails(record_file=os.path.join(directory, RECORD_NAME))
    else:
        shards = [read_shard(directory, name)]
        details = SourceDetails(holds_record=True, record=shards[0].header.record)
    leaves = {t.name: _leaf(shard, t) for shard in shards for t in shard.header.tensors}
    files |= {shard.path: shard.stat for shard in shards}
    return Listing(leaves, files, dict(_merged(metadata, shards)), details=details)


def _merged(index: Mapping[str, Any], shards: Sequence[Shard]) -> Iterator[tuple[str, Any]]:
    """The metadata of index and shards; for a repeated name, the first shard wins over all."""
    yield from index.items()
    for shard in reversed(shards):
        yield from shard.header.metadata.items()
