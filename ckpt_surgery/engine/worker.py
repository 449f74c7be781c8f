"""Carry out tasks: evaluate each one and hand it to a writer."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import Problem, SurgeryError, VerificationError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Sink, Source, Writer
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.executors import threads
from ckpt_surgery.engine.tasks import Task, batches, make_tasks
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.planner.plan import Plan, Step

HERE = 0
"""Number of the only worker of a run in this process."""


def run(
    plan: Plan,
    sources: Mapping[str, Source],
    sink: Sink,
    memory: int,
    workers: int,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write every output of the plan with threads of this process.

    `sink` was opened with `outputs_of(plan)`; `memory` is in bytes; `workers` is the number of threads.

    Raises SurgeryError, with the key, where values or files are bad, and VerificationError, before the sink
    finishes, where an element was not written.
    """
    sink.create()
    writer = sink.attach(HERE)
    written = _Written(plan, progress)
    worker = _Worker(plan, sources, sink, writer)

    def work(batch: Sequence[Task]) -> None:
        for task in batch:
            worker.do(task)
            written.add(task)

    tasks = batches(make_tasks(plan), lambda task: task.nbytes)
    threads.run_all(work, tasks, lambda batch: max(t.working_set for t in batch), memory, workers)
    writer.flush()
    written.check()
    sink.finish([HERE])


class _Worker:
    """Does one task at a time. Safe to use from several threads."""

    def __init__(self, plan: Plan, sources: Mapping[str, Source], sink: Sink, writer: Writer):
        self._steps = plan.steps
        self._sources = sources
        self._outputs = sink.outputs
        self._writer = writer

    def do(self, task: Task) -> None:
        """Link or copy the stored bytes of an output, or compute and write a region. Raises SurgeryError."""
        raise_if_cancelled()
        step, output = self._steps[task.step], self._outputs[task.step]
        with _about(step):
            if output.stored is not None:
                self._writer.adopt(output)
                return
            block = evaluate(step.value, task.region, self._read)
            raise_if_cancelled()
            self._writer.write(output, task.region, block)

    def _read(self, source: str, leaf: Leaf, region: Region) -> np.ndarray:
        raise_if_cancelled()
        return self._sources[source].read(leaf, region)


@contextmanager
def _about(step: Step) -> Iterator[None]:
    """Adds the key and the rule of an output to the problems that are found inside."""
    try:
        yield
    except SurgeryError as error:
        raise type(error)(*_with_key(error.problems, step)) from error


def _with_key(problems: Sequence[Problem], step: Step) -> list[Problem]:
    place = None if step.rule is None else step.rule.value
    return [Problem(f"`{step.leaf.key}`: {p.message}", p.place or place, p.hint) for p in problems]


MOST_NAMED = 5
"""Number of outputs that are named where something was not written."""


class _Written:
    """Which regions of the outputs were written, and how many bytes. Safe to use from several threads."""

    def __init__(self, plan: Plan, progress: Callable[[Progress], None] | None):
        self._steps = plan.steps
        self._total = plan.costs.bytes_out
        self._progress = progress
        self._done = 0
        self._regions: list[dict[Shape, int]] = [{} for _ in plan.steps]
        """The number of elements of each step's regions by where they start. The regions of a step are
        cells of one grid, so that two that start in different places have no element in common."""
        self._lock = threading.Lock()

    def add(self, task: Task) -> None:
        """Note that the region of a task was written, and report the progress."""
        with self._lock:
            self._regions[task.step][task.region.starts] = task.region.size
            self._done += task.nbytes
            if self._progress is not None:
                self._progress(Progress(self._done, self._total))

    def check(self) -> None:
        """Raises VerificationError where an element of an array was never written."""
        counts = [
            (step, sum(regions.values()))
            for step, regions in zip(self._steps, self._regions, strict=True)
            if step.leaf.spec is not None
        ]
        lacking = [(step, count) for step, count in counts if count != step.value.spec.size]
        if lacking:
            named = [
                f"`{shown(step.leaf.key.text)}`: {count} of {step.value.spec.size} elements were written"
                for step, count in lacking[:MOST_NAMED]
            ]
            more = [f"and {len(lacking) - MOST_NAMED} more leaves"] if len(lacking) > MOST_NAMED else []
            raise VerificationError(
                "; ".join((*named, *more)),
                hint="Nothing was published. This is a fault of ckpt-surgery itself: please report it.",
            )
