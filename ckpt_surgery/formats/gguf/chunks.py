"""The chunks of arrays of blocks: whole blocks, one after another in the file."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ckpt_surgery.core.arrays import Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk

CHUNK = 2**21
"""Elements of a chunk at most: arrays are planned and read in pieces of 8 MiB."""


def grid_of(shape: Shape, length: int) -> Shape:
    """A chunk shape whose chunks are whole blocks, one after another in the file, of CHUNK elements at most.

    `length`: elements of a block, which divides the last axis.
    """
    grid, room = [1] * len(shape), CHUNK
    for axis in reversed(range(len(shape))):
        unit = length if axis == len(shape) - 1 else 1
        whole = max(1, shape[axis])
        grid[axis] = whole if whole <= room else max(unit, room // unit * unit)
        if grid[axis] < whole:
            break
        room //= whole
    return tuple(grid)


@dataclass(frozen=True, eq=False)
class BlockChunks(Mapping[Shape, Chunk]):
    """The chunks of an array by their indices, each made when it is asked for: there can be very many."""

    file: str
    offset: int
    """Offset of the array's first byte."""
    shape: Shape
    """Shape of the array."""
    grid: Shape
    """Shape of the chunks, by `grid_of`."""
    length: int
    """Number of elements of a block."""
    nbytes: int
    """Number of bytes of a block."""

    @property
    def counts(self) -> Shape:
        """The number of chunks along each axis."""
        return grid_counts(self.shape, self.grid)

    def __len__(self) -> int:
        return prod(self.counts)

    def __iter__(self) -> Iterator[Shape]:
        return itertools.product(*map(range, self.counts))

    def __getitem__(self, index: Shape) -> Chunk:
        if len(index) != len(self.shape) or any(
            not 0 <= i < count for i, count in zip(index, self.counts, strict=True)
        ):
            raise KeyError(index)
        begin, size = 0, 1
        for i, chunk, whole in zip(index, self.grid, self.shape, strict=True):
            begin = begin * whole + i * chunk
            size *= min(chunk, whole - i * chunk)
        at = self.offset + begin // self.length * self.nbytes
        return Chunk(self.file, at, size // self.length * self.nbytes)
