"""Carry out a plan into arrays of this program: nothing is written."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.progress import CHECKING, READING, ByteCounter, Progress
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.engine.resources import release_memory
from ckpt_surgery.engine.staging import outcomes
from ckpt_surgery.engine.step_errors import about
from ckpt_surgery.graph.nodes import Read
from ckpt_surgery.live.computing import Computing, Job
from ckpt_surgery.live.moving import Moved, moved, taken_over
from ckpt_surgery.live.results import Discarded, result_of
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.staging_memory import let_memory_be_reused
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.planner.cutting import Cut, finer
from ckpt_surgery.planner.plan import Plan, Step

BLOCK = 16 << 20
"""Bytes that a block takes at most while it is computed, where smaller ones do not read more in all: it stays
near the caches, and all threads get work."""
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
    overflowed: Callable[[Mapping[str, int]], None] | None = None,
) -> Mapping[str, Any]:
    """The value of every output, by the text of its key, in the plan's order.

    The plan was made for a `LiveEncoder` and this `memory`, in bytes. It holds what is computed, and arrays
    on their way to devices whose memory is not the host's; the arrays of the result are not counted.
    `sources` are by the names that the plan has for them, the target among them. `shardings` are those of
    arrays of JAX, by key; None is the default device. `workers` is the number of threads.

    With a target, each value is what the target has there: an array of JAX, of NumPy, a number, a text, an
    empty node. Without one, arrays are JAX's, or NumPy's where JAX would narrow them, and scalars are
    Python's numbers, as Orbax restores them. With `donate`, each array of the target is deleted once it is
    replaced and nothing reads it any more. `overflowed` is called at the end with the numbers of elements
    that are not finite by permission, by key, as far as this process holds them.

    Raises SurgeryError, with the key, where values or files are bad, where memory ends, or after a signal.
    """
    values, moves, jobs = _divided(plan, sources, target, shardings)
    donation = None
    if donate and target is not None:
        donation = Donation(plan, target, sources, [move.value for _, move in moves if move.sharding is None])
    total = sum(job.nbytes for job in jobs) + sum(step.leaf.nbytes for step, _ in moves)
    count = ByteCounter(total, progress, READING)

    def made(step: Step, value: Any) -> None:
        values[step.leaf.key.text] = value
        if donation is not None:
            donation.done(step.leaf.key.text)

    taken: set[int] = set()
    for step, move in moves:
        with about(step), memory_errors("move it", memory):
            made(step, taken_over(move, taken))
        count.add(step.leaf.nbytes)
    let_memory_be_reused()
    computing = Computing(jobs, sources, memory, made, count.add)
    computing.run(workers)
    release_memory()
    if overflowed is not None:
        overflowed(computing.overflowed)
    return {step.leaf.key.text: values[step.leaf.key.text] for step in plan.steps}


def check_first(
    plan: Plan,
    sources: Mapping[str, Source],
    target: LiveTree,
    shardings: Mapping[str, Any],
    memory: int,
    workers: int,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Read and compute all that `carry_out` with these arguments does, and throw it away.

    Raises SurgeryError, with the key, where values or files are bad.
    """
    _, _, jobs = _divided(plan, sources, target, shardings)
    checks = [replace(job, result=Discarded(job.result, job.step.value.spec.dtype)) for job in jobs]
    count = ByteCounter(sum(job.nbytes for job in jobs), progress, CHECKING)
    Computing(checks, sources, memory, lambda step, value: None, count.add).run(workers)
    release_memory()


def _divided(
    plan: Plan, sources: Mapping[str, Source], target: LiveTree | None, shardings: Mapping[str, Any]
) -> tuple[dict[str, Any], list[tuple[Step, Moved]], list[Job]]:
    """The values without elements, by key; what a tree has already; and what is computed."""
    values: dict[str, Any] = {}
    moves: list[tuple[Step, Moved]] = []
    jobs: list[Job] = []
    cuts: dict[int, Cut] = {}
    for step in plan.steps:
        key = step.leaf.key.text
        like = None if target is None else target.values[key]
        if step.leaf.spec is None:
            values[key] = _plain(step.leaf, like)
        elif (move := _move(step, sources, like, shardings.get(key))) is not None:
            moves.append((step, move))
        else:
            assert step.cut is not None
            # Outputs that are cut alike share one cut.
            cut = cuts[id(step.cut)] = cuts.get(id(step.cut)) or finer(step.value, step.cut, BLOCK)
            jobs.append(Job(step, cut, result_of(step.leaf, like, shardings.get(key))))
    return values, moves, jobs


def _plain(leaf: Leaf, like: Any) -> Any:
    """A text, or an empty node as the target has it."""
    if leaf.kind is LeafKind.STRING:
        return leaf.string
    make = _EMPTY.get(leaf.empty or "")
    return like if like is not None or make is None else make()


def _move(step: Step, sources: Mapping[str, Source], like: Any, sharding: Any) -> Moved | None:
    """How a value that is a tree's own is taken over; None where the output is computed."""
    if not isinstance(step.value, Read):
        return None
    source = sources[step.value.source]
    if not isinstance(source, TreeSource):
        return None
    with about(step):
        value = source.value(step.value.leaf)
    return moved(value, like, sharding)


# --- donation ---------------------------------------------------------------------------------------------


class Donation:
    """The arrays of a target, each with the steps that have to be done before it goes.

    Safe to use from several threads.
    """

    def __init__(self, plan: Plan, target: LiveTree, sources: Mapping[str, Source], staying: Iterable[Any]):
        """`staying`: values that are part of the result, and so are never deleted."""
        kept = {id(value) for value in staying}
        self._arrays = {
            id(value): value for value in _arrays(target.values.values()) if id(value) not in kept
        }
        self._users: dict[int, set[str]] = {number: set() for number in self._arrays}
        for step in plan.steps:
            key = step.leaf.key.text
            for value in (target.values[key], *_read(step, sources)):
                if id(value) in self._users:
                    self._users[id(value)].add(key)
        self._used_by: dict[str, list[int]] = {}
        for number, keys in self._users.items():
            for key in keys:
                self._used_by.setdefault(key, []).append(number)
        self._lock = threading.Lock()

    def done(self, key: str) -> None:
        """The value of this key exists: delete the arrays that no other key waits for."""
        with self._lock:
            for number in self._used_by.get(key, ()):
                self._users[number].discard(key)
                if not self._users[number]:
                    self._arrays.pop(number).delete()


@contextmanager
def deletions_named(target: LiveTree) -> Iterator[None]:
    """Name the arrays of the target that were deleted inside in any error that is raised there."""
    there = _existing(target)
    try:
        yield
    except BaseException as error:
        remaining = set(_existing(target))
        if gone := [key for key in there if key not in remaining]:
            left = f"its other {len(remaining):,} arrays exist" if remaining else "none of its arrays is left"
            outcomes.add(
                error,
                f"already deleted of the target: {few_keys(gone)}; {left}",
                "Make the target again before you use it.",
            )
        raise


def has_arrays(target: LiveTree) -> bool:
    """True if a target has arrays that a donation can delete."""
    return bool(_existing(target))


def _existing(target: LiveTree) -> list[str]:
    """The keys of the arrays of a target that are not deleted."""
    return [key for key, value in target.values.items() if _arrays([value]) and not value.is_deleted()]


def _arrays(values: Iterable[Any]) -> list[Any]:
    import jax

    return [value for value in values if isinstance(value, jax.Array)]


def _read(step: Step, sources: Mapping[str, Source]) -> Sequence[Any]:
    """The values of trees in memory that a step reads."""
    found = [(sources[name], key) for name, key in step.sources]
    return [source.tree.values[key] for source, key in found if isinstance(source, TreeSource)]
