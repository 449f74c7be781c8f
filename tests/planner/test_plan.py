"""The plan as a value: plans of the same metadata are equal, and what is left out has its default."""

import dataclasses
from dataclasses import replace

import pytest

from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Fate, Input, Plan, Step, Transfer
from tests.support.leaves import array_leaf
from tests.support.plans import plan_of

COSTS = Costs(bytes_out=6, bytes_linked=1, bytes_copied=2, bytes_computed=3, bytes_read=4, peak_memory=5)
RECIPE = "version: 1\nrules:\n- {match: a, to: b}\n- {match: c, drop: true}\n"
LEAVES = {"a": "int8[3]", "c": "int8[3]"}


def test_fates_and_transfers_are_the_words_of_reports() -> None:
    """They are written to JSON as they are, and read back."""
    assert [str(fate) for fate in Fate] == ["kept", "renamed", "transformed", "defaulted", "added"]
    assert [str(transfer) for transfer in Transfer] == ["link", "copy", "compute"]
    assert Transfer("link") is Transfer.LINK


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


def test_a_step_is_computed_unless_it_says_otherwise() -> None:
    step = Step(array_leaf("a"), Read("source", array_leaf("a")), Fate.KEPT, None, ())
    assert (step.transfer, step.cut, step.stored) == (Transfer.COMPUTE, None, None)


def test_the_defaults_of_one_plan_are_not_those_of_another() -> None:
    one, other = (Plan("recipe.yaml", "", (), (), (), (), COSTS) for _ in range(2))
    assert (one.metadata, one.params, one.hooks_sha256, one.restorable_by) == ({}, (), None, {})
    assert one.metadata is not other.metadata
    assert one.restorable_by is not other.restorable_by
    assert COSTS.bytes_dead == 0


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (Plan("recipe.yaml", "", (), (), (), (), COSTS), "steps"),
        (Input("source", "/old", "orbax", 1, ""), "path"),
        (COSTS, "bytes_out"),
    ],
    ids=["plan", "input", "costs"],
)
def test_a_plan_does_not_change_once_it_is_made(value: object, field: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, None)
