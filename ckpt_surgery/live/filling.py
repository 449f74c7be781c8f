"""Computes the regions of a leaf that this process holds, block by block, and hands on each that is full."""

import threading
from collections.abc import Sequence
from types import EllipsisType

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.tiles import copy_into
from ckpt_surgery.graph.checked import Evaluator
from ckpt_surgery.graph.costs import decoded_bytes, needed
from ckpt_surgery.graph.nodes import Node
from ckpt_surgery.live.results import Result


@frozen()
class Filled:
    """What a block brought."""

    elements: int
    regions: int
    """Number of regions that are full now."""
    overflowed: int
    """Number of elements that are not finite by permission (`allow_nonfinite`)."""


class Filling:
    """The buffers of a group of regions, while they are filled. Safe to use from several threads."""

    def __init__(self, value: Node, result: Result, regions: Sequence[Region]):
        self._value, self._result, self._regions = value, result, regions
        self._buffers = {region: result.buffer(region) for region in regions}
        self._missing = {region: region.size for region in regions}
        """Number of elements that are not there yet."""
        self._lock = threading.Lock()
        self._hand_on([(region, region) for region in regions if not region.size])

    def blocks(self, block: Shape) -> list[Region]:
        """The cells of a grid of blocks that the regions touch; none where they have no elements."""
        return [cell for cell in chunk_regions(self._value.spec.shape, block) if self._touched(cell)]

    def fill(self, block: Region, evaluator: Evaluator, pieces: Sequence[Shape]) -> Filled:
        """Compute what the regions need of one block. Returns how far that brings them.

        `pieces`: those of the value, for `Evaluator.compute`.

        Raises SurgeryError where values or files are bad.
        """
        parts = self._touched(block)
        overflowed = 0
        for box in self._boxes([part for _, part in parts]):
            computed = evaluator.compute(self._value, box, pieces)
            values = computed.block
            raise_if_cancelled()
            for region, part in parts:
                if (shared := part.common(box)) is not None:
                    copy_into(_cut(self._buffers[region], shared, region), _cut(values, shared, box))
                    if computed.overflowed is not None:
                        overflowed += int(np.count_nonzero(_cut(computed.overflowed, shared, box)))
        del values, computed
        return Filled(sum(part.size for _, part in parts), self._hand_on(parts), overflowed)

    def _touched(self, block: Region) -> list[tuple[Region, Region]]:
        """The regions that have elements in a block, each with what they have in common."""
        return [(region, part) for region in self._regions if (part := region.common(block)) is not None]

    def _boxes(self, parts: Sequence[Region]) -> Sequence[Region]:
        """What is evaluated at once: all parts together where they fill a box, or where that reads less."""
        box = Region.around(parts)
        if len(parts) == 1 or box.size == sum(part.size for part in parts):
            return [box]
        apart = sum(self._reading(part) for part in parts)
        return [box] if self._reading(box) < apart else parts

    def _reading(self, region: Region) -> int:
        return sum(decoded_bytes(one, wanted) for one, wanted in needed(self._value, region))

    def _hand_on(self, parts: Sequence[tuple[Region, Region]]) -> int:
        """Note that these parts of regions are there. Full regions become the result's: so many."""
        with self._lock:
            for region, part in parts:
                self._missing[region] -= part.size
            full = {region: self._buffers.pop(region) for region, _ in parts if not self._missing[region]}
        count = len(full)
        self._result.put(full)
        return count


def _cut(array: np.ndarray, part: Region, region: Region) -> np.ndarray:
    """A part of an array that holds `region`."""
    index: tuple[EllipsisType | slice, ...] = (..., *part.within(region))  # an array even of no axes
    return array[index]
