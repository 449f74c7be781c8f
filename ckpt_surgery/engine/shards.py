"""Assign the tasks of a plan to several machines, from the plan and the number of machines alone."""

import heapq
from collections.abc import Iterator

from ckpt_surgery.engine.tasks import Task, make_tasks
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.system.threads import batches

UNITS_PER_SHARD = 16
"""Approximate number of units per shard; a unit is a series of consecutive tasks of one output."""
FILES = 0
"""The shard that takes all whole files: each is linked, or copied by its store, which costs little."""


def shares(plan: Plan, count: int) -> list[list[Task]]:
    """Distribute the tasks over `count` shards, each task to one; every shard keeps the plan's order.

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
    """Group consecutive tasks of one output into units of at most `room` bytes, or of one larger task."""
    by_step: dict[int, list[Task]] = {}
    for task in tasks:
        by_step.setdefault(task.step, []).append(task)
    for of_step in by_step.values():
        yield from batches(of_step, lambda task: task.nbytes, float("inf"), room)


def _nbytes(unit: list[Task]) -> int:
    return sum(task.nbytes for task in unit)
