"""The nodes of a MessagePack document as Flax writes them: values, and arrays by their places in the file.

Arrays become manifests; those that no regular grid describes are read by their pieces.
"""

from dataclasses import dataclass
from math import gcd, prod
from typing import TypeAlias

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk, Manifest, contiguous, raw_codec
from ckpt_surgery.formats.shared.boxes import Box, Boxes
from ckpt_surgery.storage.regions import overlaps

CHUNKED = "__msgpack_chunked_array__"
"""Key that marks a map as an array in pieces."""
ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Numbers of Flax's extension types: an array, a complex number, a NumPy scalar."""
MOST_CHUNKS = 4096
"""Largest number of chunks of a grid; finer grids are not useful."""


@dataclass(frozen=True, slots=True)
class BytesAt:
    """A byte string, by its place in the file."""

    offset: int
    """Offset from the beginning of the file."""
    length: int


@dataclass(frozen=True, slots=True)
class ArrayAt:
    """An array, and where its elements are."""

    spec: ArraySpec
    pieces: tuple[BytesAt, ...]
    """The pieces of the array in C order, each of whole elements; one unless Flax cut the array."""
    scalar: bool = False
    """Whether it was a NumPy scalar, not an array without axes."""


Plain: TypeAlias = str | bool | int | float | complex | None

Node: TypeAlias = "dict[str | int, Node] | list[Node] | ArrayAt | BytesAt | Plain"


# --- arrays -----------------------------------------------------------------------------------------------


def manifest_of(array: ArrayAt, file: str) -> Manifest | None:
    """The manifest of an array; `file`: path of the document.

    Pieces are cut further where that gives a regular grid. None where only a very fine grid would fit: such
    an array is read by `boxes_of`.
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


def boxes_of(array: ArrayAt, file: str) -> Boxes:
    """Reader of an array whose pieces form no regular grid of chunks."""
    ranges = [(piece.offset, piece.length) for piece in array.pieces]
    shape = array.spec.shape
    return Boxes(
        array.spec,
        [
            Box(Region.of_slices(part.place, shape), contiguous(part.box, file, part.offset))
            for part in overlaps(array.spec, ranges, Region.whole(shape))
        ],
    )
