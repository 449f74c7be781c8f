"""Tasks of plans that are written out, and what is put together for one thread."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.engine.tasks import Task, make_tasks
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.planner.cutting import Cut
from ckpt_surgery.planner.plan import Costs, Fate, Plan, Step, Transfer
from ckpt_surgery.system.threads import BYTES_TOGETHER, MOST_TOGETHER, batches
from tests.support.leaves import array_leaf, leaf


def step(
    output: Leaf,
    transfer: Transfer = Transfer.COMPUTE,
    cut: Cut | None = None,
    stored: Manifest | None = None,
) -> Step:
    return Step(output, Read("source", output), Fate.KEPT, None, (), transfer, cut, stored)


def stored(output: Leaf, chunks: Shape) -> Manifest:
    """The array in a file, of which only the first chunk is told."""
    assert output.spec is not None
    first = (0,) * output.spec.ndim
    return Manifest(output.spec, chunks, raw_codec(output.spec.ndim), {first: Chunk("/file", 0, 24)})


def plan_of_steps(*steps: Step) -> Plan:
    return Plan("recipe.yaml", "", (), steps, (), (), Costs(0, 0, 0, 0, 0, 0))


COMPUTED = array_leaf("computed", (5, 4))
LINKED = array_leaf("linked", (2, 3))
COPIED = array_leaf("copied", (6,), np.dtype(np.float64))
ROWS = Cut(chunks=(1, 4), block=(2, 4), working_set=100, read=80)
ALL_KINDS = plan_of_steps(
    step(COMPUTED, cut=ROWS),
    step(LINKED, Transfer.LINK, stored=stored(LINKED, (2, 3))),
    step(leaf("text", "string")),
    step(COPIED, Transfer.COPY, stored=stored(COPIED, (2,))),
)


# --- tasks ------------------------------------------------------------------------------------------


def test_stored_arrays_come_first_and_are_whole_and_computed_ones_follow_block_by_block() -> None:
    assert list(make_tasks(ALL_KINDS)) == [
        Task(0, 1, Region.whole((2, 3)), nbytes=24, working_set=0),
        Task(1, 3, Region.whole((6,)), nbytes=48, working_set=0),
        Task(2, 0, Region((0, 0), (2, 4)), nbytes=32, working_set=100),
        Task(3, 0, Region((2, 0), (4, 4)), nbytes=32, working_set=100),
        Task(4, 0, Region((4, 0), (5, 4)), nbytes=16, working_set=100),  # the last block is shorter
    ]


@pytest.mark.parametrize(("shape", "tasks"), [((), [Region((), ())]), ((0, 3), [])])
def test_a_scalar_is_one_task_and_an_empty_array_is_none(shape: Shape, tasks: list[Region]) -> None:
    cut = Cut(tuple(max(1, n) for n in shape), tuple(max(1, n) for n in shape), 0, 0)
    plan = plan_of_steps(step(array_leaf("a", shape), cut=cut))
    assert [task.region for task in make_tasks(plan)] == tasks


# --- batches ----------------------------------------------------------------------------------------


SIZES = st.integers(0, 3 * BYTES_TOGETHER // 2) | st.just(0)


@given(st.lists(SIZES, max_size=300))
def test_small_items_go_together_and_in_order(sizes: list[int]) -> None:
    found = list(batches(enumerate(sizes), lambda item: item[1]))
    assert [item for batch in found for item in batch] == list(enumerate(sizes))
    totals = [sum(size for _, size in batch) for batch in found]
    assert all(len(batch) <= MOST_TOGETHER for batch in found)
    assert all(len(batch) == 1 or total <= BYTES_TOGETHER for batch, total in zip(found, totals, strict=True))
    # No two neighbours could have been one.
    for one, other in itertools.pairwise(found):
        assert len(one) == MOST_TOGETHER or sum(s for _, s in one) + other[0][1] > BYTES_TOGETHER
