"""Progress of a run: finished tasks, their checksums, and whole files."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import floordiv

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.progress import ByteCounter, Progress
from ckpt_surgery.core.protocols import AdoptedFile, TaskResult
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.tasks import Task, make_tasks
from ckpt_surgery.planner.plan import Plan, Step

MOST_NAMED = 5
"""Limit on the outputs named in an error about incomplete arrays."""


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


class Tracker:
    """Collects one worker's results and reports progress. Safe to use from several threads."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None):
        """`total`: bytes of all tasks of the worker, decoded."""
        self._count = ByteCounter(total, progress)
        self._done: dict[int, TaskResult] = {}
        self._lock = threading.Lock()

    def add(self, task: Task, done: TaskResult) -> None:
        """Add a task's result, and report progress."""
        with self._lock:
            self._done[task.number] = done
        self._count.add(task.nbytes)

    def part(self, worker: str) -> ShardProgress:
        """Results of all tasks finished so far."""
        with self._lock:
            return ShardProgress(worker, dict(self._done))


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
        done = all_done.get(task.number)
        if done is None:
            continue
        counts[task.step] += task.region.size
        crcs[task.step].update(done.chunks)
        cut = plan.steps[task.step].cut
        if cut is not None and done.crc is not None:
            crcs[task.step][tuple(map(floordiv, task.region.starts, cut.block))] = done.crc
        files += done.files
        if done.overflowed:
            overflowed[task.step] += done.overflowed
    per_step = list(zip(plan.steps, counts, crcs, strict=True))
    lacking = [
        (step, count)
        for step, count, _ in per_step
        if step.leaf.spec is not None and count != step.value.spec.size
    ]
    if lacking:
        raise _incomplete(lacking)
    digests = {number: _digests(step, crcs) for number, (step, _, crcs) in enumerate(per_step) if crcs}
    return Written(digests, tuple(files), overflowed)


def _digests(step: Step, crcs: Mapping[Shape, int]) -> Digests:
    if step.stored is not None:
        return Digests(step.stored.chunk_shape, step.stored.stores_values, crcs)
    assert step.cut is not None
    return Digests(step.cut.block, True, crcs)


def _incomplete(lacking: Sequence[tuple[Step, int]]) -> VerificationError:
    named = [
        f"`{shown(step.leaf.key.printed)}`: {count} of {step.value.spec.size} elements were written"
        for step, count in lacking[:MOST_NAMED]
    ]
    more = [f"and {len(lacking) - MOST_NAMED} more leaves"] if len(lacking) > MOST_NAMED else []
    return VerificationError(
        "; ".join((*named, *more)),
        hint="Nothing was published. This is a fault of ckpt-surgery itself: please report it.",
    )
