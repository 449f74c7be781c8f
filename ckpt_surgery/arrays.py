"""Arrays by description: shapes, regions, chunk grids, and where stored bytes lie. Integers only, no I/O.

A checkpoint is a mapping of leaves; a leaf that has an array has a `Manifest`, which says for each
chunk where its bytes are. `Source` and `Sink` are what a format has to offer to the engine.
"""

import enum
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ckpt_surgery.keys import Key
from ckpt_surgery.values import frozen

Shape = tuple[int, ...]


@frozen()
class ArraySpec:
    """Shape and dtype of an array, ml_dtypes' types included."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory: elements × itemsize."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@frozen()
class Region:
    """A box of elements: `starts[i] <= index[i] < stops[i]` on every axis."""

    starts: Shape
    stops: Shape

    @staticmethod
    def whole(shape: Shape) -> "Region":
        return Region((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> Shape:
        return tuple(stop - start for start, stop in zip(self.starts, self.stops, strict=True))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(start, stop) for start, stop in zip(self.starts, self.stops, strict=True))

    def within(self, outer: "Region") -> tuple[slice, ...]:
        """Slices that cut this region out of a block that holds `outer`."""
        return tuple(
            slice(a - o, b - o) for a, b, o in zip(self.starts, self.stops, outer.starts, strict=True)
        )


def grid_counts(shape: Shape, chunks: Shape) -> Shape:
    """How many chunks there are along each axis; an axis of length 0 has none."""
    return tuple([-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)])


def chunk_regions(shape: Shape, chunks: Shape) -> Iterator[Region]:
    """The regions of a chunk grid in C order. Disjoint; their union is the whole array."""
    for index in itertools.product(*map(range, grid_counts(shape, chunks))):
        starts = tuple(i * chunk for i, chunk in zip(index, chunks, strict=True))
        yield Region(starts, tuple(min(s + c, n) for s, c, n in zip(starts, chunks, shape, strict=True)))


def covering_chunks(region: Region, shape: Shape, chunks: Shape) -> Region:
    """The smallest region of whole chunks that contains `region`: what decoding it costs."""
    starts = tuple(a // c * c for a, c in zip(region.starts, chunks, strict=True))
    stops = tuple(min(-(-b // c) * c, n) for b, c, n in zip(region.stops, chunks, shape, strict=True))
    return Region(starts, stops)


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
    def ranged(self) -> bool:
        """Regions are read without the rest of their chunks, which are raw and large enough for that."""
        whole_bytes = self.spec.dtype.name not in PART_BYTES
        return self.codec.raw and whole_bytes and self.chunk_nbytes >= RANGED_BYTES

    @property
    def complete(self) -> bool:
        """Every chunk of the grid has stored bytes."""
        if self.chunk_shape == self.spec.shape:
            return len(self.chunks) == 1
        return len(self.chunks) == math.prod(grid_counts(self.spec.shape, self.chunk_shape))


class LeafKind(enum.StrEnum):
    ARRAY = "array"
    SCALAR = "scalar"
    STRING = "string"
    PRNG_KEY = "prng_key"
    EMPTY = "empty"


@frozen()
class Leaf:
    """One leaf of a checkpoint, without its data."""

    key: Key
    kind: LeafKind
    spec: ArraySpec | None = None
    """Shape and dtype; for a PRNG key, of its raw data. None for strings and empty nodes."""
    manifest: Manifest | None = field(default=None, repr=False)
    """Where the bytes are. None for strings, empty nodes and leaves that are yet to be written, and for
    arrays that are no grid of chunks: those are read in regions of any form, and cannot be linked."""
    sharding: str | None = None
    """Orbax's JSON text of the sharding that a jax.Array was saved with."""
    prng_impl: str | None = None
    """`threefry2x32`, …: of a typed PRNG key."""
    string: str | None = None
    """The value of a string leaf."""
    empty: str | None = None
    """What an empty leaf is: `None`, `Dict`, `List`, `Tuple`, `NamedTuple`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory; 0 without one."""
        return 0 if self.spec is None else self.spec.nbytes


@dataclass(frozen=True)
class DataFile:
    """A file that chunks lie in."""

    path: str
    """Absolute, and no link."""
    size: int
    """Bytes."""
    device: int
    """The file system's number: links stay within one."""


class Source(Protocol):
    """A checkpoint that can be listed without reading data."""

    path: str
    """As the user gave it."""
    format: str
    step: int | None
    """Which step of a CheckpointManager directory, None elsewhere."""
    item: str | None
    """Which item of a composite checkpoint, None elsewhere."""
    metadata: Mapping[str, Any]
    """The user's custom metadata."""

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's own order. Reads no array."""
        ...

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region. Raises SourceError where bytes are missing or damaged."""
        ...

    def files(self) -> Iterable[str]:
        """Paths of all files that the checkpoint consists of, as far as they are there."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever the checkpoint's files do; cheap: their names within it, sizes, times, versions.

        The same wherever the checkpoint lies, in any process: saved plans recognize their sources by it.
        """
        ...


@runtime_checkable
class OpaqueSource(Protocol):
    """A source that lists arrays which no function can use, texts and dates say, and can tell them apart."""

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region of such an array, in its dtype: equal bytes, equal elements.

        Raises SourceError where they cannot be had.
        """
        ...


class LinkMode(enum.StrEnum):
    """How bytes that need no change come into the destination."""

    AUTO = "auto"
    """Whatever the file system can: reflink, hard link, copy."""
    REFLINK = "reflink"
    HARDLINK = "hardlink"
    COPY = "copy"


@frozen()
class Output:
    """A leaf to be written, and the chunk grid it is written on (empty where it has no array)."""

    leaf: Leaf
    chunks: Shape
    stored: Manifest | None = None
    """Stored bytes that become it as they are; None: it is computed, and written in regions."""
    copied: bool = False
    """Whether the stored bytes are copied; else the files that they lie in are linked."""


class Sink(Protocol):
    """A checkpoint being written into a directory that nobody else looks at yet."""

    def refusals(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why this format cannot hold these leaves, one sentence each with the key; empty: it can.

        No key is both a leaf and a container, and there are no empty nodes where the format holds none.
        """
        ...

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether stored bytes can become this leaf as they are. Decided from metadata alone."""
        ...

    def create(self, outputs: Sequence[Output]) -> None:
        """Called once, before the first byte: every spec is known, and what will be adopted."""
        ...

    def adopt(self, output: Output) -> None:
        """Link or copy stored bytes. Called from several threads, once per output that has some."""
        ...

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks. Called from several threads, once per region.

        That no region is left out is for the engine to see to.
        """
        ...

    def finish(self) -> None:
        """Everything is written: metadata, commit markers. Nothing is buffered afterwards."""
        ...
