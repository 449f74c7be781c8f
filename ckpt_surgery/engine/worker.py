"""Evaluate one task; run all of them."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.cancellation import check_wanted
from ckpt_surgery.core.errors import Problem, SurgeryError, VerificationError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Output, Sink, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.executors import threads
from ckpt_surgery.engine.tasks import Task, batches, make_tasks
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.planner.plan import Plan, Step, Transfer


def output_of(step: Step) -> Output:
    """What a sink is told of a step."""
    if step.stored is not None:
        return Output(step.leaf, step.stored.chunk_shape, step.stored, step.transfer is Transfer.COPY)
    return Output(step.leaf, () if step.cut is None else step.cut.chunks)


def run(
    plan: Plan,
    sources: Mapping[str, Source],
    sink: Sink,
    memory: int,
    workers: int,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write every output of the plan. Raises SurgeryError, with the key, where values or files are bad.

    That every element was handed to the sink is checked before it finishes, whatever the format.
    """
    outputs = {id(step): output_of(step) for step in plan.steps}
    sink.create(list(outputs.values()))
    written = _Written(plan.costs.bytes_out, progress)

    def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        check_wanted()
        return sources[source].read(leaf, region)

    def compute(tasks: Sequence[Task]) -> None:
        for task in tasks:
            with _told_of(task.step):
                block = evaluate(task.step.value, task.region, read)
                check_wanted()
                sink.write(outputs[id(task.step)], task.region, block)
            written.add(task.step, task.region)

    def adopt(steps: Sequence[Step]) -> None:
        for step in steps:
            check_wanted()
            with _told_of(step):
                sink.adopt(outputs[id(step)])
            written.add(step, Region.whole(step.value.spec.shape))

    adopted = (step for step in plan.steps if step.stored is not None)
    threads.run_all(adopt, batches(adopted, lambda step: step.leaf.nbytes), lambda steps: 0, memory, workers)
    tasks = batches(make_tasks(plan), lambda task: task.nbytes)
    threads.run_all(compute, tasks, lambda batch: max(t.working_set for t in batch), memory, workers)
    written.check(plan.steps)
    sink.finish()


@contextmanager
def _told_of(step: Step) -> Iterator[None]:
    """Add key and rule to what goes wrong inside."""
    try:
        yield
    except SurgeryError as error:
        raise type(error)(*_with_key(error.problems, step)) from error


def _with_key(problems: Sequence[Problem], step: Step) -> list[Problem]:
    place = None if step.rule is None else step.rule.value
    return [Problem(f"`{step.leaf.key}`: {p.message}", p.place or place, p.hint) for p in problems]


MOST_TOLD = 5
"""Outputs that are named where something was not written."""


class _Written:
    """Which regions of the outputs were written, and how many bytes. Thread-safe."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None):
        self._total = total
        """Bytes of all outputs."""
        self._progress = progress
        self._done = 0
        self._regions: dict[int, dict[Shape, int]] = defaultdict(dict)
        """By the step's identity: where its regions start, and their elements. The regions of a step are
        cells of one grid, so that two that start in different places have no element in common."""
        self._lock = threading.Lock()

    def add(self, step: Step, region: Region) -> None:
        """Note that the sink has a region of an output, and tell of the progress."""
        with self._lock:
            self._regions[id(step)][region.starts] = region.size
            self._done += region.size * step.value.spec.dtype.itemsize
            if self._progress is not None:
                self._progress(Progress(self._done, self._total))

    def check(self, steps: Sequence[Step]) -> None:
        """Raises VerificationError where an element of an array was never written."""
        counts = [
            (step, sum(self._regions[id(step)].values())) for step in steps if step.leaf.spec is not None
        ]
        lacking = [(step, count) for step, count in counts if count != step.value.spec.size]
        if lacking:
            told = [
                f"`{shown(step.leaf.key.text)}`: {count} of {step.value.spec.size} elements were written"
                for step, count in lacking[:MOST_TOLD]
            ]
            more = [f"and {len(lacking) - MOST_TOLD} more leaves"] if len(lacking) > MOST_TOLD else []
            raise VerificationError(
                "; ".join((*told, *more)),
                hint="Nothing was published. This is a fault of ckpt-surgery itself: please report it.",
            )
