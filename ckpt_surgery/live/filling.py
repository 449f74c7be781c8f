"""Compute a leaf's regions in this process block by block, and hand on each once it is full."""

import threading
from collections.abc import Sequence

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.tiles import copy_into
from ckpt_surgery.functions.arrays import Node
from ckpt_surgery.graph.checked import Evaluator
from ckpt_surgery.graph.costs import decoded_bytes, needed
from ckpt_surgery.live.results import RestoredLeaf


@frozen()
class Filled:
    """Progress that one block made."""

    elements: int
    """Number of elements that were filled in."""
    regions: int
    """Number of regions that are full now."""
    overflowed: int
    """Number of non-finite elements that `allow_nonfinite` permits."""


class Filling:
    """Fills the buffers of a group of regions. Safe to use from several threads."""

    def __init__(self, value: Node, result: RestoredLeaf, regions: Sequence[Region]):
        self._value, self._result, self._regions = value, result, regions
        self._buffers = {region: result.buffer(region) for region in regions}
        self._missing = {region: region.size for region in regions}
        """Elements still missing, by region."""
        self._lock = threading.Lock()
        self._hand_on([(region, region) for region in regions if not region.size])

    def blocks(self, block: Shape) -> list[Region]:
        """Cells of a grid of blocks that the regions overlap; none if they have no elements."""
        return [cell for cell in chunk_regions(self._value.spec.shape, block) if self._overlaps(cell)]

    def fill(self, block: Region, evaluator: Evaluator, pieces: Sequence[Shape]) -> Filled:
        """Compute the elements of one block that the regions need.

        `pieces`: those of the value, for `Evaluator.compute`. Raises SurgeryError where values or files are
        bad.
        """
        parts = self._overlaps(block)
        overflowed = 0
        for box in self._evaluated_boxes([part for _, part in parts]):
            computed = evaluator.compute(self._value, box, pieces)
            values = computed.block
            raise_if_cancelled()
            for region, part in parts:
                if (shared := part.common(box)) is not None:
                    copy_into(
                        shared.taken_from(self._buffers[region], region), shared.taken_from(values, box)
                    )
                    if computed.overflowed is not None:
                        overflowed += int(np.count_nonzero(shared.taken_from(computed.overflowed, box)))
        del values, computed
        return Filled(sum(part.size for _, part in parts), self._hand_on(parts), overflowed)

    def _overlaps(self, block: Region) -> list[tuple[Region, Region]]:
        """Regions that have elements in a block, each with its part in the block."""
        return [(region, part) for region in self._regions if (part := region.common(block)) is not None]

    def _evaluated_boxes(self, parts: Sequence[Region]) -> Sequence[Region]:
        """Boxes to evaluate: one around all parts if they fill it, or if that reads less; else each part."""
        box = Region.around(parts)
        if len(parts) == 1 or box.size == sum(part.size for part in parts):
            return [box]
        apart = sum(self._bytes_read(part) for part in parts)
        return [box] if self._bytes_read(box) < apart else parts

    def _bytes_read(self, region: Region) -> int:
        return sum(decoded_bytes(read, wanted) for read, wanted in needed(self._value, region))

    def _hand_on(self, parts: Sequence[tuple[Region, Region]]) -> int:
        """Count parts of regions as filled, give full regions to the result, and return their number."""
        with self._lock:
            for region, part in parts:
                self._missing[region] -= part.size
            full = {region: self._buffers.pop(region) for region, _ in parts if not self._missing[region]}
        count = len(full)
        self._result.put(full)
        return count
