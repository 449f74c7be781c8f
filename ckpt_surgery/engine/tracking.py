"""What a run has written so far: regions, checksums and whole files."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import floordiv

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.journal import Finished
from ckpt_surgery.engine.tasks import Task
from ckpt_surgery.planner.plan import Plan, Step

MOST_NAMED = 5
"""Number of outputs that are named where something was not written."""


@dataclass(frozen=True)
class Done:
    """What one task wrote."""

    finished: Finished
    """Checksums; none where files were linked."""
    files: tuple[AdoptedFile, ...] = ()
    """Whole files that it linked."""


@dataclass(frozen=True)
class Written:
    """What a run wrote."""

    digests: Mapping[int, Digests]
    """Checksums of computed and copied outputs, by their positions in `Plan.steps`."""
    files: tuple[AdoptedFile, ...]
    """Whole files of sources that became files of the checkpoint."""


class Tracker:
    """Notes what has been written of each output, and how many bytes. Safe to use from several threads."""

    def __init__(self, plan: Plan, progress: Callable[[Progress], None] | None):
        self._steps = plan.steps
        self._total = plan.costs.bytes_out
        self._progress = progress
        self._done = 0
        self._regions: list[dict[Shape, int]] = [{} for _ in plan.steps]
        """The number of elements of each step's regions by where they start. The regions of a step are
        cells of one grid, so that two that start in different places have no element in common."""
        self._crcs: list[dict[Shape, int]] = [{} for _ in plan.steps]
        """The checksums of each step's regions or stored chunks by their indices."""
        self._files: list[AdoptedFile] = []
        self._lock = threading.Lock()

    def add(self, task: Task, done: Done) -> None:
        """Note what a task wrote, and report the progress."""
        with self._lock:
            self._regions[task.step][task.region.starts] = task.region.size
            self._crcs[task.step].update(done.finished.chunks)
            cut = self._steps[task.step].cut
            if cut is not None and done.finished.crc is not None:
                index = tuple(map(floordiv, task.region.starts, cut.block))
                self._crcs[task.step][index] = done.finished.crc
            self._files += done.files
            self._done += task.nbytes
            if self._progress is not None:
                self._progress(Progress(self._done, self._total))

    def written(self) -> Written:
        """What was written until now."""
        with self._lock:
            found = zip(self._steps, self._crcs, strict=True)
            digests = {n: _digests(step, crcs) for n, (step, crcs) in enumerate(found) if crcs}
            return Written(digests, tuple(self._files))

    def check(self) -> None:
        """Raises VerificationError where an element of an array was never written."""
        counts = [
            (step, sum(regions.values()))
            for step, regions in zip(self._steps, self._regions, strict=True)
            if step.leaf.spec is not None
        ]
        lacking = [(step, count) for step, count in counts if count != step.value.spec.size]
        if lacking:
            raise _incomplete(lacking)


def _digests(step: Step, crcs: Mapping[Shape, int]) -> Digests:
    if step.stored is not None:
        return Digests(step.stored.chunk_shape, step.stored.stores_values, crcs)
    assert step.cut is not None
    return Digests(step.cut.block, True, crcs)


def _incomplete(lacking: Sequence[tuple[Step, int]]) -> VerificationError:
    named = [
        f"`{shown(step.leaf.key.text)}`: {count} of {step.value.spec.size} elements were written"
        for step, count in lacking[:MOST_NAMED]
    ]
    more = [f"and {len(lacking) - MOST_NAMED} more leaves"] if len(lacking) > MOST_NAMED else []
    return VerificationError(
        "; ".join((*named, *more)),
        hint="Nothing was published. This is a fault of ckpt-surgery itself: please report it.",
    )
