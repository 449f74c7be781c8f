"""Small values over all elements of an array, computed in a stream of blocks.

The blocks are cells of a grid that follows from the array's shape alone, and what is found in them is put
together in an order, or in a way, that depends on nothing else. So the value is the same, bit for bit,
however the array is stored, read and divided among threads and processes, and in whatever memory.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grid_counts, ravelled
from ckpt_surgery.core.tiles import to_c_order

BLOCK = 1 << 16
"""Elements of a block at most, so that its copy in float64 stays in the processor's cache."""
ROW = 1 << 8
"""Elements of a block along the last axis, where others are long enough to fill it. Blocks are as high as
wide, so that what is read at once can be tall or wide, as the chunks of a source are."""

T = TypeVar("T")
"""Result for each block, and its joining."""


class Pass:
    """One pass over all blocks of an array. `note` is called by one thread at a time, `seen` by several."""

    def seen(self, block: np.ndarray, region: Region) -> Any:
        """Reduce one block: its elements as a contiguous vector in C order, and their region.

        Changes nothing. Raises DataError for values that have no result.
        """
        raise NotImplementedError

    def note(self, number: int, seen: Any) -> None:
        """Take in what the block with this number in C order told. The order of the calls must not matter."""
        raise NotImplementedError

    def finish(self) -> "Pass | np.ndarray":
        """The result once all blocks were noted, or another pass over the same array. Raises DataError."""
        raise NotImplementedError


class Folded(Pass, Generic[T]):
    """A pass that finds a value for each block, and joins these in the order of the blocks."""

    def __init__(
        self,
        value: Callable[[np.ndarray], T],
        join: Callable[[T, T], T],
        result: Callable[[T | None], Pass | np.ndarray],
    ):
        """`value` is that of a block's elements, and `join` that of two runs of blocks.

        `result` is given the value of all blocks, or None where there are no elements; it may be a pass.
        """
        self._value, self._join, self._result = value, join, result
        self._found: dict[int, T] = {}

    def seen(self, block: np.ndarray, region: Region) -> T:
        with np.errstate(all="ignore"):
            return self._value(block)

    def note(self, number: int, seen: T) -> None:
        self._found[number] = seen

    def finish(self) -> Pass | np.ndarray:
        ordered = [self._found[number] for number in sorted(self._found)]
        with np.errstate(all="ignore"):
            return self._result(functools.reduce(self._join, ordered) if ordered else None)


def block_shape(shape: Shape) -> Shape:
    """The shape of the blocks of an array of this shape: at most BLOCK elements, ROW along the last axis.

    The last axis is longer where the others are too short to fill a block. Lengths are powers of two, like
    those of most chunks, or whole axes.
    """
    lengths: list[int] = []
    room = BLOCK
    for length in reversed(shape):
        most = room if lengths else min(room, ROW)
        lengths.append(max(1, min(length, _power_of_two(most))))
        room //= lengths[-1]
    if shape:
        lengths[0] = max(1, min(shape[-1], lengths[0] * _power_of_two(room)))
    return tuple(lengths[::-1])


def _power_of_two(most: int) -> int:
    return 1 << (max(1, most).bit_length() - 1)


def blocks_of(block: np.ndarray, region: Region, shape: Shape) -> Iterator[tuple[int, Region, np.ndarray]]:
    """The blocks of a region made of whole ones: the number of each, its region, and its elements in C order.

    `block` holds the elements of `region`, of an array of this `shape`.
    """
    lengths = block_shape(shape)
    counts = grid_counts(shape, lengths)
    for cell in chunk_regions(region.shape, lengths):
        moved = cell.moved(region.starts)
        number = ravelled(map(operator.floordiv, moved.starts, lengths), counts)
        elements = np.ascontiguousarray(to_c_order(cell.taken_from(block)))
        yield number, moved, elements.reshape(-1)


def streamed(first: Pass, array: np.ndarray) -> np.ndarray:
    """The result of the passes over an array that is in memory. Raises DataError."""
    state: Pass | np.ndarray = first
    while isinstance(state, Pass):
        for number, region, elements in blocks_of(array, Region.whole(array.shape), array.shape):
            state.note(number, state.seen(elements, region))
        state = state.finish()
    return state


def seeing_bytes(shape: Shape, itemsize: int) -> int:
    """Upper bound of the bytes that `Pass.seen` of one block takes, with a copy of the block in C order."""
    size = math.prod(min(n, length) for n, length in zip(shape, block_shape(shape), strict=True))
    return size * (itemsize + 3 * 16)
