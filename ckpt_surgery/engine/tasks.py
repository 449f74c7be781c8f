"""Split a plan into tasks: disjoint output regions of whole chunks that cover everything written.

The plan and the number of machines alone assign tasks to machines; the results are collected at the end.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import floordiv
from typing import NamedTuple

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.protocols import AdoptedFile, Output, TaskResult
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.system.threads import batches


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
    outputs = []
    for step in plan.steps:
        if step.stored is not None:
            outputs.append(Output(step.leaf, step.stored.chunk_shape, step.stored, not step.takes_files))
        else:
            outputs.append(Output(step.leaf, () if step.cut is None else step.cut.chunks))
    return outputs


UNITS_PER_SHARD = 16
"""Approximate number of units per shard; a unit is a series of consecutive tasks of one output."""


def shares(plan: Plan, count: int) -> list[list[Task]]:
    """Distribute the tasks over `count` shards, each task to one; every shard keeps the plan's order.

    Bytes are dealt out largest first, each time to the shard that has the fewest. A shard can be empty.
    """
    shards: list[list[Task]] = [[] for _ in range(count)]
    by_step: dict[int, list[Task]] = {}
    for task in make_tasks(plan):
        # One shard takes all whole files: each is linked, or copied by its store, which costs little.
        takes_files = plan.steps[task.step].takes_files
        (shards[0] if takes_files else by_step.setdefault(task.step, [])).append(task)
    total = sum(task.nbytes for tasks in by_step.values() for task in tasks)
    room = max(1, total // (count * UNITS_PER_SHARD))
    # A unit has at most `room` bytes, or is one larger task.
    of_steps = (batches(tasks, lambda task: task.nbytes, float("inf"), room) for tasks in by_step.values())
    sized = [(sum(task.nbytes for task in unit), unit) for units in of_steps for unit in units]
    loads = [(0, number) for number in range(count)]
    for nbytes, unit in sorted(sized, key=lambda pair: (-pair[0], pair[1][0].number)):
        load, number = heapq.heappop(loads)
        shards[number] += unit
        heapq.heappush(loads, (load + nbytes, number))
    return [sorted(tasks, key=lambda task: task.number) for tasks in shards]


@dataclass(frozen=True)
class Written:
    """Checksums and adopted files of everything a run wrote."""

    digests: Mapping[int, Digests]
    """Checksums of computed and copied outputs, by their positions in `Plan.steps`."""
    files: tuple[AdoptedFile, ...]
    """Whole files of sources that became files of the checkpoint."""
    overflowed: Mapping[int, int]
    """Number of permitted non-finite elements, by the positions of outputs in the plan."""


@dataclass(frozen=True)
class ShardProgress:
    """Results of the tasks that one worker finished."""

    worker: str
    """The worker's name, under which it wrote."""
    done: Mapping[int, TaskResult]
    """Result of each finished task, by the task's number."""


class FinishedTask(NamedTuple):
    """A finished task, as journals and parts of shards hold it: a list in JSON."""

    number: int
    chunks: tuple[tuple[Shape, int], ...]
    files: tuple[AdoptedFile, ...]
    crc: int | None
    overflowed: int


def task_json(number: int, done: TaskResult) -> str:
    """A finished task as a `FinishedTask` in JSON."""
    chunks = tuple(done.chunks.items())
    return json.dumps(FinishedTask(number, chunks, done.files, done.crc, done.overflowed), default=asdict)


def results_of(tasks: Iterable[FinishedTask]) -> dict[int, TaskResult]:
    """Results of finished tasks by their numbers."""
    return {t.number: TaskResult(dict(t.chunks), t.files, t.crc, t.overflowed) for t in tasks}


def collect_written(plan: Plan, parts: Sequence[ShardProgress]) -> Written:
    """Merge the results of all workers, after checking that every array is whole.

    Raises VerificationError if an element of an array was never written.
    """
    counts = [0] * len(plan.steps)
    crcs: list[dict[Shape, int]] = [{} for _ in plan.steps]
    files: list[AdoptedFile] = []
    overflowed: Counter[int] = Counter()
    all_done = {number: done for part in parts for number, done in part.done.items()}
    for task in make_tasks(plan):
        if (done := all_done.get(task.number)) is None:
            continue
        counts[task.step] += task.region.size
        crcs[task.step].update(done.chunks)
        cut = plan.steps[task.step].cut
        if cut is not None and done.crc is not None:
            crcs[task.step][tuple(map(floordiv, task.region.starts, cut.block))] = done.crc
        files += done.files
        overflowed[task.step] += done.overflowed
    lacking = [
        step.leaf.key.printed
        for step, count in zip(plan.steps, counts, strict=True)
        if step.leaf.spec is not None and count != step.value.spec.size
    ]
    if lacking:
        hint = "Nothing was published. This is a fault of ckpt-surgery itself: please report it."
        raise VerificationError(f"not all elements were written of {few_keys(lacking, 5)}", hint=hint)
    digests = {}
    for number, step in enumerate(plan.steps):
        if crcs[number] and step.stored is not None:
            digests[number] = Digests(step.stored.chunk_shape, step.stored.stores_values, crcs[number])
        elif crcs[number] and step.cut is not None:
            digests[number] = Digests(step.cut.block, True, crcs[number])
    return Written(digests, tuple(files), +overflowed)
