"""Arrays by description: shapes, regions, chunk grids, and where stored bytes lie. Integers only, no I/O.

A checkpoint is a mapping of leaves; a leaf that has an array has a `Manifest`, which says for each
chunk where its bytes are. `Source` and `Sink` are what a format has to offer to the engine.
"""

import enum
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ckpt_surgery.keys import Key

Shape = tuple[int, ...]


@dataclass(frozen=True)
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
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
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
    return tuple(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))


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


@dataclass(frozen=True)
class Chunk:
    """Where the stored bytes of one chunk are: a range of a file, or right here."""

    file: str
    """Path relative to the checkpoint's root; empty where the bytes are inline."""
    offset: int
    """Byte offset in the file."""
    length: int
    """Stored (encoded) bytes."""
    inline: bytes | None = None


@dataclass(frozen=True)
class Codec:
    """How one chunk's elements become bytes."""

    name: str
    """Short form for people: `zstd`, `gzip`, `raw`, `sharded(zstd)`."""
    order: str
    """`C` or `F`: the order of elements inside a chunk."""
    definition: str
    """The format's own description, canonical JSON: equal text, equal encoding."""


@dataclass(frozen=True)
class Manifest:
    """A stored array: spec, regular chunk grid, codec, and where each chunk is."""

    spec: ArraySpec
    chunk_shape: Shape
    codec: Codec
    chunks: Mapping[Shape, Chunk]
    """Chunk grid index → location. An index that is missing has no stored bytes."""


class LeafKind(enum.StrEnum):
    ARRAY = "array"
    SCALAR = "scalar"
    STRING = "string"
    PRNG_KEY = "prng_key"
    EMPTY = "empty"


@dataclass(frozen=True)
class Leaf:
    """One leaf of a checkpoint, without its data."""

    key: Key
    kind: LeafKind
    spec: ArraySpec | None = None
    """Shape and dtype; for a PRNG key, of its raw data. None for strings and empty nodes."""
    manifest: Manifest | None = field(default=None, repr=False)
    """Where the bytes are. None for strings, empty nodes and leaves that are yet to be written."""
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

    def fingerprint(self) -> str:
        """Changes whenever the checkpoint's files do; cheap (names, sizes, times, versions)."""
        ...


@dataclass(frozen=True)
class Output:
    """A leaf to be written, and the chunk grid it is written on (empty where it has no array)."""

    leaf: Leaf
    chunks: Shape


class Sink(Protocol):
    """A checkpoint being written into a directory that nobody else looks at yet."""

    def refusals(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why this format cannot hold these leaves, one sentence each with the key; empty: it can."""
        ...

    def create(self, outputs: Sequence[Output]) -> None:
        """Called once, before the first byte: every spec is known."""
        ...

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks. Called from several threads, once per region."""
        ...

    def finish(self) -> None:
        """Everything is written: metadata, commit markers. Nothing is buffered afterwards."""
        ...
