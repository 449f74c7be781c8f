"""Arrays by description: shapes, regions, chunk grids, and where stored bytes lie. Integers only, no I/O.

A checkpoint is a mapping of leaves; a leaf that has an array has a `Manifest`, which says for each
chunk where its bytes are. `Source` and `Sink` are what a format has to offer to the engine.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ckpt_surgery.core.frozen import frozen

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
