"""Keys that would be two things at once, and empty nodes that a destination has no place for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.formats.known import formats
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.plan_json import counts, plan_json
from ckpt_surgery.planner.planning import make_plan
from tests.support import checkpoints
from tests.support.leaves import listing
from tests.support.plans import COMPUTED, MEMORY, plan_of

HEAD = "version: 1\n"
WRITTEN = [name for name, offer in formats().items() if offer.writable]


# --- a leaf and a container -------------------------------------------------------------------------------

BOTH = [
    (
        "rules: [{match: c, to: a/b}]",
        ["a", "c"],
        None,
        "`a` would be both a leaf and the container of `a/b`: "
        "`a` is kept as it is, rules[0] (line 2) makes `a/b`",
    ),
    (
        "rules: [{match: c, to: a}]",
        ["a/b/c", "c"],
        None,
        "`a` would be both a leaf and the container of `a/b/c`: "
        "rules[0] (line 2) makes `a`, `a/b/c` is kept as it is",
    ),
    (
        "rules: [{match: c, to: a}, {match: d, to: a/b}]",
        ["c", "d"],
        None,
        "`a` would be both a leaf and the container of `a/b`: "
        "rules[0] (line 2) makes `a`, rules[1] (line 2) makes `a/b`",
    ),
    (
        "target: {prefer: target}\nrules: [{match: 'x', to: 'a/b'}]",
        ["x"],
        ["a/b", "a"],
        "`a` would be both a leaf and the container of `a/b`: "
        "`a` is the target's, rules[0] (line 3) makes `a/b`",
    ),
    (
        "",
        ["a", "a/b"],
        None,
        "`a` would be both a leaf and the container of `a/b`: `a` is kept as it is, `a/b` is kept as it is",
    ),
]


@pytest.mark.parametrize(("recipe", "source", "target", "says"), BOTH)
def test_both_leaves_are_named_with_who_made_them(
    recipe: str, source: list[str], target: list[str] | None, says: str
) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(HEAD + recipe, source, target=target)
    (problem,) = caught.value.problems
    assert problem.message == says
    assert problem.hint == "No checkpoint has both: rename one of them, or drop it."
    assert (problem.place is None) == ("rules" not in says)


def test_what_only_begins_alike_is_no_container() -> None:
    plan = plan_of(HEAD, ["a", "ab/c", "a.b", "a_/d", "b/a", "b/c/a"])
    assert len(plan.steps) == 6


def test_of_many_the_first_are_reported() -> None:
    """TensorFlow's optimizers name their slots so: one problem for each leaf, and not for all leaves."""
    keys = [f"w{i}{slot}" for i in range(30) for slot in ("", "/adam_m", "/adam_v")]
    with pytest.raises(PlanError) as caught:
        plan_of(HEAD, keys)
    assert len(caught.value.problems) == 21
    assert "`w0` would be both a leaf and the container of `w0/adam_m`" in str(caught.value)
    assert caught.value.problems[-1].message == "10 more keys would be both a leaf and a container"
    plan = plan_of(HEAD + "rules: [{match: '.*/adam_.', drop: true}]", keys)
    assert len(plan.steps) == 30


@pytest.mark.parametrize("format", WRITTEN)
def test_it_is_one_rule_for_all_formats(format: str, tmp_path: Path) -> None:
    """Some could hold both, by names alone; what comes of it could then go nowhere else."""
    np.savez(tmp_path / "x.npz", **{"a": np.ones(3), "a/b": np.ones(3)})
    with pytest.raises(PlanError, match="`a` would be both a leaf and the container of `a/b`"):
        applying.convert(tmp_path / "x.npz", tmp_path / "out", format=format)
    assert [leaf.key.text for leaf in ckpt_surgery.inspect(tmp_path / "x.npz").leaves] == ["a", "a/b"]


# --- empty nodes ------------------------------------------------------------------------------------------


def planned(recipe: str, leaves: dict[str, str]) -> Plan:
    """For a destination without a place for empty nodes."""
    without = replace(COMPUTED, format="npz", holds_empty=False)
    return make_plan(
        parse_recipe(HEAD + recipe, "recipe.yaml"),
        {"source": listing(leaves)},
        None,
        [],
        {},
        without,
        MEMORY,
        2,
    )


def test_empty_nodes_are_left_out_with_a_warning() -> None:
    plan = planned("rules: [{match: '(.)', to: 'm/\\1'}]", {"w": "float32[2]", "x": "empty", "y": "empty"})
    assert [step.leaf.key.text for step in plan.steps] == ["m/w"]
    assert [(gone.leaf.key.text, gone.rule, gone.why) for gone in plan.dropped] == [
        ("x", None, "npz holds no empty nodes"),
        ("y", None, "npz holds no empty nodes"),
    ]
    assert plan.warnings == ("2 empty nodes cannot be stored in npz and are left out: `m/x`, `m/y`",)
    assert counts(plan)["dropped"] == 2
    assert plan_json(plan)["warnings"] == list(plan.warnings)


def test_one_empty_node_and_many() -> None:
    one = planned("", {"w": "float32[2]", "x": "empty"})
    assert one.warnings == ("the empty node `x` cannot be stored in npz and is left out",)
    many = planned("", {"w": "float32[2]"} | {f"x{i}": "empty" for i in range(12)})
    assert many.warnings == ("12 empty nodes cannot be stored in npz and are left out: `x{0..11}`",)


def test_there_is_no_warning_of_what_a_rule_drops() -> None:
    plan = planned("rules: [{match: x, drop: true}]", {"w": "float32[2]", "x": "empty"})
    assert plan.warnings == ()
    assert [gone.why for gone in plan.dropped] == ["drop"]


@pytest.mark.parametrize("format", WRITTEN)
def test_the_state_of_an_optimizer_goes_into_every_format(format: str, tmp_path: Path) -> None:
    """Optax has empty nodes in it: EmptyState, and None where a leaf is masked."""
    params = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
    state = optax.chain(optax.clip(1.0), optax.adam(1e-3)).init(params)
    with checkpoints.quiet(), ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", {"params": params, "opt": state, "none": None})
    plan = applying.convert(tmp_path / "x", tmp_path / "out", format=format).plan
    found = ckpt_surgery.diff(tmp_path / "x", tmp_path / "out", values=True)
    assert all(value.equal for value in found.values or ())
    left = {leaf.key.text for leaf in found.only_a}
    if formats()[format].holds_empty:
        assert (left, plan.warnings) == (set(), ())
    else:
        assert left == {leaf.key.text for leaf in ckpt_surgery.inspect(tmp_path / "x").leaves if leaf.empty}
        assert len(left) > 1
        assert f"{len(left)} empty nodes cannot be stored in {format}" in plan.warnings[0]
