"""Plan → tasks: each one output region made of whole chunks, disjoint, together everything."""

from collections.abc import Iterator
from dataclasses import dataclass

from ckpt_surgery.arrays import Region, chunk_regions
from ckpt_surgery.planner import Plan, Step


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
