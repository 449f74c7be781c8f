"""Carry out a plan as arrays in this program; nothing is written."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import add_sentence
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import CHECKING, READING, ByteCounter, Progress
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.graph.evaluating import Evaluator
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.live.computing import ComputedLeaf, Computing, Filling
from ckpt_surgery.live.encoder import values_read
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.results import Discarded, HostValue, default_devices, let_memory_be_reused, result_of
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree, plain_value
from ckpt_surgery.live.wanted import type_of
from ckpt_surgery.planner.cutting import Cut, finer
from ckpt_surgery.planner.plan import Plan, Step, at_step
from ckpt_surgery.system.resources import release_memory

BLOCK = 16 << 20
"""Maximum bytes of a block while it is computed, unless smaller blocks would read more in all. Small blocks
stay near the caches, and give every thread work."""


@frozen(eq=False)
class Restoration:
    """A plan for arrays in memory, with everything that is needed to make them."""

    plan: Plan
    """Made for a `LiveEncoder` and this `memory`."""
    sources: Mapping[str, Source]
    """Open sources by the names that the plan has for them, the target among them."""
    target: LiveTree | None
    shardings: Mapping[str, Any]
    """Sharding of each array of JAX by the text of its key; None for the default device."""
    memory: int
    """Budget in bytes for what is computed, and for arrays on their way to devices whose memory is not the
    host's. The arrays of the result are not counted."""
    workers: int
    """Number of threads."""
    rebuilt: Callable[[Mapping[str, Any]], Any] | None = None
    """Builds the result from values by key, in the containers of the function that is the recipe, if any."""
    hooks: HookFile | None = None
    """File of the hooks that values call; None if there is none."""


Move = tuple[Any, Any | None]
"""A value of a tree that becomes a leaf, and its destination; None if the result has the same object."""


def make_arrays(
    restoration: Restoration,
    donate: bool = False,
    progress: Callable[[Progress], None] | None = None,
    lazily: Callable[[str, int], None] | None = None,
) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Read, compute and move every output of a plan; returns their values by key, in the plan's order.

    With a target, each value is what the target has there: an array of JAX, of NumPy, a number, a text, an
    empty node. Without one, arrays are JAX's, or NumPy's where JAX would narrow them, and scalars are
    Python's numbers, as Orbax restores them. With `donate`, each array of the target is deleted once it is
    replaced and nothing reads it any more. The second result has the numbers of non-finite elements that the
    recipe permits, by key, as far as this process holds them.

    With `lazily`, arrays are lazy: nothing of them is read yet. It is called at each read of one with
    permitted non-finite elements, with its key and their number.

    Raises SurgeryError, with the key, where values or files are bad, where memory ends, or after a signal.
    """
    plan, memory = restoration.plan, restoration.memory
    values, moves, jobs = _divide(restoration, lazily)
    staying = [value for _, (value, sharding) in moves if sharding is None]
    done = _donation(restoration, staying) if donate else None
    total = sum(job.nbytes for job in jobs) + sum(step.leaf.nbytes for step, _ in moves)
    count = ByteCounter(total, progress, READING)

    def keep(step: Step, value: Any) -> None:
        values[step.leaf.key.text] = value
        if done is not None:
            done(step.leaf.key.text)

    in_result: set[int] = set()
    for step, move in moves:
        with at_step(step), memory_errors("move it", memory):
            keep(step, _take_over(move, in_result))
        count.add(step.leaf.nbytes)
    let_memory_be_reused()
    computing = Computing(jobs, restoration.sources, memory, keep, count.add)
    computing.run(restoration.workers)
    release_memory()
    keys = (step.leaf.key.text for step in plan.steps)
    return {key: values[key] for key in keys}, computing.overflowed


def check_first(restoration: Restoration, progress: Callable[[Progress], None] | None = None) -> None:
    """Rehearse `make_arrays`: compute everything, and throw it away. Raises SurgeryError, with the key."""
    _, _, jobs = _divide(restoration, None)
    trials = [replace(job, result=Discarded(job.result, job.step.value.spec.dtype)) for job in jobs]
    count = ByteCounter(sum(job.nbytes for job in jobs), progress, CHECKING)
    sources, memory = restoration.sources, restoration.memory
    Computing(trials, sources, memory, lambda step, value: None, count.add).run(restoration.workers)
    release_memory()


def _divide(
    restoration: Restoration, lazily: Callable[[str, int], None] | None
) -> tuple[dict[str, Any], list[tuple[Step, Move]], list[ComputedLeaf]]:
    """Split a plan into values without elements, by key; values to take over from a tree; and jobs."""
    values, moves, jobs = dict[str, Any](), list[tuple[Step, Move]](), list[ComputedLeaf]()
    cuts: dict[int, Cut] = {}
    for step in restoration.plan.steps:
        key = step.leaf.key.text
        like = None if restoration.target is None else restoration.target.values[key]
        like = None if isinstance(like, LazyArray) else like
        sharding = restoration.shardings.get(key)
        if lazily is not None and _is_array(step.leaf, restoration):
            values[key] = PlannedArray(step, restoration, lazily)
        elif step.leaf.spec is None:
            is_kept = like is not None and step.leaf.kind is not LeafKind.STRING
            values[key] = like if is_kept else plain_value(step.leaf)
        elif (move := _move(step, restoration.sources, like, sharding)) is not None:
            moves.append((step, move))
        else:
            assert step.cut is not None
            # Outputs that are cut alike share one cut.
            cut = cuts[id(step.cut)] = cuts.get(id(step.cut)) or finer(step.value, step.cut, BLOCK)
            jobs.append(ComputedLeaf(step, cut, result_of(step.leaf, like, sharding)))
    return values, moves, jobs


def _move(step: Step, sources: Mapping[str, Source], like: Any, sharding: Any) -> Move | None:
    """Move that makes a tree's value a leaf unchanged; None if it has to pass through the host.

    `like`: what the target holds there, the value itself if it is kept; None without a target. `sharding`:
    that of the leaf; None for an array that is not bound to the default device.
    """
    import jax

    if not isinstance(step.value, Read) or not isinstance(source := sources[step.value.source], TreeSource):
        return None
    with at_step(step):
        value = source.value(step.value.leaf)
    if value is like and not isinstance(value, jax.Array):
        return value, None
    wanted = like is None or isinstance(like, jax.Array | jax.ShapeDtypeStruct)
    if not wanted or not isinstance(value, jax.Array):
        return None
    if sharding is None:
        at_home = not value.committed and value.devices() == default_devices()
        return (value, None) if value is like or at_home else None
    if value.committed and value.sharding.is_equivalent_to(sharding, value.ndim):
        return value, None
    return value, sharding


def _take_over(move: Move, in_result: set[int]) -> Any:
    """Put a value in its place; copy an array that is `in_result` already, as none can be donated twice."""
    import jax
    import jax.numpy as jnp

    value, sharding = move
    if sharding is not None:
        # Into memory that nothing else uses, so that it can be donated. Without the copy, JAX keeps what lies
        # on the right device, lets devices of the CPU share memory, and takes over that of NumPy's arrays.
        value = jax.device_put(value, sharding)
    elif not isinstance(value, jax.Array):
        return value
    elif id(value) not in in_result:
        in_result.add(id(value))
        return value
    return jax.device_put(value, value.sharding, may_alias=False) if value.committed else jnp.copy(value)


def _donation(restoration: Restoration, staying: Iterable[Any]) -> Callable[[str], None]:
    """Make a function that takes the key of each output once it exists, also from several threads.

    It deletes each array of the target once no output waits for it. `staying`: values that become part of the
    result, and so are never deleted.
    """
    target = restoration.target
    assert target is not None
    own = set(map(id, _jax_arrays(target.values.values()))) - set(map(id, staying))
    needed: dict[str, dict[int, Any]] = {}  # arrays by identity that the output of a key replaces or reads
    for step in restoration.plan.steps:
        used = _jax_arrays([target.values[step.leaf.key.text], *values_read(step, restoration.sources)])
        needed[step.leaf.key.text] = {id(array): array for array in used if id(array) in own}
    waiting = Counter(number for arrays in needed.values() for number in arrays)
    lock = threading.Lock()

    def done(key: str) -> None:
        with lock:
            for number, array in needed.pop(key, {}).items():
                waiting[number] -= 1
                if not waiting[number]:
                    array.delete()

    return done


@contextmanager
def naming_deletions(target: LiveTree) -> Iterator[None]:
    """Name in any error raised inside this context the target's arrays that were deleted there."""
    before = existing_arrays(target)
    try:
        yield
    except BaseException as error:
        remaining = set(existing_arrays(target))
        if deleted := [key for key in before if key not in remaining]:
            left = f"its other {len(remaining):,} arrays exist" if remaining else "none of its arrays is left"
            add_sentence(
                error,
                f"already deleted of the target: {few_keys(deleted)}; {left}",
                "Make the target again before you use it.",
            )
        raise


def existing_arrays(target: LiveTree) -> list[str]:
    """Keys of a target's arrays that a donation can still delete."""
    return [key for key, value in target.values.items() if _jax_arrays([value]) and not value.is_deleted()]


def _jax_arrays(values: Iterable[Any]) -> list[Any]:
    import jax

    return [value for value in values if isinstance(value, jax.Array)]


class PlannedArray(LazyArray):
    """An array of a plan's result. Nothing of it is computed before it is read."""

    def __init__(self, step: Step, restoration: Restoration, overflowed: Callable[[str, int], None]):
        leaf = step.leaf
        assert leaf.spec is not None
        super().__init__(leaf.spec, key=leaf.key.text, sharding=leaf.sharding, prng_impl=leaf.prng_impl)
        self._step = step
        self._restoration = restoration
        self._overflowed = overflowed

    @cached_property
    def _cut(self) -> Cut:
        assert self._step.cut is not None
        return finer(self._step.value, self._step.cut, BLOCK)

    def _read(self, region: Region) -> np.ndarray:
        """Compute a region block by block, as the plan cuts the array."""
        step, result, count = self._step, HostValue(region, self._spec.dtype), 0
        sources = self._restoration.sources
        evaluator = Evaluator(lambda source, leaf, part: sources[source].read(leaf, part))
        with at_step(step), memory_errors("make it", self._restoration.memory):
            filling = Filling(step.value, result, result.regions)
            for block in filling.blocks(self._cut.block):
                _, _, overflowed = filling.fill(block, evaluator, self._cut.pieces)
                count += overflowed
        if count:
            self._overflowed(self.key, count)
        array: np.ndarray = result.value()
        return array


def _is_array(leaf: Leaf, restoration: Restoration) -> bool:
    """True if an output is an array, and not a number, a text or an empty node."""
    like = None if restoration.target is None else restoration.target.values[leaf.key.text]
    if issubclass(type_of(like), bool | int | float | np.generic):
        return False
    return leaf.kind in (LeafKind.ARRAY, LeafKind.PRNG_KEY) or (leaf.spec is not None and like is not None)
