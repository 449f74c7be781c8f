"""Plan → tasks: each one output region made of whole chunks, disjoint, together everything."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.planner.plan import Plan, Step

T = TypeVar("T")

MOST_TOGETHER = 64
BYTES_TOGETHER = 1 << 20
"""Larger items, and more of them, are handed out apart, so that all threads have work."""


@dataclass(frozen=True, eq=False)
class Task:
    """One region of one output."""

    step: Step
    region: Region
    working_set: int
    """Bytes that it holds at most while it runs."""

    @property
    def nbytes(self) -> int:
        """Bytes of the output region."""
        return self.region.size * self.step.value.spec.dtype.itemsize


def make_tasks(plan: Plan) -> Iterator[Task]:
    """The tasks of all steps that have an array, in the plan's order."""
    for step in plan.steps:
        if step.cut is not None:
            for region in chunk_regions(step.value.spec.shape, step.cut.block):
                yield Task(step, region, step.cut.working_set)


def batches(items: Iterable[T], nbytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Consecutive items put together while they are small, to be done one after another by one thread.

    Handing one to a thread takes a tenth of a millisecond, more than many a small one takes itself.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = nbytes(item)
        if batch and (len(batch) == MOST_TOGETHER or total + size > BYTES_TOGETHER):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
