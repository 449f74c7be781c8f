"""Which of several machines does which tasks of a plan: a function of the plan and their number alone."""

import heapq
from collections.abc import Iterator

from ckpt_surgery.engine.tasks import Task, make_tasks
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.system.threads import batches

UNITS_PER_SHARD = 16
"""Consecutive tasks of an output stay together in units, of which a shard gets about so many."""
FILES = 0
"""The shard that takes whole files: each is linked, or copied by its store, once, which costs it little."""


def shares(plan: Plan, count: int) -> list[list[Task]]:
    """The tasks of each of `count` shards, in the plan's order. Together they are all tasks, each once.

    Bytes are dealt out largest first, each time to the shard that has the fewest. A shard can be empty.
    """
    shards: list[list[Task]] = [[] for _ in range(count)]
    written: list[Task] = []
    for task in make_tasks(plan):
        (shards[FILES] if plan.steps[task.step].takes_files else written).append(task)
    room = max(1, sum(task.nbytes for task in written) // (count * UNITS_PER_SHARD))
    units = sorted(_units(written, room), key=lambda unit: (-_nbytes(unit), unit[0].number))
    loads = [(0, number) for number in range(count)]
    for unit in units:
        load, number = heapq.heappop(loads)
        shards[number] += unit
        heapq.heappush(loads, (load + _nbytes(unit), number))
    return [sorted(tasks, key=lambda task: task.number) for tasks in shards]


def _units(tasks: list[Task], room: int) -> Iterator[list[Task]]:
    """Consecutive tasks of one output, with at most `room` bytes together unless it is one task."""
    by_step: dict[int, list[Task]] = {}
    for task in tasks:
        by_step.setdefault(task.step, []).append(task)
    for of_step in by_step.values():
        yield from batches(of_step, lambda task: task.nbytes, float("inf"), room)


def _nbytes(unit: list[Task]) -> int:
    return sum(task.nbytes for task in unit)
