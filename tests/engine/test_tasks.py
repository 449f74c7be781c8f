"""Tasks of plans that are written out, their shards, and what is put together for one thread."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.engine.tasks import UNITS_PER_SHARD, Task, make_tasks, shares
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


# --- shards -----------------------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps = []
    for number in range(draw(st.integers(0, 6))):
        shape = draw(st.tuples(st.integers(0, 40), st.integers(0, 9)))
        leaf = array_leaf(f"leaf{number}", shape, np.dtype(np.float32))
        block = (draw(st.integers(1, 7)), draw(st.integers(1, 5)))
        transfer = draw(st.sampled_from(list(Transfer)))
        if transfer is Transfer.COMPUTE:
            steps.append(step(leaf, cut=Cut(block, block, 0, 0)))
        else:
            steps.append(step(leaf, transfer, stored=stored(leaf, tuple(max(1, n) for n in shape))))
    return plan_of_steps(*steps)


@given(plans(), st.integers(1, 9))
def test_every_task_is_in_one_shard_in_the_order_of_the_plan(plan: Plan, count: int) -> None:
    found = shares(plan, count)
    assert len(found) == count
    assert sorted(itertools.chain(*found), key=lambda task: task.number) == list(make_tasks(plan))
    assert all([task.number for task in part] == sorted(task.number for task in part) for part in found)
    assert shares(plan, count) == found


@given(plans(), st.integers(1, 9))
def test_no_shard_has_much_more_than_the_others(plan: Plan, count: int) -> None:
    linked = {n for n, one in enumerate(plan.steps) if one.transfer is Transfer.LINK}
    loads = [sum(task.nbytes for task in part if task.step not in linked) for part in shares(plan, count)]
    largest = max((task.nbytes for task in make_tasks(plan) if task.step not in linked), default=0)
    total = sum(loads)
    assert max(loads) <= total / count + max(largest, total / (count * UNITS_PER_SHARD)) + 1


def test_a_large_leaf_is_cut_and_stays_together_otherwise() -> None:
    leaf = array_leaf("large", (160, 4), np.dtype(np.float32))
    plan = plan_of_steps(step(leaf, cut=Cut((1, 4), (1, 4), 0, 0)))
    for part in shares(plan, 2):
        assert len(part) == 80
        starts = [task.region.starts[0] for task in part]
        breaks = sum(after != before + 1 for before, after in itertools.pairwise(starts))
        assert breaks < UNITS_PER_SHARD


@pytest.mark.each
@pytest.mark.parametrize("count", [1, 2, 5])
def test_files_are_linked_by_one_shard(count: int) -> None:
    for number, part in enumerate(shares(ALL_KINDS, count)):
        assert any(task.step == 1 for task in part) == (number == 0)
