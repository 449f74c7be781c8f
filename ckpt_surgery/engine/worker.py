"""Carry out tasks: evaluate each one, hand it to a writer, and note in a journal that it is finished.

From the journal, another process can resume after this one was killed. It has a line of JSON for each
finished task, once everything that the task wrote is where it belongs: in a file, or in objects of a store. A
file is not synchronized: after a power cut, bytes may be missing that it speaks of, which checksums tell.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.digests import values_crc
from ckpt_surgery.core.errors import Interrupted, SurgeryError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import ByteCounter, Progress
from ckpt_surgery.core.protocols import Output, Sink, Source, TaskResult, Writer
from ckpt_surgery.engine.staging.life import Lines
from ckpt_surgery.engine.tasks import (
    FinishedTask,
    ShardProgress,
    Task,
    Written,
    collect_written,
    make_tasks,
    results_of,
    task_json,
)
from ckpt_surgery.graph.evaluating import Evaluator
from ckpt_surgery.planner.plan import Plan, at_step
from ckpt_surgery.system import threads
from ckpt_surgery.system.threads import batches


@dataclass(frozen=True)
class Means:
    """Memory, threads, the callback for progress, and the name of one worker."""

    memory: int
    """Budget in bytes."""
    workers: int
    """Number of threads."""
    progress: Callable[[Progress], None] | None = None
    name: str = "0"
    """The worker's name, unique to this attempt; by default that of an in-process run's only worker."""


def run(
    plan: Plan, sources: Mapping[str, Source], sink: Sink, means: Means, journal: Lines | None = None
) -> Written:
    """Write every output of the plan with threads of this process. Returns what was written.

    `sink` was opened with `outputs_of(plan)`. `journal`: see `work`.

    Raises SurgeryError, with the key, if values or files are bad, and VerificationError, before the sink
    finishes, if an element was not written.
    """
    sink.create()
    part = work(plan, sources, sink, list(make_tasks(plan)), means, journal)
    return finish_checkpoint(plan, sink, [part])


def work(
    plan: Plan,
    sources: Mapping[str, Source],
    sink: Sink,
    tasks: Sequence[Task],
    means: Means,
    journal: Lines | None = None,
) -> ShardProgress:
    """Execute one worker's tasks of a plan; `sink.create` was called before.

    Tasks that are in the journal already, and whose stored bytes match the checksums in it, are skipped.
    The errors are those of `run`. What was written is flushed.
    """
    earlier = {} if journal is None else read_journal(journal)
    writer = sink.attach(means.name)
    notes = Journal(journal, writer.flush)
    finished: dict[int, TaskResult] = {}
    count = ByteCounter(sum(task.nbytes for task in tasks), means.progress)
    worker = _Worker(plan, sources, sink, writer, means.memory)

    def do(batch: Sequence[Task]) -> None:
        for task in batch:
            known = earlier.get(task.number, TaskResult())
            done = worker.do(task, known)
            finished[task.number] = done
            count.add(task.nbytes)
            # Links are made anew: nothing of them can be checked.
            if (done.chunks or done.crc is not None) and done != known:
                notes.add(task, done)

    def working_set(batch: Sequence[Task]) -> int:
        return max(task.working_set for task in batch)

    together = batches(tasks, lambda task: task.nbytes)
    try:
        threads.run_all(do, together, working_set, means.memory, means.workers)
    except Interrupted:
        if journal is not None:
            notes.close()
        raise
    # What is verified and published next may be interrupted too, and a run may be resumed from there.
    notes.close()
    return ShardProgress(means.name, finished)


def finish_checkpoint(plan: Plan, sink: Sink, parts: Sequence[ShardProgress]) -> Written:
    """Complete a checkpoint after all workers have flushed.

    Raises VerificationError, before the sink finishes, if an element was not written; StorageError.
    """
    written = collect_written(plan, parts)
    sink.finish([part.worker for part in parts])
    return written


class _Worker:
    """Executes single tasks. Safe to use from several threads."""

    def __init__(self, plan: Plan, sources: Mapping[str, Source], sink: Sink, writer: Writer, memory: int):
        """`memory`: the run's budget in bytes, for messages."""
        self._steps = plan.steps
        self._outputs = sink.outputs
        self._sources = sources
        self._writer = writer
        self._memory = memory
        self._evaluator = Evaluator(self._read)

    def do(self, task: Task, known: TaskResult) -> TaskResult:
        """Link or copy the stored bytes of an output, or compute and write a region. Raises SurgeryError.

        `known`: the checksums of what an earlier process wrote, which is not written again if still there.
        """
        raise_if_cancelled()
        step, output = self._steps[task.step], self._outputs[task.step]
        with at_step(step), memory_errors("write it", self._memory):
            if output.stored is not None:
                return self._writer.adopt(output, known.chunks)
            if known.crc is not None and self._holds(output, task.region, known.crc):
                return known
            assert step.cut is not None
            computed = self._evaluator.compute(step.value, task.region, step.cut.pieces, digest=True)
            raise_if_cancelled()
            self._writer.write(output, task.region, computed.block)
            bad = 0 if computed.overflowed is None else int(np.count_nonzero(computed.overflowed))
            return TaskResult(crc=computed.crc, overflowed=bad)

    def _holds(self, output: Output, region: Region, crc: int) -> bool:
        """True if the region is stored with this checksum."""
        try:
            return values_crc(self._writer.read(output, region)) == crc
        except SurgeryError:  # it is missing or damaged, and will be written again
            return False

    def _read(self, source: str, leaf: Leaf, region: Region) -> np.ndarray:
        raise_if_cancelled()
        return self._sources[source].read(leaf, region)


FLUSH_BYTES = 64 << 20
"""Decoded bytes of finished tasks that are flushed and noted together."""


class Journal:
    """Notes finished tasks. Safe to use from several threads."""

    def __init__(self, place: Lines | None, flush: Callable[[], None]):
        """`place`: None if nothing is noted. `flush`: writes everything to the files before it returns."""
        self._place = place
        self._flush = flush
        self._pending: list[str] = []
        self._nbytes = 0
        self._lock = threading.Lock()

    def add(self, task: Task, done: TaskResult) -> None:
        """Note a written task, at once or batched with later ones. Raises StorageError."""
        if self._place is None:
            return
        with self._lock:
            self._pending.append(task_json(task.number, done) + "\n")
            self._nbytes += task.nbytes
            if self._nbytes >= FLUSH_BYTES:
                self._write()

    def close(self) -> None:
        """Flush, and note all tasks still pending. Raises StorageError."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        lines, self._pending, self._nbytes = self._pending, [], 0
        self._flush()
        if lines and self._place is not None:
            self._place.add("".join(lines).encode("ascii"))


def read_journal(place: Lines) -> dict[int, TaskResult]:
    """Read the finished tasks by number; empty if there is no journal. Raises StorageError."""
    tasks: list[FinishedTask] = []
    for line in place.read().splitlines():
        # A line that is damaged, by a power cut for example: the task is done again.
        with suppress(ValueError):
            tasks.append(msgspec.convert(json.loads(line), FinishedTask))
    return results_of(tasks)
