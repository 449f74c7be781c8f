"""Arrays of a MessagePack document as manifests, and reading those that Flax cut where no grid fits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.formats.shared.msgpack_nodes import ArrayAt
from ckpt_surgery.formats.shared.raw_arrays import read_raw, stretch
from ckpt_surgery.storage.listing import FileStat

MOST_CHUNKS = 4096
"""Finer grids than that are not worth having."""


def manifest_of(array: ArrayAt, file: str) -> Manifest | None:
    """Where the bytes of an array are; `file`: the document's path.

    Pieces are cut further, so that a regular grid comes out. None where only a very fine one would do:
    such an array is for `read_pieces`.
    """
    if len(array.pieces) == 1 or not array.spec.size:
        return stretch(array.spec, file, array.pieces[0].offset)
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
    """The coarsest chunks that lie in one piece each, and of which the array has whole ones only."""
    shape, itemsize = array.spec.shape, array.spec.dtype.itemsize
    together = gcd(*(piece.length // itemsize for piece in array.pieces))
    for axis in range(len(shape)):
        row = prod(shape[axis + 1 :])
        if together % row == 0:
            grid = (*(1,) * axis, gcd(together // row, shape[axis]), *shape[axis + 1 :])
            return grid if prod(grid_counts(shape, grid)) <= MOST_CHUNKS else None
    return None


@dataclass(frozen=True)
class Part:
    """What a region and a contiguous box of a piece have in common."""

    place: tuple[slice, ...]
    """In the region."""
    box: ArraySpec
    """Of the box."""
    inner: Region
    """In the box."""
    offset: int
    """Of the box's first byte in the file."""


def parts_of(array: ArrayAt, region: Region) -> Iterator[Part]:
    """A region of an array in pieces, by what lies in each: disjoint, and all of it."""
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
                yield Part(part.within(region), spec, _relative(part, box), offset)
            offset += box.size * itemsize
        first += count


def read_pieces(array: ArrayAt, file: str, region: Region, listed: Mapping[str, FileStat]) -> np.ndarray:
    """A region of an array in pieces: only what it needs of each.

    `file`: the document's path. `listed`: what the files were like when they were listed, by their paths.
    Raises SourceError as `read_raw` does.
    """
    block: np.ndarray = np.empty(region.shape, array.spec.dtype)
    for part in parts_of(array, region):
        block[part.place] = read_raw(stretch(part.box, file, part.offset), part.inner, listed)
    return block


def _relative(part: Region, box: Region) -> Region:
    """The same elements, counted from where the box begins."""
    inner = part.within(box)
    return Region(tuple(s.start for s in inner), tuple(s.stop for s in inner))


def _boxes(shape: Shape, start: int, stop: int) -> Iterator[Region]:
    """The elements from `start` to `stop` in C order as boxes, each of them contiguous, one after another.

    At most two for each axis, less one.
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
    """The same within one step of the first axis."""
    row = prod(shape[1:])
    index = start // row
    for box in _boxes(shape[1:], start - index * row, stop - index * row):
        yield Region((index, *box.starts), (index + 1, *box.stops))
