"""Descriptions of stored arrays: the grid of chunks, their encoding, and the locations of their bytes."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.frozen import frozen


@frozen()
class Chunk:
    """The location of the stored bytes of one chunk: a range of a file, or `inline`."""

    file: str
    """Path of the file; empty if the bytes are inline. In an index that is being written it is relative to
    the checkpoint. All chunks of a file share one string object, as there can be very many."""
    offset: int
    """Byte offset of the chunk in the file."""
    length: int
    """Number of stored (encoded) bytes."""
    inline: bytes | None = None
    """The stored bytes themselves, if the index of the checkpoint contains them."""


def encoding_of(codecs: Sequence[Mapping[str, Any]]) -> str:
    """A chain of codecs as canonical JSON in the form of zarr version 3. Equal texts mean equal encodings."""
    return json.dumps(list(codecs), sort_keys=True, separators=(",", ":"))


def bytes_codec(endian: str) -> dict[str, Any]:
    """The codec `bytes` of zarr version 3: elements one after another, `little` or `big` endian.

    Dtypes of one byte are `little`.
    """
    return {"name": "bytes", "configuration": {"endian": endian}}


RAW = encoding_of([bytes_codec("little")])
"""The encoding of uncompressed little-endian chunks, whose stored bytes are those of the array in memory."""

BIG = encoding_of([bytes_codec("big")])
"""The encoding of uncompressed big-endian chunks."""


@dataclass(frozen=True)
class Codec:
    """Encoding of a chunk: its axes are permuted, then its elements are encoded in C order."""

    name: str
    """Short name that is shown to users: `zstd`, `gzip`, `raw`, `sharded(zstd)`."""
    permutation: tuple[int, ...]
    """The axes of the chunk in the order in which they are stored, the outermost first."""
    encoding: str
    """The encoding of the permuted chunk, as written by `encoding_of`. It depends on neither shape nor dtype.

    A codec that only zarr version 2 has keeps its `id`. A codec that neither version has does not have a
    `name`.
    """

    @property
    def raw(self) -> bool:
        """Whether chunks are uncompressed and little-endian, so that ranges of bytes are ranges of
        elements."""
        return self.encoding == RAW

    @property
    def little(self) -> bool:
        """Whether little-endian elements are encoded, which can be decoded as another dtype."""
        return self.encoding.startswith(RAW.removesuffix("]"))

    @property
    def big(self) -> bool:
        """Whether big-endian elements are encoded."""
        return self.encoding.startswith(BIG.removesuffix("]"))

    @property
    def bytewise(self) -> bool:
        """Whether a chunk is encoded as a sequence of elements, whatever its shape. Shards are not."""
        return self.little or self.big

    @property
    def quantized(self) -> bool:
        """Whether elements are computed from blocks of a type that no array in memory has: the `name`."""
        return self.encoding.startswith('[{"quantized":')

    @property
    def order(self) -> str:
        """The storage order that is shown to users: `C`, `F` (axes reversed), or the permutation: `1,0,2`."""
        axes = tuple(range(len(self.permutation)))
        if self.permutation == axes:
            return "C"
        return "F" if self.permutation == axes[::-1] else ",".join(map(str, self.permutation))


def raw_codec(ndim: int) -> Codec:
    """The codec of chunks that are uncompressed little-endian bytes in C order."""
    return Codec("raw", tuple(range(ndim)), RAW)


def quantized_codec(name: str, ndim: int) -> Codec:
    """The codec of blocks of a quantized type, such as `Q4_K`, one after another in C order."""
    return Codec(name, tuple(range(ndim)), encoding_of([{"quantized": name}]))


def long_axes(chunk_shape: Shape, codec: Codec) -> tuple[int, ...]:
    """The axes along which a chunk is longer than 1, in the order in which they are stored.

    If the codec is bytewise, two permutations with the same long axes store the same bytes.
    """
    return tuple(axis for axis in codec.permutation if chunk_shape[axis] > 1)


RANGED_BYTES = 1 << 20
"""Raw chunks of at least this size in bytes are read in parts."""
PART_BYTES = ("bool", "int2", "int4", "uint2", "uint4", "float4_e2m1fn")
"""Names of dtypes for which not every byte is a valid value."""


@frozen()
class Manifest:
    """A stored array: shape and dtype, regular chunk grid, codec, and the location of each chunk."""

    spec: ArraySpec
    """Shape and dtype of the whole array."""
    chunk_shape: Shape
    """Shape of every chunk, those at the edges included."""
    codec: Codec
    """Encoding of the bytes of every chunk."""
    chunks: Mapping[Shape, Chunk]
    """The location of each chunk by its index in the grid. A missing index has no stored bytes."""
    fill: bytes | None = None
    """The bytes of one element, as in memory, with which every element of a missing chunk is read. None: a
    missing chunk cannot be read."""

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a decoded chunk. Chunks at the edges of the array are padded to the same size."""
        return math.prod(self.chunk_shape) * self.spec.dtype.itemsize

    @property
    def long_axes(self) -> tuple[int, ...]:
        """The function `long_axes` for the chunks of this array."""
        return long_axes(self.chunk_shape, self.codec)

    @property
    def stores_values(self) -> bool:
        """Whether the stored bytes of each chunk are the elements of its region in C order, little endian."""
        if not self.codec.raw or list(self.long_axes) != sorted(self.long_axes):
            return False
        if any(n % c for n, c in zip(self.spec.shape, self.chunk_shape, strict=True)):
            return False  # chunks at the edges are padded
        whole = self.chunk_nbytes
        return all(chunk.length == whole for chunk in self.chunks.values())

    @property
    def supports_partial_reads(self) -> bool:
        """Whether a region can be read without reading the rest of its chunks: they are raw, and large."""
        whole_bytes = self.spec.dtype.name not in PART_BYTES
        return self.codec.raw and whole_bytes and self.chunk_nbytes >= RANGED_BYTES

    @property
    def complete(self) -> bool:
        """Whether every chunk of the grid has stored bytes."""
        if self.chunk_shape == self.spec.shape:
            return len(self.chunks) == 1
        return len(self.chunks) == math.prod(grid_counts(self.spec.shape, self.chunk_shape))


def contiguous(spec: ArraySpec, file: str, offset: int, codec: Codec | None = None) -> Manifest:
    """The manifest of an array in one range of a file, as long as in memory: by default raw, in C order."""
    # Without elements there is no chunk, and a grid cannot have steps of 0.
    grid = tuple(max(1, n) for n in spec.shape)
    chunks = {(0,) * spec.ndim: Chunk(file, offset, spec.nbytes)} if spec.size else {}
    return Manifest(spec, grid, codec or raw_codec(spec.ndim), chunks)


def parts_of_chunks(manifest: Manifest, region: Region) -> Iterator[tuple[Shape, Region]]:
    """The index of each chunk that a region touches, and the part of the region that lies in that chunk.

    In C order; chunks without stored bytes are among them.
    """
    if not region.size:
        return
    grid = manifest.chunk_shape
    if grid == manifest.spec.shape:
        yield (0,) * len(grid), region
        return
    first = tuple(start // length for start, length in zip(region.starts, grid, strict=True))
    last = tuple(-(-stop // length) for stop, length in zip(region.stops, grid, strict=True))
    for index in itertools.product(*map(range, first, last)):
        starts = tuple(i * length for i, length in zip(index, grid, strict=True))
        stops = tuple(start + length for start, length in zip(starts, grid, strict=True))
        part = Region(tuple(map(max, starts, region.starts)), tuple(map(min, stops, region.stops)))
        yield index, part
