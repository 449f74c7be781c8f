"""Evaluate one task; run all of them."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.arrays import Leaf, Output, Region, Sink, Source
from ckpt_surgery.engines import local
from ckpt_surgery.errors import DataError, Problem, SurgeryError
from ckpt_surgery.functions.tiles import straightened
from ckpt_surgery.fusion import fused
from ckpt_surgery.nodes import Node, Read
from ckpt_surgery.planner import Plan, Step, Transfer
from ckpt_surgery.schedule import Task, batches, make_tasks
from ckpt_surgery.stopping import check_wanted

Reader = Callable[[str, Leaf, Region], np.ndarray]
"""(source name, leaf, region) → the elements."""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    done_bytes: int
    """Bytes of finished output regions."""
    total_bytes: int


def evaluate(node: Node, region: Region, read: Reader) -> np.ndarray:
    """The elements of one region of a node, laid out so that rows are quick to write."""
    return straightened(_block(node, region, read))


def _block(node: Node, region: Region, read: Reader) -> np.ndarray:
    if isinstance(node, Read):
        return read(node.source, node.leaf, region)
    block = _block_in_tiles(node, region, read)
    if block is not None:
        return block
    specs = [n.spec for n in node.inputs]
    blocks = [_block(node.inputs[i], part, read) for i, part in node.function.needs(region, specs)]
    return node.function.apply(region, specs, blocks)


def _block_in_tiles(node: Node, region: Region, read: Reader) -> np.ndarray | None:
    """None where the region is to be evaluated as a whole."""
    together = fused(node, region)
    if together is None:
        return None
    blocks = [_block(part, needed, read) for part, needed in together.parts]
    try:
        return together.apply(blocks)
    except DataError:
        return None  # the whole tells of the value that is furthest out, a tile of its own one


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
    """Write every output of the plan. Raises SurgeryError, with the key, where values or files are bad."""
    outputs = {id(step): output_of(step) for step in plan.steps}
    sink.create(list(outputs.values()))
    counter = _Counter(plan.costs.bytes_out, progress)

    def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        check_wanted()
        return sources[source].read(leaf, region)

    def compute(tasks: Sequence[Task]) -> None:
        for task in tasks:
            with _told_of(task.step):
                block = evaluate(task.step.value, task.region, read)
                check_wanted()
                sink.write(outputs[id(task.step)], task.region, block)
            counter.add(task.nbytes)

    def adopt(steps: Sequence[Step]) -> None:
        for step in steps:
            check_wanted()
            with _told_of(step):
                sink.adopt(outputs[id(step)])
            counter.add(step.leaf.nbytes)

    adopted = (step for step in plan.steps if step.stored is not None)
    local.run_all(adopt, batches(adopted, lambda step: step.leaf.nbytes), lambda steps: 0, memory, workers)
    tasks = batches(make_tasks(plan), lambda task: task.nbytes)
    local.run_all(compute, tasks, lambda batch: max(t.working_set for t in batch), memory, workers)
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
