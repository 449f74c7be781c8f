"""The indexes of zarr's shards: which of the chunks inside a shard are stored.

Source: the zarr version 3 specification, codec `sharding_indexed`. A shard is a chunk that holds smaller ones
and an index at its end or its beginning: for each chunk inside, in C order, its offset and its length in the
shard. A chunk with nothing but the fill value may be absent; both numbers then have all bits set.
"""

import functools
import json
import math
from dataclasses import dataclass

import google_crc32c
import numpy as np

from ckpt_surgery.core.arrays import Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec
from ckpt_surgery.storage.reading import read_ranges

SHARDS = "sharding_indexed"
ENTRY_BYTES = 16
"""Bytes of the index for each chunk inside: two integers of 64 bits."""
CRC_BYTES = 4
ABSENT = np.uint64(2**64 - 1)
"""Offset and length of a chunk inside that is not stored."""


@dataclass(frozen=True)
class ShardLayout:
    """Place of a shard's index, and the chunks that it describes."""

    inner: Shape
    """The shape of the chunks inside, in the order in which a shard stores its axes."""
    at_end: bool
    endian: str
    checked: bool
    """Whether a CRC-32C follows the index."""

    def index_bytes(self, count: int) -> int:
        """Length of the index of a shard with `count` chunks inside."""
        return count * ENTRY_BYTES + (CRC_BYTES if self.checked else 0)


@functools.lru_cache(maxsize=1024)
def shard_layout(encoding: str) -> ShardLayout | None:
    """The layout of chunks that are shards, without other codecs and with no shards inside; else None."""
    codecs = json.loads(encoding)
    if len(codecs) != 1 or codecs[0].get("name") != SHARDS:
        return None
    configuration = codecs[0]["configuration"]
    index = configuration.get("index_codecs", [])
    order, rest = index[:1], [codec.get("name") for codec in index[1:]]
    known = order in ([bytes_codec("little")], [bytes_codec("big")]) and rest in ([], ["crc32c"])
    if not known or any(codec.get("name") == SHARDS for codec in configuration["codecs"]):
        return None
    return ShardLayout(
        inner=tuple(configuration["chunk_shape"]),
        at_end=configuration.get("index_location", "end") == "end",
        endian=order[0]["configuration"]["endian"],
        checked=bool(rest),
    )


def least_bytes(chunk_shape: Shape, codec: Codec) -> int | None:
    """Smallest size of a shard in bytes, which is that of its index. None if chunks are not shards."""
    if SHARDS not in codec.encoding:
        return None
    layout = shard_layout(codec.encoding)
    return 0 if layout is None else layout.index_bytes(math.prod(_inside(layout, codec, chunk_shape)))


def wholly_stored(manifest: Manifest) -> bool:
    """Whether every element has stored bytes: no shard lacks a chunk with elements of the array.

    Reads the index of each shard, and nothing where there are none. False where that is unknown, because an
    index is damaged or of an unknown kind.
    """
    if SHARDS not in manifest.codec.encoding:
        return manifest.complete
    layout = shard_layout(manifest.codec.encoding)
    if layout is None or not manifest.complete:
        return False
    present = functools.cache(functools.partial(_present, manifest, layout))
    chunks = manifest.chunks.items()
    return all(present(chunk)[_reached(manifest, layout, index)].all() for index, chunk in chunks)


def _inside(layout: ShardLayout, codec: Codec, lengths: Shape) -> Shape:
    """Number of chunks inside a part of a shard along each axis, in the order in which axes are stored."""
    return grid_counts(tuple(lengths[axis] for axis in codec.permutation), layout.inner)


def _reached(manifest: Manifest, layout: ShardLayout, index: Shape) -> tuple[slice, ...]:
    """The chunks inside a shard in which the array has elements; at its edges not all of them."""
    sizes = zip(index, manifest.chunk_shape, manifest.spec.shape, strict=True)
    lengths = tuple(min(length, size - i * length) for i, length, size in sizes)
    return tuple(map(slice, _inside(layout, manifest.codec, lengths)))


def _present(manifest: Manifest, layout: ShardLayout, chunk: Chunk) -> np.ndarray:
    """For each chunk inside a shard, whether it is stored. False for all where the index is damaged."""
    at = index_range(manifest, layout, chunk)
    entries = None if at is None else index_entries(manifest, layout, chunk, next(read_ranges([at], {})))
    counts = _inside(layout, manifest.codec, manifest.chunk_shape)
    return np.zeros(counts, bool) if entries is None else entries[0] != ABSENT


def index_range(manifest: Manifest, layout: ShardLayout, chunk: Chunk) -> Chunk | None:
    """The range of the index of a shard; None where the shard is shorter than its index."""
    length = layout.index_bytes(math.prod(_inside(layout, manifest.codec, manifest.chunk_shape)))
    if length > chunk.length:
        return None
    begin = chunk.offset + (chunk.length - length if layout.at_end else 0)
    return Chunk(chunk.file, begin, length, chunk.inline)


def index_entries(
    manifest: Manifest, layout: ShardLayout, chunk: Chunk, data: bytes
) -> tuple[np.ndarray, np.ndarray] | None:
    """Offsets and lengths of the chunks inside a shard, uint64, by their indices in stored order.

    Both are `ABSENT` where a chunk is not stored. `data`: the bytes of the index. None where it is damaged.
    """
    counts = _inside(layout, manifest.codec, manifest.chunk_shape)
    begin, end = (0, chunk.length - len(data)) if layout.at_end else (len(data), chunk.length)
    size = math.prod(counts) * ENTRY_BYTES
    if layout.checked and google_crc32c.value(data[:size]) != int.from_bytes(data[size:], "little"):
        return None
    entries = np.frombuffer(data[:size], "<u8" if layout.endian == "little" else ">u8").astype(np.uint64)
    offsets, lengths = np.moveaxis(entries.reshape(*counts, 2), -1, 0)
    absent = (offsets == ABSENT) & (lengths == ABSENT)
    # Without sums, which could exceed 64 bits.
    inside = (begin <= offsets) & (offsets <= end) & (lengths <= np.uint64(end) - np.minimum(offsets, end))
    return (offsets, lengths) if (inside | absent).all() else None
