"""The plan as a value: plans of the same metadata are equal."""

from dataclasses import replace

from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Transfer
from tests.support.plans import plan_of

COSTS = Costs(bytes_out=6, bytes_linked=1, bytes_copied=2, bytes_computed=3, bytes_read=4, peak_memory=5)
RECIPE = "version: 1\nrules:\n- {match: a, to: b}\n- {match: c, drop: true}\n"
LEAVES = {"a": "int8[3]", "c": "int8[3]"}


def test_steps_and_plans_are_equal_by_all_that_they_hold() -> None:
    plan = plan_of(RECIPE, LEAVES)
    (step,) = plan.steps
    again = replace(step)
    assert again is not step
    assert again == step
    assert hash(again) == hash(step)
    assert step != replace(step, transfer=Transfer.COPY)
    assert step != replace(step, rule=RuleRef("rules[9]", 9))
    assert step != replace(step, cut=None)
    assert plan == replace(plan, steps=(again,))
    assert plan != replace(plan, dropped=())
    assert plan != replace(plan, costs=COSTS)
