"""Carry out a plan into arrays of this program: nothing is written."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.engine.executors.threads import run_all
from ckpt_surgery.engine.resources import release_memory
from ckpt_surgery.engine.step_errors import about
from ckpt_surgery.engine.tasks import batches
from ckpt_surgery.graph.nodes import Read
from ckpt_surgery.live import moving
from ckpt_surgery.live.donating import Donation
from ckpt_surgery.live.filling import Filling, groups
from ckpt_surgery.live.results import Result, result_of
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.planner.cutting import Cut, finer
from ckpt_surgery.planner.plan import Plan, Step

SIDE_BY_SIDE = 64 << 20
"""Leaves of up to so many bytes are made side by side, each by one thread; larger ones one after another."""
BLOCK = int(__import__('os').environ.get('BLOCK',16)) << 20
"""Bytes."""
_EMPTY: Mapping[str, Callable[[], Any]] = {"Dict": dict, "List": list, "Tuple": tuple}
"""What an empty node of each kind is without a target; of any other kind it is None."""


def carry_out(
    plan: Plan,
    sources: Mapping[str, Source],
    target: LiveTree | None,
    shardings: Mapping[str, Any],
    memory: int,
    workers: int,
    donate: bool,
    progress: Callable[[Progress], None] | None = None,
) -> Mapping[str, Any]:
    """The value of every output, by the text of its key, in the plan's order.

    The plan was made for a `LiveEncoder`, and for half of the `memory` in bytes, which is what computing
    takes; the other half is for parts of arrays on their way to devices whose memory is not the host's.
    `sources` are by the names that the plan has for them, the target among them. `shardings` are those of
    arrays of JAX, by key; None is the default device. `workers` is the number of threads.

    With a target, each value is what the target has there: an array of JAX, of NumPy, a number, a text, an
    empty node. Without one, arrays are JAX's and scalars are Python's numbers, as Orbax restores them. With
    `donate`, each array of the target is deleted once it is replaced and nothing reads it any more.

    Raises SurgeryError, with the key, where values or files are bad, where memory ends, or after a signal.
    """
    run = _Run(plan, sources, target, shardings, memory, workers, progress)
    run.do(donate)
    return {step.leaf.key.text: run.values[step.leaf.key.text] for step in plan.steps}


@frozen(eq=False)
class _Job:
    """A leaf that is computed."""

    step: Step
    cut: Cut
    result: Result

    @property
    def key(self) -> str:
        return self.step.leaf.key.text

    @property
    def itemsize(self) -> int:
        return self.step.value.spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the parts that this process holds, each once."""
        return sum(region.size for region in self.result.regions) * self.itemsize

    @property
    def weight(self) -> int:
        """Bytes in memory while one thread makes all of it."""
        return self.nbytes + self.cut.working_set


class _Run:
    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, Source],
        target: LiveTree | None,
        shardings: Mapping[str, Any],
        memory: int,
        workers: int,
        progress: Callable[[Progress], None] | None,
    ):
        self._plan, self._sources, self._target = plan, sources, target
        self._shardings, self._memory, self._workers = shardings, memory, workers
        self.values: dict[str, Any] = {}
        """What is done, by the text of its key."""
        self._moves: list[tuple[Step, moving.Moved]] = []
        self._jobs: list[_Job] = []
        for step in plan.steps:
            self._begin(step)
        total = sum(job.nbytes for job in self._jobs) + sum(step.leaf.nbytes for step, _ in self._moves)
        self._count = _Count(total, progress)
        self._donation: Donation | None = None

    def _begin(self, step: Step) -> None:
        """Decide how a value is made; what has no array is there at once."""
        key = step.leaf.key.text
        like = None if self._target is None else self._target.values[key]
        if step.leaf.spec is None:
            self.values[key] = _plain(step.leaf, like)
            return
        with about(step):
            found = self._moved(step, like)
        if found is not None:
            self._moves.append((step, found))
            return
        assert step.cut is not None
        result = result_of(step.leaf, like, self._shardings.get(key))
        self._jobs.append(_Job(step, finer(step.value, step.cut, BLOCK), result))

    def _moved(self, step: Step, like: Any) -> moving.Moved | None:
        """How a value that is a tree's own is taken over; None where it is computed."""
        if not isinstance(step.value, Read):
            return None
        source = self._sources[step.value.source]
        if not isinstance(source, TreeSource):
            return None
        value = source.tree.values[step.value.leaf.key.text]
        moving.check_exists(value, source.path)
        return moving.moved(value, like, self._shardings.get(step.leaf.key.text))

    def do(self, donate: bool) -> None:
        if donate and self._target is not None:
            staying = [move.value for _, move in self._moves if move.sharding is None]
            self._donation = Donation(self._plan, self._target, self._sources, staying)
        taken: set[int] = set()
        for step, move in self._moves:
            with about(step), memory_errors("move it", self._memory):
                self._note(step.leaf.key.text, _taken_over(move, taken), step.leaf.nbytes)
        with memory_errors("restore it", self._memory):
            for job in self._jobs:
                if job.nbytes > SIDE_BY_SIDE:
                    self._large(job)
            release_memory()
            small = [job for job in self._jobs if job.nbytes <= SIDE_BY_SIDE]
            together = batches(small, lambda job: job.nbytes)
            run_all(self._small, together, _heaviest, self._memory, self._workers)
        release_memory()

    def _small(self, jobs: Sequence[_Job]) -> None:
        """Make several leaves, one after the other."""
        for job in jobs:
            with about(job.step):
                filling = Filling(job.step.value, job.result, job.result.regions)
                for block in filling.blocks(job.cut.block):
                    self._fill(job, filling, block)
                self._note(job.key, job.result.value())

    def _large(self, job: _Job) -> None:
        """Make one leaf, with several threads."""
        room = job.nbytes if job.result.on_host else self._memory // 2
        with about(job.step):
            for regions in groups(job.result.regions, job.itemsize, room):
                filling = Filling(job.step.value, job.result, regions)
                run_all(
                    partial(self._fill, job, filling),
                    filling.blocks(job.cut.block),
                    lambda block: job.cut.working_set,
                    self._memory // 2,
                    self._workers,
                )
            self._note(job.key, job.result.value())

    def _fill(self, job: _Job, filling: Filling, block: Region) -> None:
        raise_if_cancelled()
        self._count.add(filling.fill(block, self._read) * job.itemsize)

    def _read(self, source: str, leaf: Leaf, region: Region) -> np.ndarray:
        raise_if_cancelled()
        return self._sources[source].read(leaf, region)

    def _note(self, key: str, value: Any, nbytes: int = 0) -> None:
        """A value is there; `nbytes` of it are not counted yet."""
        self.values[key] = value
        if nbytes:
            self._count.add(nbytes)
        if self._donation is not None:
            self._donation.done([key])


class _Count:
    """Counts bytes, and reports the progress. Safe to use from several threads."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None):
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            if self._progress is not None:
                self._progress(Progress(self._done, self._total))


def _heaviest(jobs: Iterable[_Job]) -> int:
    return max(job.weight for job in jobs)


def _plain(leaf: Leaf, like: Any) -> Any:
    """A text, or an empty node as the target has it."""
    if leaf.kind is LeafKind.STRING:
        return leaf.string
    make = _EMPTY.get(leaf.empty or "")
    return like if like is not None or make is None else make()


def _taken_over(move: moving.Moved, taken: set[int]) -> Any:
    """The value in its place; a copy if the result has it already: one buffer cannot be donated twice."""
    import jax

    if move.sharding is not None:
        return moving.put(move.value, move.sharding)
    if not isinstance(move.value, jax.Array):
        return move.value
    if id(move.value) in taken:
        return moving.copied(move.value)
    taken.add(id(move.value))
    return move.value
