"""How the tasks of a plan are dealt out to shards."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.engine.tasks import FILES, UNITS_PER_SHARD, make_tasks, shares
from ckpt_surgery.planner.cutting import Cut
from ckpt_surgery.planner.plan import Plan, Transfer
from tests.engine.test_tasks import ALL_KINDS, plan_of_steps, step, stored
from tests.support.leaves import array_leaf


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


@pytest.mark.parametrize("count", [1, 2, 5])
def test_files_are_linked_by_one_shard(count: int) -> None:
    for number, part in enumerate(shares(ALL_KINDS, count)):
        assert any(task.step == 1 for task in part) == (number == FILES)
