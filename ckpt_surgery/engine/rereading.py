"""Reading back what one worker has written, before others rely on it."""

from collections.abc import Sequence

from ckpt_surgery.core.digests import values_crc
from ckpt_surgery.core.errors import SourceError, VerificationError
from ckpt_surgery.core.protocols import Sink
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.executors import threads
from ckpt_surgery.engine.tasks import Task, batches
from ckpt_surgery.engine.tracking import Part
from ckpt_surgery.planner.plan import Plan

HINT = "The shard counts as not done. Run it again; if it happens twice, test the memory and the disk."


def read_back(plan: Plan, sink: Sink, part: Part, tasks: Sequence[Task], memory: int, workers: int) -> int:
    """Compare what a worker computed with what is stored now; returns the number of bytes, decoded.

    `tasks` are the worker's, `memory` is the budget in bytes, `workers` the number of threads. What was
    copied is compared where the checkpoint is put together. Raises VerificationError, with the key.
    """
    writer = sink.attach(part.worker)
    computed = [task for task in tasks if part.done[task.number].finished.crc is not None]

    def check(batch: Sequence[Task]) -> None:
        for task in batch:
            key, crc = plan.steps[task.step].leaf.key.text, part.done[task.number].finished.crc
            try:
                found = values_crc(writer.read(sink.outputs[task.step], task.region))
            except SourceError as error:
                raise VerificationError(
                    f"`{shown(key)}`, what was written cannot be read: {error}", hint=HINT
                ) from error
            if found != crc:
                raise VerificationError(
                    f"`{shown(key)}`, from {task.region.starts}: {found:08x} was read back, {crc:08x} was "
                    "written (CRC-32C)",
                    hint=HINT,
                )

    together = batches(computed, lambda task: task.nbytes)
    threads.run_all(check, together, lambda batch: max(task.nbytes for task in batch), memory, workers)
    return sum(task.nbytes for task in computed)
