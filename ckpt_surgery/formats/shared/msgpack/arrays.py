"""Arrays of a MessagePack document as manifests, and reading those that no regular grid describes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.formats.shared.msgpack.nodes import ArrayAt
from ckpt_surgery.formats.shared.raw_arrays import contiguous, read_raw
from ckpt_surgery.storage.listing import FileStat

MOST_CHUNKS = 4096
"""Largest number of chunks of a grid; finer grids are not useful."""


def manifest_of(array: ArrayAt, file: str) -> Manifest | None:
    """The manifest of an array; `file`: path of the document.

    Pieces are cut further where that gives a regular grid. None where only a very fine grid would fit: such
    an array is read by `read_pieces`.
    """
    if len(array.pieces) == 1 or not array.spec.size:
        return contiguous(array.spec, file, array.pieces[0].offset)
    grid = _grid(array)
    if grid is None:
        return None
    step = prod(grid) * array.spec.dtype.itemsize
    starts = (
        offset for piece in array.pieces for offset in range(piece.offset, piece.offset + piece.length, step)
    )
    indices = np.ndindex(*grid_counts(array.spec.shape, grid))
    chunks = {index: Chunk(file, start, step) for index, start in zip(indices, starts, strict=True)}
    return Manifest(array.spec, grid, raw_codec(array.spec.ndim), chunks)


def _grid(array: ArrayAt) -> Shape | None:
    """The largest chunk shape with which each chunk lies in one piece and divides the array."""
    shape, itemsize = array.spec.shape, array.spec.dtype.itemsize
    together = gcd(*(piece.length // itemsize for piece in array.pieces))
    for axis in range(len(shape)):
        row = prod(shape[axis + 1 :])
        if together % row == 0:
            grid = (*(1,) * axis, gcd(together // row, shape[axis]), *shape[axis + 1 :])
            return grid if prod(grid_counts(shape, grid)) <= MOST_CHUNKS else None
    return None


@dataclass(frozen=True)
class BoxOverlap:
    """The elements that a region shares with a contiguous box of a piece."""

    place: tuple[slice, ...]
    """Where these elements are in the region."""
    box: ArraySpec
    """Shape and dtype of the box."""
    inner: Region
    """Where these elements are in the box."""
    offset: int
    """Offset of the box's first byte in the file."""


def parts_of(array: ArrayAt, region: Region) -> Iterator[BoxOverlap]:
    """A region of an array in pieces, divided by the pieces that it lies in: disjoint, and complete."""
    itemsize = array.spec.dtype.itemsize
    first = 0
    for piece in array.pieces:
        count, offset = piece.length // itemsize, piece.offset
        for box in _boxes(array.spec.shape, first, first + count):
            starts = tuple(map(max, box.starts, region.starts))
            stops = tuple(map(min, box.stops, region.stops))
            if all(a < b for a, b in zip(starts, stops, strict=True)):
                part = Region(starts, stops)
                spec = ArraySpec(box.shape, array.spec.dtype)
                yield BoxOverlap(part.within(region), spec, _relative(part, box), offset)
            offset += box.size * itemsize
        first += count


def read_pieces(array: ArrayAt, file: str, region: Region, listed: Mapping[str, FileStat]) -> np.ndarray:
    """A region of an array in pieces; reads only the bytes it needs.

    `file`: path of the document. `listed`: size and time of files when they were listed, by path.
    Raises SourceError as `read_raw` does.
    """
    block: np.ndarray = np.empty(region.shape, array.spec.dtype)
    for part in parts_of(array, region):
        block[part.place] = read_raw(contiguous(part.box, file, part.offset), part.inner, listed)
    return block


def _relative(part: Region, box: Region) -> Region:
    """The same elements, counted from the beginning of the box."""
    inner = part.within(box)
    return Region(tuple(s.start for s in inner), tuple(s.stop for s in inner))


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
