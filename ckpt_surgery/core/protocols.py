"""What a format offers to the engine: sources that are read, sinks that are written."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest


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

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
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
