"""Split a plan into tasks: disjoint output regions of whole chunks that cover everything written."""

from collections.abc import Iterator

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.planner.plan import Plan, Step


@frozen()
class Task:
    """One region of one output. Tasks and their numbers depend on the plan alone."""

    number: int
    """Position among all tasks of the plan."""
    step: int
    """Position of the output in `Plan.steps`."""
    region: Region
    """Region that the task writes: whole chunks, or the whole array if stored bytes are linked or copied."""
    nbytes: int
    """Size of the region in bytes, decoded."""
    working_set: int
    """Upper bound of the bytes that the task holds while it runs; 0 if stored bytes are linked or copied."""


def make_tasks(plan: Plan) -> Iterator[Task]:
    """Yield the tasks of all outputs with an array: those with stored bytes first, then the computed ones.

    Within each, in the order of the plan's steps, and of the regions in C order.
    """
    number = 0
    for position, step in enumerate(plan.steps):
        if step.stored is not None:
            yield Task(number, position, Region.whole(step.value.spec.shape), step.leaf.nbytes, 0)
            number += 1
    for position, step in enumerate(plan.steps):
        if step.cut is not None:
            spec = step.value.spec
            for region in chunk_regions(spec.shape, step.cut.block):
                nbytes = region.size * spec.dtype.itemsize
                yield Task(number, position, region, nbytes, step.cut.working_set)
                number += 1


def outputs_of(plan: Plan) -> list[Output]:
    """Outputs to open a sink with, one per step of the plan, in order."""
    return list(map(_output, plan.steps))


def _output(step: Step) -> Output:
    if step.stored is not None:
        return Output(step.leaf, step.stored.chunk_shape, step.stored, not step.takes_files)
    return Output(step.leaf, () if step.cut is None else step.cut.chunks)
