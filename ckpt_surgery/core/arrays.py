"""Descriptions of arrays without their data: shape and dtype, regions, and chunk grids."""

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.frozen import frozen

Shape = tuple[int, ...]
"""Lengths of the axes of an array; also an index, or a position in a grid of chunks."""


@frozen()
class ArraySpec:
    """Shape and dtype of an array. The dtype is one of NumPy's or of ml_dtypes'."""

    shape: Shape
    """Length of each axis; empty for a scalar."""
    dtype: np.dtype[Any]
    """One of NumPy's dtypes, or of ml_dtypes'."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory: number of elements × item size."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@frozen()
class Region:
    """A box of elements: all indices with `starts[i] <= index[i] < stops[i]` along every axis `i`."""

    starts: Shape
    """First index along each axis."""
    stops: Shape
    """Index behind the last one, along each axis."""

    @staticmethod
    def whole(shape: Shape) -> "Region":
        """The region that is all of an array of this shape."""
        return Region((0,) * len(shape), tuple(shape))

    @staticmethod
    def of_slices(index: Sequence[slice], shape: Shape) -> "Region":
        """The region that slices without steps cut out of an array; axes that they do not name are whole."""
        missing = [slice(None)] * (len(shape) - len(index))
        bounds = [cut.indices(length) for cut, length in zip([*index, *missing], shape, strict=True)]
        return Region(tuple(start for start, _, _ in bounds), tuple(stop for _, stop, _ in bounds))

    @staticmethod
    def around(regions: "Sequence[Region]") -> "Region":
        """The smallest region that contains all of these."""
        starts = zip(*(region.starts for region in regions), strict=True)
        stops = zip(*(region.stops for region in regions), strict=True)
        return Region(tuple(map(min, starts)), tuple(map(max, stops)))

    @property
    def shape(self) -> Shape:
        """Lengths of the axes of an array that holds just this region."""
        return tuple(stop - start for start, stop in zip(self.starts, self.stops, strict=True))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slices of the region in the whole array: `array[region.slices]`."""
        return tuple(slice(start, stop) for start, stop in zip(self.starts, self.stops, strict=True))

    def within(self, outer: "Region") -> tuple[slice, ...]:
        """The slices that cut this region out of an array that holds the region `outer`."""
        return tuple(
            slice(a - o, b - o) for a, b, o in zip(self.starts, self.stops, outer.starts, strict=True)
        )

    def taken_from(self, block: np.ndarray, outer: "Region | None" = None) -> np.ndarray:
        """A view of these elements of an array, or of one that holds the region `outer`.

        It is an array even where there are no axes.
        """
        index: tuple[Any, ...] = (..., *(self.slices if outer is None else self.within(outer)))
        view: np.ndarray = block[index]
        return view

    def relative_to(self, origin: Shape) -> "Region":
        """The same elements, counted from an index on: from the beginning of a chunk, for example."""
        return self.moved(tuple(-n for n in origin))

    def moved(self, by: Shape) -> "Region":
        """The region shifted by this many indices along each axis."""
        starts = tuple(start + n for start, n in zip(self.starts, by, strict=True))
        return Region(starts, tuple(stop + n for stop, n in zip(self.stops, by, strict=True)))

    def common(self, other: "Region") -> "Region | None":
        """The elements that both regions have; None where there are none."""
        starts = tuple(map(max, zip(self.starts, other.starts, strict=True)))
        stops = tuple(map(min, zip(self.stops, other.stops, strict=True)))
        if any(start >= stop for start, stop in zip(starts, stops, strict=True)):
            return None
        return Region(starts, stops)


def grid_counts(shape: Shape, chunks: Shape) -> Shape:
    """The number of chunks along each axis; an axis of length 0 has none."""
    return tuple([-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)])


def grown(start: Shape, shape: Shape, most: int, first: Container[int] = ()) -> Shape:
    """The block `start` of an array repeated along one axis after the other, up to `most` elements.

    The last axes come first, but those in `first` before all others. The block is cut where the array ends.
    """
    block = list(start)
    for axis in sorted(range(len(shape)), key=lambda axis: (axis not in first, -axis)):
        repeated = most // math.prod(block) * block[axis]
        block[axis] = max(block[axis], min(shape[axis], repeated))
    return tuple(block)


def ravelled(index: Iterable[Any], shape: Shape) -> Any:
    """The number in C order of the element at an index; of several, where the index has an array for each
    axis."""
    flat = 0
    for i, length in zip(index, shape, strict=True):
        flat = flat * length + i
    return flat


def unravelled(flat: int, shape: Shape) -> Shape:
    """The index of the element with this number in C order."""
    index: Shape = ()
    for length in reversed(shape):
        flat, i = divmod(flat, length)
        index = (i, *index)
    return index


def chunk_regions(shape: Shape, chunks: Shape) -> Iterator[Region]:
    """The regions of a chunk grid in C order. Disjoint; their union is the whole array."""
    for index in itertools.product(*map(range, grid_counts(shape, chunks))):
        starts = tuple(i * chunk for i, chunk in zip(index, chunks, strict=True))
        yield Region(starts, tuple(min(s + c, n) for s, c, n in zip(starts, chunks, shape, strict=True)))


def covering_chunks(region: Region, shape: Shape, chunks: Shape) -> Region:
    """The smallest region of whole chunks that contains `region`: the elements that reading it decodes."""
    starts = tuple(a // c * c for a, c in zip(region.starts, chunks, strict=True))
    stops = tuple(min(-(-b // c) * c, n) for b, c, n in zip(region.stops, chunks, shape, strict=True))
    return Region(starts, stops)
