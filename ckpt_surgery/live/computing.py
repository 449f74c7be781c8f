"""Compute the leaves of a result with threads: regions of one leaf, or several small leaves, at a time."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.tiles import copy_into
from ckpt_surgery.functions.arrays import Node
from ckpt_surgery.graph.evaluating import Evaluator
from ckpt_surgery.graph.walks import decoded_bytes, needed
from ckpt_surgery.live.results import RestoredLeaf
from ckpt_surgery.planner.cutting import Cut
from ckpt_surgery.planner.plan import Step, at_step
from ckpt_surgery.system.threads import batches, run_all


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

    def fill(self, block: Region, evaluator: Evaluator, pieces: Sequence[Shape]) -> tuple[int, int, int]:
        """Compute the elements of one block that the regions need.

        Returns the numbers of elements that were filled in, of regions that are full now, and of non-finite
        elements that `allow_nonfinite` permits. `pieces`: those of the value, for `Evaluator.compute`. Raises
        SurgeryError where values or files are bad.
        """
        parts = self._overlaps(block)
        overflowed = 0
        for box in self._evaluated_boxes([part for _, part in parts]):
            computed = evaluator.compute(self._value, box, pieces)
            values = computed.block
            raise_if_cancelled()
            for region, part in parts:
                if (both := part.common(box)) is not None:
                    copy_into(both.taken_from(self._buffers[region], region), both.taken_from(values, box))
                    if computed.overflowed is not None:
                        overflowed += int(np.count_nonzero(both.taken_from(computed.overflowed, box)))
        del values, computed
        return sum(part.size for _, part in parts), self._hand_on(parts), overflowed

    def _overlaps(self, block: Region) -> list[tuple[Region, Region]]:
        """Regions that have elements in a block, each with its part in the block."""
        return [(region, part) for region in self._regions if (part := region.common(block)) is not None]

    def _evaluated_boxes(self, parts: Sequence[Region]) -> Sequence[Region]:
        """Boxes to evaluate: one around all parts if they fill it, or if that reads less; else each part."""
        box = Region.around(parts)
        if len(parts) == 1 or box.size == sum(part.size for part in parts):
            return [box]
        whole, *apart = (
            sum(decoded_bytes(read, wanted) for read, wanted in needed(self._value, region))
            for region in (box, *parts)
        )
        return [box] if whole < sum(apart) else parts

    def _hand_on(self, parts: Sequence[tuple[Region, Region]]) -> int:
        """Count parts of regions as filled, give full regions to the result, and return their number."""
        with self._lock:
            for region, part in parts:
                self._missing[region] -= part.size
            full = {region: self._buffers.pop(region) for region, _ in parts if not self._missing[region]}
        count = len(full)
        self._result.put(full)
        return count


SIDE_BY_SIDE = 64 << 20
"""Leaves of at most this many bytes are each made by one thread, side by side. Larger ones are made one after
the other, in blocks that all threads compute."""


@frozen(eq=False)
class ComputedLeaf:
    """A leaf that is computed."""

    step: Step
    cut: Cut
    """The blocks in which it is computed."""
    result: RestoredLeaf

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.step.value.spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the regions that this process holds, each once."""
        return sum(region.size for region in self.result.regions) * self.itemsize


Task = tuple[int, Callable[[], None]]
"""One unit of work of a thread, after the bytes in memory while it runs."""


class Computing:
    """Computes the leaves of a result, and tracks the progress of each."""

    def __init__(
        self,
        jobs: Sequence[ComputedLeaf],
        sources: Mapping[str, Source],
        memory: int,
        keep: Callable[[Step, Any], None],
        count: Callable[[int], None],
    ):
        """`keep` is called with each value, and `count` with numbers of bytes, from several threads."""
        self._jobs, self._memory = jobs, memory
        self._keep, self._count = keep, count
        self._missing = {id(job): len(job.result.regions) for job in jobs}
        """Regions still missing, by the identity of the job."""
        self.overflowed: Counter[str] = Counter()
        """Number of non-finite elements that `allow_nonfinite` permits, by key."""
        self._lock = threading.Lock()

        # Not a method: in a circle, the result would keep memory of devices until garbage is collected.
        def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
            raise_if_cancelled()
            return sources[source].read(leaf, region)

        self._evaluator = Evaluator(read)

    def run(self, workers: int) -> None:
        """Compute all leaves. Raises SurgeryError, with the key."""
        import jax

        config: Any = jax.config
        wide, device = config.jax_enable_x64, config.jax_default_device

        def work(task: Task) -> None:
            # With the settings of this thread: others would put arrays elsewhere, and silently narrow them.
            with jax.enable_x64(wide), jax.default_device(device):
                task[1]()

        run_all(work, self._tasks(), lambda task: task[0], self._memory // 2, workers)

    def _tasks(self) -> Iterator[Task]:
        """Blocks of the large leaves, one leaf after the other, then the small ones in batches."""
        for job in self._jobs:
            if job.nbytes > SIDE_BY_SIDE:
                yield from self._block_tasks(job)
        small = [job for job in self._jobs if job.nbytes <= SIDE_BY_SIDE]
        for batch in batches(small, lambda job: job.nbytes):
            # What stays on the host as the result does not count.
            weights = (job.cut.working_set + (0 if job.result.on_host else job.nbytes) for job in batch)
            yield max(weights), partial(self._compute, batch)

    def _block_tasks(self, job: ComputedLeaf) -> Iterator[Task]:
        """One task for each block of a leaf, group of regions by group."""
        # A group is begun while the last blocks of the one before it are computed: there is room for two.
        room = max(0, min(self._memory // 2, self._memory - job.cut.working_set)) // 2
        room = job.nbytes if job.result.on_host else room
        groups = batches(job.result.regions, lambda region: region.size * job.itemsize, math.inf, room)
        # What a group needs is read once. A leaf of which this process holds nothing is complete at once.
        for regions in groups if job.result.regions else [()]:
            with at_step(job.step), memory_errors("make it", self._memory):
                filling = Filling(job.step.value, job.result, regions)
                self._complete(job, sum(not region.size for region in regions))
            for block in filling.blocks(job.cut.block):
                yield job.cut.working_set, partial(self._fill, job, filling, block)

    def _compute(self, jobs: Sequence[ComputedLeaf]) -> None:
        """Compute several leaves, one after the other."""
        for job in jobs:
            for _, fill in self._block_tasks(job):
                fill()

    def _fill(self, job: ComputedLeaf, filling: Filling, block: Region) -> None:
        with at_step(job.step), memory_errors("make it", self._memory):
            raise_if_cancelled()
            elements, regions, overflowed = filling.fill(block, self._evaluator, job.cut.pieces)
            self._count(elements * job.itemsize)
            if overflowed:
                with self._lock:
                    self.overflowed[job.step.leaf.key.text] += overflowed
            self._complete(job, regions)

    def _complete(self, job: ComputedLeaf, regions: int) -> None:
        """Count more regions as complete; after the last one, make the leaf."""
        with self._lock:
            missing = self._missing[id(job)]
            self._missing[id(job)] = missing - regions
        if regions == missing:
            self._keep(job.step, job.result.value())
