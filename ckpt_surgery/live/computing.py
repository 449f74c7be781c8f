"""Compute the leaves of a result with threads: regions of one leaf, or several small leaves, at a time."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.graph.checked import Evaluator
from ckpt_surgery.live.filling import Filling
from ckpt_surgery.live.results import RestoredLeaf
from ckpt_surgery.planner.cutting import Cut
from ckpt_surgery.planner.plan import Step, at_step
from ckpt_surgery.system.threads import batches, run_all

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


@frozen(eq=False)
class _Task:
    """One unit of work of a thread."""

    weight: int
    """Bytes in memory while it runs."""
    do: Callable[[], None]


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
        self._evaluator = Evaluator(partial(_read, sources))

    def run(self, workers: int) -> None:
        """Compute all leaves. Raises SurgeryError, with the key."""
        settings = same_jax_settings()

        def work(task: _Task) -> None:
            with settings():
                task.do()

        run_all(work, self._tasks(), lambda task: task.weight, self._memory // 2, workers)

    def _tasks(self) -> Iterator[_Task]:
        """Blocks of the large leaves, one leaf after the other, then the small ones in batches."""
        for job in self._jobs:
            if job.nbytes > SIDE_BY_SIDE:
                yield from self._block_tasks(job)
        small = [job for job in self._jobs if job.nbytes <= SIDE_BY_SIDE]
        for batch in batches(small, lambda job: job.nbytes):
            yield _Task(max(map(_weight, batch)), partial(self._compute, batch))

    def _block_tasks(self, job: ComputedLeaf) -> Iterator[_Task]:
        """One task for each block of a large leaf, group of regions by group."""
        # A group is begun while the last blocks of the one before it are computed: there is room for two.
        room = max(0, min(self._memory // 2, self._memory - job.cut.working_set)) // 2
        room = job.nbytes if job.result.on_host else room
        groups = batches(job.result.regions, lambda region: region.size * job.itemsize, math.inf, room)
        for regions in groups:  # what a group of regions needs is read once for all of it
            with at_step(job.step), memory_errors("make it", self._memory):
                filling = self._begin(job, regions)
            for block in filling.blocks(job.cut.block):
                yield _Task(job.cut.working_set, partial(self._fill, job, filling, block))

    def _compute(self, jobs: Sequence[ComputedLeaf]) -> None:
        """Compute several leaves, one after the other."""
        for job in jobs:
            with at_step(job.step), memory_errors("make it", self._memory):
                filling = self._begin(job, job.result.regions)
            for block in filling.blocks(job.cut.block):
                self._fill(job, filling, block)

    def _begin(self, job: ComputedLeaf, regions: Sequence[Region]) -> Filling:
        """Make buffers for some regions of a leaf; those without elements are complete at once."""
        filling = Filling(job.step.value, job.result, regions)
        self._complete(job, sum(not region.size for region in regions))
        return filling

    def _fill(self, job: ComputedLeaf, filling: Filling, block: Region) -> None:
        with at_step(job.step), memory_errors("make it", self._memory):
            raise_if_cancelled()
            filled = filling.fill(block, self._evaluator, job.cut.pieces)
            self._count(filled.elements * job.itemsize)
            if filled.overflowed:
                with self._lock:
                    self.overflowed[job.step.leaf.key.text] += filled.overflowed
            self._complete(job, filled.regions)

    def _complete(self, job: ComputedLeaf, regions: int) -> None:
        """Count more regions as complete; after the last one, make the leaf."""
        with self._lock:
            missing = self._missing[id(job)]
            self._missing[id(job)] = missing - regions
        if regions == missing:
            self._keep(job.step, job.result.value())


def _weight(job: ComputedLeaf) -> int:
    """Bytes in memory while one thread computes a leaf, except those that stay there as the result."""
    return job.cut.working_set + (0 if job.result.on_host else job.nbytes)


def same_jax_settings() -> Callable[[], AbstractContextManager[None]]:
    """Context that gives other threads the JAX settings of this thread.

    These are the default device, and whether there are types of 64 bits: without it, a thread would silently
    narrow arrays.
    """
    import jax

    config: Any = jax.config
    wide, device = config.jax_enable_x64, config.jax_default_device

    @contextmanager
    def settings() -> Iterator[None]:
        with jax.enable_x64(wide), jax.default_device(device):
            yield

    return settings


def _read(sources: Mapping[str, Source], source: str, leaf: Leaf, region: Region) -> np.ndarray:
    raise_if_cancelled()
    return sources[source].read(leaf, region)
