"""Checkpoints whose arrays are contiguous bytes in files: raw elements from an offset on.

Most formats other than zarr are like this: once their headers are read, they have leaves with manifests of
raw chunks in files. Reading regions is the same for all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import (
    ArraySpec,
    Region,
    Shape,
    chunk_regions,
    covering_chunks,
)
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import (
    Leaf,
)
from ckpt_surgery.core.manifests import (
    Chunk,
    Codec,
    Manifest,
    bytes_codec,
    encoding_of,
    raw_codec,
)
from ckpt_surgery.storage.failures import DAMAGED, named
from ckpt_surgery.storage.listing import FileStat, digest, relative
from ckpt_surgery.storage.reading import Readable, opened, read_region, stat_file

BIG = encoding_of([bytes_codec("big")])
"""The encoding of chunks whose elements are big endian."""


def contiguous(
    spec: ArraySpec, file: str, offset: int, codec: Codec | None = None, length: int | None = None
) -> Manifest:
    """The manifest of a contiguous array in a file, by default raw in C order, and as long as in memory."""
    # Without elements there is no chunk, and a grid cannot have steps of 0.
    grid = tuple(max(1, n) for n in spec.shape)
    chunks = (
        {(0,) * spec.ndim: Chunk(file, offset, spec.nbytes if length is None else length)}
        if spec.size
        else {}
    )
    return Manifest(spec, grid, codec or raw_codec(spec.ndim), chunks)


@dataclass(frozen=True)
class Opaque:
    """An array that is listed although no function can use it; its elements can be compared."""

    why: str
    """Reason, as a predicate: `is an array of dates`."""
    hint: str
    stored: Manifest | None = None
    """Manifest of its elements as untyped bytes; None if the file does not hold them as plain bytes."""
    dtype: np.dtype[Any] | None = None
    """Type of the elements in the file."""

    def refused(self, leaf: Leaf) -> SourceError:
        """The error to raise where the array is read."""
        return named(leaf.key, SourceError(f"it {self.why}", hint=self.hint))

    def typed(self, block: np.ndarray, listed: np.dtype[Any]) -> np.ndarray:
        """Untyped bytes converted to the type that the array is listed with."""
        assert self.dtype is not None
        found: np.ndarray = block.view(self.dtype).astype(listed)
        return found


class RawArraysSource:
    """A checkpoint of contiguous arrays, opened for reading. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        format: str,
        leaves: Mapping[str, Leaf],
        files: Mapping[str, FileStat],
        metadata: Mapping[str, Any],
        step: int | None = None,
        opaque: Mapping[str, Opaque] | None = None,
    ):
        self.path = path
        self.format = format
        self.metadata = metadata
        self.step = step
        self.item: str | None = None
        self._leaves = leaves
        self._files = files
        """Size and time of every file when it was listed, by path."""
        self._opaque = opaque or {}
        """Arrays that no function can use, by the text of their keys."""

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's own order."""
        return self._leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        opaque = self._opaque.get(leaf.key.text)
        if opaque is not None:
            raise opaque.refused(leaf)
        assert leaf.manifest is not None
        return self._read(leaf, leaf.manifest, region)

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of an array that no function can use. Raises SourceError where they cannot be read."""
        opaque = self._opaque.get(leaf.key.text)
        if opaque is None or opaque.stored is None or leaf.spec is None:
            return self.read(leaf, region)  # which raises the reason
        return opaque.typed(self._read(leaf, opaque.stored, region), leaf.spec.dtype)

    def _read(self, leaf: Leaf, manifest: Manifest, region: Region) -> np.ndarray:
        try:
            return read_raw(manifest, region, self._files)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def files(self) -> Iterator[str]:
        """Paths of the files that were listed."""
        yield from self._files

    def fingerprint(self) -> str:
        """Digest of the files' names, sizes and times. Raises SourceError where one is gone."""
        return digest(relative({path: stat_file(path) for path in self._files}))


def read_raw(manifest: Manifest, region: Region, listed: Mapping[str, FileStat] | None = None) -> np.ndarray:
    """A region of an array whose chunks are plain bytes of either byte order; reads only the bytes it needs.

    `listed`: size and time of the files when they were listed, by path. Raises SourceError where bytes
    are missing, files have changed, or booleans are neither 0 nor 1.
    """
    block: np.ndarray = np.empty(region.shape, manifest.spec.dtype)
    for index, part in parts_of_chunks(manifest, region):
        block[part.within(region)] = _part_of_chunk(manifest, index, part, listed or {})
    return block


def parts_of_chunks(manifest: Manifest, region: Region) -> Iterator[tuple[Shape, Region]]:
    """The index of each chunk that a region touches, and the part of the region that lies in that chunk."""
    counts = covering_chunks(region, manifest.spec.shape, manifest.chunk_shape)
    for chunk in chunk_regions(counts.shape, manifest.chunk_shape) if region.size else ():
        starts = tuple(a + b for a, b in zip(counts.starts, chunk.starts, strict=True))
        stops = tuple(a + b for a, b in zip(counts.starts, chunk.stops, strict=True))
        part = Region(tuple(map(max, starts, region.starts)), tuple(map(min, stops, region.stops)))
        yield tuple(start // length for start, length in zip(starts, manifest.chunk_shape, strict=True)), part


def _part_of_chunk(
    manifest: Manifest, index: Shape, part: Region, listed: Mapping[str, FileStat]
) -> np.ndarray:
    """The elements of a region that lies in one raw chunk."""
    stored, chunk = manifest.chunks[index], ArraySpec(manifest.chunk_shape, manifest.spec.dtype)
    origin = tuple(i * length for i, length in zip(index, manifest.chunk_shape, strict=True))
    inner = part.within(Region(origin, origin))
    wanted = Region(tuple(cut.start for cut in inner), tuple(cut.stop for cut in inner))
    if stored.inline is not None:
        laid, box = _as_stored(chunk, manifest.codec, wanted)
        whole = np.frombuffer(stored.inline, laid.dtype, laid.size, stored.offset)
        return _in_memory(whole.reshape(laid.shape)[box.slices], chunk.dtype, manifest.codec)
    with opened(stored.file, listed.get(stored.file)) as file:
        return read_elements(file, stored.offset, chunk, manifest.codec, wanted)


def read_elements(file: Readable, offset: int, spec: ArraySpec, codec: Codec, region: Region) -> np.ndarray:
    """A region of an array that begins at `offset` as plain bytes, in any order of axes and of bytes.

    Reads forwards only. Raises SourceError where bytes are missing, or booleans are neither 0 nor 1.
    """
    laid, box = _as_stored(spec, codec, region)
    return _in_memory(read_region(file, offset, laid, box), spec.dtype, codec)


def _as_stored(spec: ArraySpec, codec: Codec, region: Region) -> tuple[ArraySpec, Region]:
    """An array and a region of it with the axes in the order in which they are stored."""
    order = codec.permutation
    shape = tuple(spec.shape[axis] for axis in order)
    starts, stops = tuple(region.starts[axis] for axis in order), tuple(region.stops[axis] for axis in order)
    return ArraySpec(shape, stored_dtype(spec.dtype)), Region(starts, stops)


def _in_memory(stored: np.ndarray, dtype: np.dtype[Any], codec: Codec) -> np.ndarray:
    """Elements in this machine's byte order and with their axes in order."""
    block = _swapped(stored) if codec.encoding == BIG else stored
    return checked(block, dtype).transpose(np.argsort(codec.permutation))


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype to read elements with: bytes for booleans, since not every byte is a boolean."""
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def checked(block: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Elements read with `stored_dtype`, as `dtype`. Raises SourceError for bytes that are not booleans."""
    if dtype == np.bool_ and block.size and block.max() > 1:
        raise SourceError(f"one of its booleans has the byte {block.max()}", hint=DAMAGED)
    return block.view(dtype)


def _swapped(block: np.ndarray) -> np.ndarray:
    """Elements in the other byte order. Types of ml_dtypes cannot express that, so their bits are swapped."""
    if block.dtype.kind == "c":
        return block.view(block.dtype.newbyteorder()).astype(block.dtype)
    return block.view(f"u{block.dtype.itemsize}").byteswap().view(block.dtype)
