"""Arrays whose place in a file is known before they are written.

They are written in regions, in any order, from several threads and processes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import opened, read_region, write_region

Pieces: TypeAlias = Sequence[tuple[int, bytes | bytearray]]
"""Bytes of a file, with their offsets."""


@frozen()
class PlacedArray:
    """Place of an array's bytes in a file that has its full size.

    They are its elements, little endian and in C order, unless `encode` and `decode` say otherwise.
    """

    spec: ArraySpec
    ranges: tuple[tuple[int, int], ...]
    """Ranges of the file that the bytes fill in order: offsets and lengths in bytes, of whole elements."""
    encode: Callable[[np.ndarray], bytes] | None = None
    """Makes all its bytes from all its elements. It is written and read whole."""
    decode: Callable[[bytes], np.ndarray] | None = None
    """Inverse of `encode`."""

    def moved(self, by: int) -> "PlacedArray":
        """The array in a file in which this one begins at the offset `by`."""
        ranges = tuple([(offset + by, length) for offset, length in self.ranges])
        return PlacedArray(self.spec, ranges, self.encode, self.decode)

    def write(self, path: Path, region: Region, block: np.ndarray) -> None:
        """Write the elements of a region of any form."""
        assert (block.dtype, block.shape) == (self.spec.dtype, region.shape)
        if self.encode is not None:
            data = np.frombuffer(self.encode(block), np.uint8)
            self._bytes.write(path, Region.whole(data.shape), data)
            return
        with storage_errors(path):
            # Opened for each block: many files do not exhaust the descriptors, and failures leave none open.
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                for part in overlaps(self.spec, self.ranges, region):
                    write_region(descriptor, part.offset, part.box, part.inner, block[part.place])
            finally:
                os.close(descriptor)

    def read(self, path: Path, region: Region) -> np.ndarray:
        """The elements of a region."""
        if self.decode is not None:
            stored = self._bytes
            return self.decode(stored.read(path, Region.whole(stored.spec.shape)).tobytes())
        with opened(os.fspath(path)) as file:
            if len(self.ranges) == 1:
                return read_region(file, self.ranges[0][0], self.spec, region)
            block = np.empty(region.shape, self.spec.dtype)
            for part in overlaps(self.spec, self.ranges, region):
                block[part.place] = read_region(file, part.offset, part.box, part.inner)
            return block

    def copy(self, path: Path, manifest: Manifest, known: Mapping[Shape, int]) -> dict[Shape, int]:
        """Copy the stored bytes of an array whose chunks `are_contiguous`; returns their checksums.

        `known`: those of chunks that an earlier process copied.
        """
        chunks = sorted(manifest.chunks.items(), key=itemgetter(0))
        places = _dealt([chunk.length for _, chunk in chunks], self.ranges)
        return {
            index: copy_chunk(chunk, path, at, known.get(index))
            for (index, chunk), at in zip(chunks, places, strict=True)
        }

    @property
    def _bytes(self) -> "PlacedArray":
        """The encoded bytes as an array."""
        spec = ArraySpec((sum(length for _, length in self.ranges),), np.dtype(np.uint8))
        return PlacedArray(spec, self.ranges)


def _dealt(lengths: Iterable[int], ranges: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    """The ranges that chunks of these lengths go to: their bytes fill `ranges`, both in order."""
    rest, (offset, room) = iter(ranges), (0, 0)
    for length in lengths:
        places: list[tuple[int, int]] = []
        while length:
            if not room:
                offset, room = next(rest)
            taken = min(length, room)
            places.append((offset, taken))
            length, offset, room = length - taken, offset + taken, room - taken
        yield places


def put_pieces(path: Path, pieces: Pieces, size: int | None = None) -> None:
    """Write bytes at their places in a file; what else is in it stays.

    `size`: make a file of so many bytes first. None: the file exists.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (0 if size is None else os.O_CREAT)
    with storage_errors(path), open(os.open(path, flags, 0o666), "r+b") as file:
        if size is not None:
            file.truncate(size)
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)


def are_contiguous(manifest: Manifest) -> bool:
    """Whether the chunks, one after another, are the array's elements in C order, not compressed.

    This is so only if the array is cut along at most one axis, and all axes before that one have length 1.
    """
    if not manifest.stores_values:
        return False
    shape = manifest.spec.shape
    cut = [axis for axis, (n, c) in enumerate(zip(shape, manifest.chunk_shape, strict=True)) if c < n]
    return not cut or (len(cut) == 1 and all(n == 1 for n in shape[: cut[0]]))


@frozen()
class BoxOverlap:
    """The elements that a region shares with a contiguous box of an array in several ranges of a file."""

    place: tuple[slice, ...]
    """Place of these elements in the region."""
    box: ArraySpec
    """Shape and dtype of the box."""
    inner: Region
    """Place of these elements in the box."""
    offset: int
    """Offset of the box's first byte in the file."""


def overlaps(spec: ArraySpec, ranges: Sequence[tuple[int, int]], region: Region) -> Iterator[BoxOverlap]:
    """A region of an array, divided by the ranges that it lies in: disjoint, and complete.

    `ranges`: offsets and lengths of what holds its elements in C order, whole elements each.
    """
    itemsize = spec.dtype.itemsize
    first = 0
    for offset, length in ranges:
        count = length // itemsize
        for box in _boxes(spec.shape, first, first + count):
            part = box.common(region)
            if part is not None:
                inner = part.relative_to(box.starts)
                yield BoxOverlap(part.within(region), ArraySpec(box.shape, spec.dtype), inner, offset)
            offset += box.size * itemsize
        first += count


def _boxes(shape: Shape, start: int, stop: int) -> Iterator[Region]:
    """The elements from `start` to `stop` in C order as contiguous boxes, one after another.

    At most 2 · axes − 1 of them.
    """
    if start >= stop:
        return
    if not shape:
        yield Region((), ())
        return
    row = prod(shape[1:])
    head = min(stop, -(-start // row) * row)
    tail = max(head, stop // row * row)
    yield from _in_row(shape, start, head)
    if head < tail:
        starts, stops = (head // row, *(0,) * (len(shape) - 1)), (tail // row, *shape[1:])
        yield Region(starts, stops)
    yield from _in_row(shape, tail, stop)


def _in_row(shape: Shape, start: int, stop: int) -> Iterator[Region]:
    """The boxes of an interval that lies within one step of the first axis."""
    row = prod(shape[1:])
    index = start // row
    for box in _boxes(shape[1:], start - index * row, stop - index * row):
        yield Region((index, *box.starts), (index + 1, *box.stops))
