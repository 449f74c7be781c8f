"""Tensors as views of a storage: which are one dense block, and reading those that are not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.formats.chunk_reading import checked, stored_dtype
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import SPAN_BYTES, Readable, opened


@dataclass(frozen=True, slots=True)
class View:
    """Reads an array that is not a dense block: a part of one, or with repetitions."""

    file: str
    """Path of the file."""
    offset: int
    """Offset of the first element in the file, in bytes."""
    strides: Shape
    """Bytes from an element to the next along each axis; 0 where an axis repeats the same elements."""
    dtype: np.dtype[Any]

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region, in C order. Memory: the region, and at most SPAN_BYTES besides.

        Raises SourceError where bytes are missing, or booleans are neither 0 nor 1.
        """
        block = np.empty(region.shape, stored_dtype(self.dtype))
        if block.size:
            start = sum(a * stride for a, stride in zip(region.starts, self.strides, strict=True))
            with opened(self.file, files.get(self.file)) as file:
                _fill(file, self.offset + start, self.strides, block)
        return checked(block, self.dtype)


def dense_order(shape: Shape, strides: Sequence[int]) -> Shape | None:
    """The axes from the outermost to the innermost if the elements fill one block in that order.

    C order where it fits, because axes of length 1 fit anywhere. None where there are gaps or repetitions.
    `strides` count elements.
    """
    axes = tuple(range(len(shape)))
    nested = tuple(sorted(axes, key=lambda axis: (shape[axis] > 1, -strides[axis] * (shape[axis] > 1))))
    return next((order for order in (axes, nested) if _fills(shape, strides, order)), None)


def _fills(shape: Shape, strides: Sequence[int], order: Shape) -> bool:
    """Whether each axis steps over exactly the elements within it; always true without elements."""
    step = 1
    for axis in reversed(order):
        if shape[axis] > 1 and strides[axis] != step and 0 not in shape:
            return False
        step *= shape[axis]
    return True


def _fill(file: Readable, start: int, strides: Shape, out: np.ndarray) -> None:
    """Read the elements at `start` + index · strides into `out`, which is not empty.

    In one call with the gaps between them where that is short enough, else in two halves of the axis that
    spans the most bytes.
    """
    reaches = [(n - 1) * stride for n, stride in zip(out.shape, strides, strict=True)]
    span = sum(reaches) + out.itemsize
    if span <= SPAN_BYTES:
        scratch = np.empty(span, np.uint8)
        file.read_into(start, scratch.data)
        out[...] = np.ndarray(out.shape, out.dtype, scratch.data, 0, strides)
        return
    axis = reaches.index(max(reaches))
    middle, before = out.shape[axis] // 2, (slice(None),) * axis
    _fill(file, start, strides, out[(*before, slice(middle))])
    _fill(file, start + middle * strides[axis], strides, out[(*before, slice(middle, None))])
