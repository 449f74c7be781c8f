"""Checkpoints whose arrays are stretches of bytes in files: raw elements, at an offset.

What most formats but zarr's come to once their headers are read. Such a format lists its leaves with
manifests of raw chunks and the files that they lie in; reading them is the same for all.
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
from ckpt_surgery.storage.listing import DAMAGED, FileStat, digest, named, relative
from ckpt_surgery.storage.reading import Readable, opened, read_region, stat_file

BIG = encoding_of([bytes_codec("big")])
"""The encoding of chunks whose elements are big endian."""


def stretch(
    spec: ArraySpec, file: str, offset: int, codec: Codec | None = None, length: int | None = None
) -> Manifest:
    """Of an array that lies in one piece of a file, by default raw in C order, and as long as in memory."""
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
    """Why an array is listed, but of no use to any function; and its elements, for comparison."""

    why: str
    """A predicate: `is an array of dates`."""
    hint: str
    stored: Manifest | None = None
    """Of untyped bytes; None where they cannot be had from the file as they are."""
    dtype: np.dtype[Any] | None = None
    """What these bytes are."""

    def refused(self, leaf: Leaf) -> SourceError:
        """What to raise where it is to be read."""
        return named(leaf.key, SourceError(f"it {self.why}", hint=self.hint))

    def typed(self, block: np.ndarray, listed: np.dtype[Any]) -> np.ndarray:
        """Untyped bytes as the type that the array is listed with."""
        assert self.dtype is not None
        found: np.ndarray = block.view(self.dtype).astype(listed)
        return found


class StretchesSource:
    """A checkpoint of stretches, opened for reading. Safe to use from several threads."""

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
        """Every file that the checkpoint consists of, by its path, as it was when it was listed."""
        self._opaque = opaque or {}
        """By key text."""

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's own order."""
        return self._leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        opaque = self._opaque.get(leaf.key.text)
        if opaque is not None:
            raise opaque.refused(leaf)
        assert leaf.manifest is not None
        return self._read(leaf, leaf.manifest, region)

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of an array that no function can use. Raises SourceError where they cannot be had."""
        opaque = self._opaque.get(leaf.key.text)
        if opaque is None or opaque.stored is None or leaf.spec is None:
            return self.read(leaf, region)  # which tells why it cannot be had
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
        """Of the files: names, sizes, modification times. Raises SourceError where one is gone."""
        return digest(relative({path: stat_file(path) for path in self._files}))


def read_raw(manifest: Manifest, region: Region, listed: Mapping[str, FileStat] | None = None) -> np.ndarray:
    """A region of an array whose chunks are plain bytes of either byte order: only what it needs of each.

    `listed`: what the files were like when they were listed, by their paths. Raises SourceError where bytes
    are missing, files have changed, or booleans are neither 0 nor 1.
    """
    counts = covering_chunks(region, manifest.spec.shape, manifest.chunk_shape)
    block: np.ndarray = np.empty(region.shape, manifest.spec.dtype)
    for chunk in chunk_regions(counts.shape, manifest.chunk_shape) if region.size else ():
        starts = tuple(a + b for a, b in zip(counts.starts, chunk.starts, strict=True))
        stops = tuple(a + b for a, b in zip(counts.starts, chunk.stops, strict=True))
        part = Region(tuple(map(max, starts, region.starts)), tuple(map(min, stops, region.stops)))
        index = tuple(start // length for start, length in zip(starts, manifest.chunk_shape, strict=True))
        block[part.within(region)] = _part_of_chunk(manifest, index, part, listed or {})
    return block


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
    """Booleans as the bytes that they are: not each of them is one."""
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def checked(block: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype == np.bool_ and block.size and block.max() > 1:
        raise SourceError(f"one of its booleans has the byte {block.max()}", hint=DAMAGED)
    return block.view(dtype)


def _swapped(block: np.ndarray) -> np.ndarray:
    """The other byte order; ml_dtypes' types have but one, so their bits are swapped."""
    if block.dtype.kind == "c":
        return block.view(block.dtype.newbyteorder()).astype(block.dtype)
    return block.view(f"u{block.dtype.itemsize}").byteswap().view(block.dtype)
