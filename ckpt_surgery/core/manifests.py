"""Stored arrays: the grid of chunks, how chunks become bytes, and where those bytes lie."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec, Shape, grid_counts
from ckpt_surgery.core.frozen import frozen


@frozen()
class Chunk:
    """Where the stored bytes of one chunk are: a range of a file, or right here."""

    file: str
    """Path that opens it; empty where the bytes are inline. One string for all chunks of a file.

    In an index that is being written, relative to the checkpoint.
    """
    offset: int
    """Byte offset in the file."""
    length: int
    """Stored (encoded) bytes."""
    inline: bytes | None = None


def encoding_of(codecs: Sequence[Mapping[str, Any]]) -> str:
    """Canonical JSON of a chain of codecs in the words of zarr version 3: equal text, equal encoding."""
    return json.dumps(list(codecs), sort_keys=True, separators=(",", ":"))


def bytes_codec(endian: str) -> dict[str, Any]:
    """Elements one after another, `little` or `big` endian; single bytes are little endian by convention."""
    return {"name": "bytes", "configuration": {"endian": endian}}


RAW = encoding_of([bytes_codec("little")])
"""The encoding of chunks that are their elements as they are in memory."""

_LITTLE, _BIG = (encoding_of([bytes_codec(endian)]).removesuffix("]") for endian in ("little", "big"))


@dataclass(frozen=True)
class Codec:
    """How one chunk's elements become bytes: its axes are permuted, then it is encoded in C order."""

    name: str
    """Short form for people: `zstd`, `gzip`, `raw`, `sharded(zstd)`."""
    permutation: tuple[int, ...]
    """The axes of the chunk in the order in which they are stored, the outermost first."""
    encoding: str
    """What happens to the permuted chunk, as `encoding_of` writes it; neither shape nor dtype is in it.

    A codec that zarr version 2 only has keeps its `id`; one that neither version has has no `name`.
    """

    @property
    def raw(self) -> bool:
        """Stored bytes are the elements, little endian: a part of them is a part of the elements."""
        return self.encoding == RAW

    @property
    def little(self) -> bool:
        """What is encoded are the elements as they are in memory: they can be read as another type."""
        return self.encoding.startswith(_LITTLE)

    @property
    def bytewise(self) -> bool:
        """The elements are encoded one after another: their shape does not matter, as it does to shards."""
        return self.encoding.startswith((_LITTLE, _BIG))

    @property
    def order(self) -> str:
        """For people: `C`, `F` where the axes are stored reversed, else the permutation: `1,0,2`."""
        axes = tuple(range(len(self.permutation)))
        if self.permutation == axes:
            return "C"
        return "F" if self.permutation == axes[::-1] else ",".join(map(str, self.permutation))


def raw_codec(ndim: int) -> Codec:
    """Of chunks that are plain little-endian bytes in C order."""
    return Codec("raw", tuple(range(ndim)), RAW)


def long_axes(chunk_shape: Shape, codec: Codec) -> tuple[int, ...]:
    """The axes along which a chunk has several places, in the order in which they are stored.

    All of the permutation that matters where the codec is bytewise.
    """
    return tuple(axis for axis in codec.permutation if chunk_shape[axis] > 1)


RANGED_BYTES = 1 << 20
"""Raw chunks from this size on are read in parts."""


PART_BYTES = ("bool", "int2", "int4", "uint2", "uint4", "float4_e2m1fn")
"""Types of which not every byte is a value."""


@frozen()
class Manifest:
    """A stored array: spec, regular chunk grid, codec, and where each chunk is."""

    spec: ArraySpec
    chunk_shape: Shape
    codec: Codec
    chunks: Mapping[Shape, Chunk]
    """Chunk grid index → location. An index that is missing has no stored bytes."""

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a decoded chunk; at the edges of the array chunks are as large as elsewhere."""
        return math.prod(self.chunk_shape) * self.spec.dtype.itemsize

    @property
    def long_axes(self) -> tuple[int, ...]:
        """See `long_axes`."""
        return long_axes(self.chunk_shape, self.codec)

    @property
    def supports_partial_reads(self) -> bool:
        """Regions are read without the rest of their chunks, which are raw and large enough for that."""
        whole_bytes = self.spec.dtype.name not in PART_BYTES
        return self.codec.raw and whole_bytes and self.chunk_nbytes >= RANGED_BYTES

    @property
    def complete(self) -> bool:
        """Every chunk of the grid has stored bytes."""
        if self.chunk_shape == self.spec.shape:
            return len(self.chunks) == 1
        return len(self.chunks) == math.prod(grid_counts(self.spec.shape, self.chunk_shape))
