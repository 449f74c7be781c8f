"""Arrays that are stored in boxes of any shapes, each in its own way, which hold every element once."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.formats.chunk_reading import NO_CHECKS, Check, read_stored
from ckpt_surgery.formats.registry import Reader
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.listing import FileStat

MOST_SPLIT_AXES = 6
"""Limit on the axes along which an array is split: each doubles the number of corners."""
MOST_CORNERS = 2**22
"""Limit on the corners of all boxes of an array."""


@dataclass(frozen=True, slots=True)
class Box:
    """A region of an array, and what reading it takes."""

    region: Region
    stored: Manifest | Reader
    """Describes or reads an array that is this region alone."""


@dataclass(frozen=True)
class Boxes:
    """Reads an array in boxes that hold each of its elements exactly once."""

    spec: ArraySpec
    boxes: Sequence[Box]
    checks: Mapping[Chunk, Check] = field(default_factory=lambda: NO_CHECKS)
    """Checksums of chunks of the manifests."""

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """First indices of the boxes, and those behind the last, as int64[boxes, axes]."""
        shape = (len(self.boxes), self.spec.ndim)
        starts = np.array([box.region.starts for box in self.boxes], np.int64).reshape(shape)
        return starts, np.array([box.region.stops for box in self.boxes], np.int64).reshape(shape)

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region, in C order."""
        block: np.ndarray = np.empty(region.shape, self.spec.dtype)
        starts, stops = self._bounds
        touched = ((starts < region.stops) & (stops > region.starts)).all(axis=1)
        for number in np.flatnonzero(touched).tolist() if block.size else ():
            box = self.boxes[number]
            common = box.region.common(region)
            assert common is not None
            inner = common.relative_to(box.region.starts)
            if isinstance(box.stored, Manifest):
                elements = read_stored(box.stored, inner, files, checks=self.checks)
            else:
                elements = box.stored.read(inner, files)
            if common == region:
                return elements
            block[common.within(region)] = elements
        return block


def on_grid(spec: ArraySpec, boxes: Sequence[Box]) -> Manifest | None:
    """The manifest of an array in boxes, which tile it; None where they differ in shape or layout."""
    first, chunks = boxes[0].stored, dict[Shape, Chunk]()
    for box in boxes:
        stored = box.stored
        if not isinstance(first, Manifest) or not isinstance(stored, Manifest):
            return None
        if (stored.spec, stored.codec) != (first.spec, first.codec):
            return None
        index = tuple(a // n for a, n in zip(box.region.starts, first.chunk_shape, strict=True))
        for chunk in stored.chunks.values():  # none or one
            chunks[index] = chunk
    assert isinstance(first, Manifest)
    return Manifest(spec, first.chunk_shape, first.codec, chunks)


def check_tiling(shape: Shape, boxes: Sequence[Region]) -> None:
    """Raise SourceError unless every element of an array is in exactly one box, with the first that is not.

    No box is empty, and all lie within the array. Count each corner of each box, +1 where an even number of
    its coordinates are stops and -1 where an odd number are. Summed over all corners that are nowhere beyond
    an index, the counts give the number of boxes that hold the element at that index. So the boxes fill the
    array exactly if their counts add up to those of the array itself, which takes time in proportion to their
    number.
    """
    axes = [axis for axis, n in enumerate(shape) if any(box.shape[axis] != n for box in boxes)]
    if len(axes) > MOST_SPLIT_AXES or len(boxes) << len(axes) > MOST_CORNERS:
        what = f"is split into {len(boxes)} chunks along {len(axes)} axes, which are too many to check"
        raise damaged(what)
    left: dict[Shape, int] = defaultdict(int)
    for sign, box in [(1, Region.whole(shape)), *((-1, box) for box in boxes)]:
        for corner in itertools.product(*(((box.starts[a], 1), (box.stops[a], -1)) for a in axes)):
            count = sign
            for _, factor in corner:
                count *= factor
            left[tuple(place for place, _ in corner)] += count
    unequal = min((corner for corner, count in left.items() if count), default=None)
    if unequal is not None:
        index = dict(zip(axes, unequal, strict=True))
        element = tuple(index.get(axis, 0) for axis in range(len(shape)))
        cell = Region(element, tuple(i + 1 for i in element))
        holding = [
            f"{list(box.shape)} at {list(box.starts)}" for box in boxes if box.common(cell) is not None
        ]
        which = f": those of {' and '.join(holding[:2])}" if holding else ""
        how_many = f"{len(holding)} chunks have" if holding else "no chunk has"
        raise damaged(f"{how_many} the element {list(element)} of {list(shape)}{which}")
