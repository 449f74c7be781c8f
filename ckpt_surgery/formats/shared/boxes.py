"""Arrays that are stored in boxes of any shapes, each in its own way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.formats.chunk_reading import NO_CHECKS, Check, read_stored
from ckpt_surgery.formats.registry import Reader
from ckpt_surgery.storage.listing import FileStat


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
    """The manifest of an array in boxes; None where they differ in shape or layout.

    The boxes hold each element exactly once, so that those of one shape are a grid.
    """
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
