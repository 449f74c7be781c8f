"""Evaluate one task; run all of them."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.arrays import Leaf, Output, Region, Sink, Source
from ckpt_surgery.engines import local
from ckpt_surgery.errors import Problem, SurgeryError
from ckpt_surgery.nodes import Node, Read
from ckpt_surgery.planner import Plan, Step
from ckpt_surgery.schedule import Task, make_tasks

Reader = Callable[[str, Leaf, Region], np.ndarray]
"""(source name, leaf, region) → the elements."""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    done_bytes: int
    """Bytes of finished output regions."""
    total_bytes: int


def evaluate(node: Node, region: Region, read: Reader) -> np.ndarray:
    """The elements of one region of a node."""
    if isinstance(node, Read):
        return read(node.source, node.leaf, region)
    specs = [n.spec for n in node.inputs]
    blocks = [evaluate(node.inputs[i], part, read) for i, part in node.function.needs(region, specs)]
    return node.function.apply(region, specs, blocks)


def output_of(step: Step) -> Output:
    """What a sink is told of a step."""
    return Output(step.leaf, () if step.cut is None else step.cut.chunks)


def run(
    plan: Plan,
    sources: Mapping[str, Source],
    sink: Sink,
    memory: int,
    workers: int,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write every output of the plan. Raises SurgeryError, with the key, where values or files are bad."""
    tasks = list(make_tasks(plan))
    outputs = {id(step): output_of(step) for step in plan.steps}
    sink.create(list(outputs.values()))
    counter = _Counter(sum(task.nbytes for task in tasks), progress)

    def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        return sources[source].read(leaf, region)

    def work(task: Task) -> None:
        try:
            block = evaluate(task.step.value, task.region, read)
            sink.write(outputs[id(task.step)], task.region, block)
        except SurgeryError as error:
            raise type(error)(*_with_key(error.problems, task.step)) from error
        counter.add(task.nbytes)

    local.run_all(work, tasks, lambda task: task.working_set, memory, workers)
    sink.finish()


def _with_key(problems: Sequence[Problem], step: Step) -> list[Problem]:
    rule = "" if step.rule is None else f" ({step.rule})"
    return [Problem(f"`{step.leaf.key}`{rule}: {p.message}", p.place, p.hint) for p in problems]


class _Counter:
    """Adds up finished bytes from several threads."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None):
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            if self._progress is not None:
                self._progress(Progress(self._done, self._total))
