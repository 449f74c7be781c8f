"""Outputs for any destination: flat dicts, empty nodes, keys that are both leaf and container."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.formats.known import formats
from ckpt_surgery.planner.outputs import flat_dicts
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.plan_json import counts
from tests.support import checkpoints
from tests.support.checkpoints import quiet, random, save_standard, sharded
from tests.support.command_line import run
from tests.support.leaves import listing
from tests.support.plans import COMPUTED, plan_of, plan_over, problems_of
from tests.support.trees import flattened

HEAD = "version: 1\n"
WRITTEN = [name for name, offer in formats().items() if offer.writable]


# --- a leaf and a container -------------------------------------------------------------------------------

BOTH = [
    ("rules: [{match: c, to: a/b}]", ["a", "c"], None, "kept, by rules[0] (line 2)"),
    ("rules: [{match: c, to: a}]", ["a/b", "c"], None, "by rules[0] (line 2), kept"),
    (
        "rules: [{match: c, to: a}, {match: d, to: a/b}]",
        *(["c", "d"], None, "by rules[0] (line 2), by rules[1] (line 2)"),
    ),
    (
        "target: {prefer: target}\nrules: [{match: 'x', to: 'a/b'}]",
        *(["x"], ["a/b", "a"], "defaulted, by rules[0] (line 3)"),
    ),
    ("", ["a", "a/b"], None, "kept, kept"),
]


@pytest.mark.parametrize(("recipe", "source", "target", "makers"), BOTH)
def test_both_leaves_are_named_with_who_made_them(
    recipe: str, source: list[str], target: list[str] | None, makers: str
) -> None:
    (problem,) = problems_of(plan_of, HEAD + recipe, source, target=target)
    assert problem.message == f"`a` would be both a leaf and the container of `a/b`: {makers}"
    assert problem.hint == "No checkpoint has both: rename one of them, or drop it."
    assert (problem.place is None) == ("rules" not in makers)


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
    return plan_over(HEAD + recipe, {"source": listing(leaves)}, without)


def test_empty_nodes_are_left_out_with_a_warning() -> None:
    plan = planned("rules: [{match: '(.)', to: 'm/\\1'}]", {"w": "float32[2]", "x": "empty", "y": "empty"})
    assert [step.leaf.key.text for step in plan.steps] == ["m/w"]
    assert [(gone.leaf.key.text, gone.rule, gone.why) for gone in plan.dropped] == [
        ("x", None, "npz holds no empty nodes"),
        ("y", None, "npz holds no empty nodes"),
    ]
    assert plan.warnings == ("npz cannot store 2 empty nodes, left out: `m/x`, `m/y`",)
    assert counts(plan)["dropped"] == 2
    one = planned("", {"w": "float32[2]", "x": "empty"})
    assert one.warnings == ("npz cannot store 1 empty node, left out: `x`",)
    many = planned("", {"w": "float32[2]"} | {f"x{i}": "empty" for i in range(12)})
    assert many.warnings == ("npz cannot store 12 empty nodes, left out: `x{0..11}`",)
    ruled = planned("rules: [{match: x, drop: true}]", {"w": "float32[2]", "x": "empty"})
    assert (ruled.warnings, [gone.why for gone in ruled.dropped]) == ((), ["drop"])


TREE = {
    "Conv_0": {"kernel": np.ones((2, 2), np.float32), "bias": np.ones(2, np.float32)},
    "head": {"kernel": np.zeros(2, np.float32)},
}
RENAMED = {
    "version": 1,
    "rules": [
        {"match": "head/(.*)", "to": "new/head/\\1"},
        {"add": "new/b", "value": "zeros([2], 'float32')"},
    ],
}
KEYS = {"Conv_0/kernel", "Conv_0/bias", "new/head/kernel", "new/b"}


def test_keys_are_texts_or_tuples_as_they_were_and_a_nested_target_nests_them() -> None:
    assert set(ckpt_surgery.restore(RENAMED, flatten_dict(TREE, sep="/"))) == KEYS
    found = ckpt_surgery.restore(RENAMED, flatten_dict(TREE))
    assert set(found) == {tuple(key.split("/")) for key in KEYS}
    np.testing.assert_array_equal(found["new", "head", "kernel"], np.zeros(2))
    found = ckpt_surgery.restore(None, flatten_dict(TREE, sep="/"), target=TREE)
    assert set(found["Conv_0"]) == {"kernel", "bias"}


def test_a_flat_dict_within_a_tree() -> None:
    recipe = {
        "version": 1,
        "rules": [{"match": "state/head/(.*)", "to": "state/x/\\1"}, {"match": "step", "to": "a/b"}],
    }
    found = ckpt_surgery.restore(recipe, {"state": flatten_dict(TREE, sep="/"), "step": 3})
    assert set(found["state"]) == {"Conv_0/kernel", "Conv_0/bias", "x/kernel"}
    assert found["a"] == {"b": 3}


@pytest.mark.parametrize(
    ("keys", "flat"),
    [
        ([("a/b",), ("c",)], {()}),
        ([("a/b",), ("c", "d")], set()),
        ([("s", "a/b"), ("t", "c")], {("s",)}),
        ([("mlp/~/linear_0", "w")], set()),  # Haiku's modules
    ],
)
def test_a_dict_is_flat_where_a_key_has_a_slash_and_no_value_is_a_container(
    keys: Any, flat: set[Any]
) -> None:
    assert flat_dicts(list(map(Key.of, keys))) == flat


def test_trees_of_any_depth_are_flattened_and_nested(tmp_path: Path) -> None:
    with quiet():
        ocp.PyTreeCheckpointer().save(tmp_path / "tree", TREE)
        ckpt_surgery.apply("@flatten", tmp_path / "tree", dst=tmp_path / "flat")
        ckpt_surgery.apply(RENAMED, tmp_path / "flat", dst=tmp_path / "renamed")
        ckpt_surgery.apply("@nest", tmp_path / "renamed", dst=tmp_path / "nested")
        flat, renamed, nested = (
            ocp.PyTreeCheckpointer().restore(tmp_path / name) for name in ("flat", "renamed", "nested")
        )
    assert set(flat) == set(flatten_dict(TREE, sep="/"))
    assert set(renamed) == KEYS
    assert set(flatten_dict(nested, sep="/")) == KEYS
    np.testing.assert_array_equal(
        nested["Conv_0"]["kernel"], unflatten_dict(flat, sep="/")["Conv_0"]["kernel"]
    )


def test_a_slash_in_a_component_is_printed_and_accepted_with_a_backslash(tmp_path: Path) -> None:
    source, printed = tmp_path / "flat", r"enc/b\/c"
    flat = {"enc": {"kernel": np.ones((2, 2), np.float32), "b/c": np.ones(2, np.float32)}, "step": 3}
    ckpt_surgery.apply(None, flat, dst=source)
    assert r"b\/c" in run("inspect", source).stdout
    assert printed in run("inspect", source, "--under", printed, "--full").stdout
    listed = json.loads(run("inspect", source, "--json", "-").stdout)["leaves"]
    assert {tuple(leaf["components"]) for leaf in listed} == {("enc", "kernel"), ("enc", "b/c"), ("step",)}

    rules = ["-e", rf"{printed} = x * source['enc/b\/c'][0]", "-e", r"s|enc/kernel|enc/k\/l|"]
    assert printed in run("plan", *rules, source, "--full").stdout
    steps = json.loads(run("plan", *rules, source, "--json", "-").stdout)["leaves"]
    assert {tuple(step["components"]) for step in steps} == {("enc", "k/l"), ("enc", "b/c"), ("step",)}
    for key in ("enc/b/c", printed):
        assert f"becomes      {printed}" in run("explain", *rules, source, key).stdout
    ckpt_surgery.apply("@nest", source, dst=tmp_path / "nested")
    assert run("plan", "@nest", source).stdout.count(rf"{printed} → enc/b/c") == 1
    (tmp_path / "listing.json").write_text(run("inspect", source, "--json", "-").stdout)
    for target in (source, tmp_path / "listing.json"):
        fitted = ckpt_surgery.plan(None, tmp_path / "nested", target=target)
        assert Key.of(["enc", "b/c"]) in [step.leaf.key for step in fitted.steps]


STACK = """
rules:
- match: 'layer_(?P<i>.)/(?P<name>.*)'
  to: 'layers/${name}'
  by: int(i)
  value: stack(xs)
"""
SPECS = """
output:
  sharding:
    mesh: {data: 2, model: 4}
    specs:
      'layers/kernel': [null, data, model]
      'layers/.*': [null, [data, model]]
      '.*_step': []
"""


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    tree: dict[str, Any] = {
        f"layer_{i}": {"kernel": sharded(random((8, 4), i), "x", "y"), "bias": random((8,), i)}
        for i in range(3)
    }
    save_standard(tmp_path / "old", {**tree, "step": sharded(np.int32(7)), "count": 3, "other": random((2,))})
    return tmp_path / "old"


def restored(path: Path) -> dict[str, Any]:
    """The arrays that stock Orbax restores when it is given no target, by key."""
    with checkpoints.quiet(), ocp.StandardCheckpointer() as checkpointer:
        return dict(flattened(checkpointer.restore(path)))


MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


def over(*spec: Any) -> Sharding:
    return NamedSharding(MESH, PartitionSpec(*spec))


def test_a_sharding_that_does_not_survive_is_told_once(layers: Path) -> None:
    plan = ckpt_surgery.plan(HEAD + STACK, layers)
    says = (
        "the sharding P('x', 'y') on mesh x:4,y:2 does not survive in `layers/kernel`: it was for [8, 4], "
        "this is [3, 8, 4]; `output: {sharding: …}` gives another"
    )
    assert plan.warnings == (says,)
    other = ckpt_surgery.plan(HEAD + STACK, layers, format="safetensors")
    assert not any("sharding" in warning for warning in other.warnings)


def test_stock_orbax_restores_onto_the_shardings_of_the_recipe(layers: Path, tmp_path: Path) -> None:
    text = STACK + SPECS.replace(".*_step", "step")
    result = ckpt_surgery.apply(HEAD + text, layers, dst=tmp_path / "new")
    assert result.plan.warnings == ()
    found = restored(tmp_path / "new")
    assert found["layers/kernel"].sharding == over(None, "data", "model")
    assert found["layers/bias"].sharding == over(None, ("data", "model"))
    assert found["step"].sharding == over()
    assert len(found["layers/kernel"].sharding.device_set) == 8
    assert isinstance(found["other"], np.ndarray)  # no pattern matches it, and it had none
    np.testing.assert_array_equal(found["layers/kernel"], np.stack([random((8, 4), i) for i in range(3)]))
    assert (int(found["step"]), found["count"]) == (7, 3)


def test_what_no_spec_matches_keeps_its_own(layers: Path, tmp_path: Path) -> None:
    text = SPECS.replace("layers/", "nothing/").replace("'.*_step'", "'layer_0/.*'")
    plan = ckpt_surgery.apply(HEAD + text, layers, dst=tmp_path / "new").plan
    assert [warning.partition(" matches")[0] for warning in plan.warnings] == [
        "`output.sharding`: `nothing/kernel`",
        "`output.sharding`: `nothing/.*`",
    ]
    found = restored(tmp_path / "new")
    assert found["layer_0/kernel"].sharding == over()
    assert found["layer_1/kernel"].sharding.spec == PartitionSpec("x", "y")


def test_the_shardings_of_the_target(layers: Path, tmp_path: Path) -> None:
    target = {
        "layers": {"kernel": jax.device_put(np.zeros((3, 8, 4), np.float32), over(None, ("model", "data")))},
        "step": np.int32(0),
    }
    save_standard(tmp_path / "target", target)
    text = STACK + "output: {sharding: target}\n"
    ckpt_surgery.apply(HEAD + text, layers, dst=tmp_path / "new", target=tmp_path / "target")
    found = restored(tmp_path / "new")
    assert found["layers/kernel"].sharding == over(None, ("model", "data"))
    np.testing.assert_array_equal(found["layers/kernel"], np.stack([random((8, 4), i) for i in range(3)]))
    assert found["step"].sharding.spec == PartitionSpec()  # its own


def test_a_target_without_shardings_is_told(layers: Path, tmp_path: Path) -> None:
    save_standard(tmp_path / "target", {"step": np.int32(0)})
    recipe = HEAD + "output: {sharding: target}\n"
    plan = ckpt_surgery.plan(recipe, layers, target=tmp_path / "target")
    assert plan.warnings == ("`sharding: target`: no leaf of the target has a sharding",)
    with pytest.raises(PlanError, match=r"2:20  output.sharding\n(.|\n)*`sharding: target` needs a target"):
        ckpt_surgery.plan(recipe, layers)


def test_specs_that_do_not_fit_are_told_together_at_their_lines(layers: Path) -> None:
    text = "output: {sharding: {mesh: {m: 3}, specs: {\n  '.*/kernel': [m],\n  '.*': [null, m]}}}\n"
    problems = problems_of(ckpt_surgery.plan, HEAD + text, layers)
    says = [(p.place and p.place.line, p.message) for p in problems]
    assert sorted(says) == [
        (3, "`layer_{0..2}/kernel` (3 leaves) has 8 along axis 0, which does not divide into 3 parts (m: 3)"),
        (4, "`layer_{0..2}/bias` (3 leaves) has 1 of the 2 axes that the spec P(None, 'm') is for"),
        (4, "`other` has 1 of the 2 axes that the spec P(None, 'm') is for"),
        (4, "`step` has 0 of the 2 axes that the spec P(None, 'm') is for"),
    ]


def test_what_has_no_place_for_shardings_says_so(layers: Path, tmp_path: Path) -> None:
    recipe, plans = HEAD + STACK + SPECS, []
    plans.append(ckpt_surgery.plan(recipe, layers, dst=tmp_path / "new.npz"))
    ckpt_surgery.restore(recipe, layers, on_plan=plans.append)
    for plan, why in zip(
        plans,
        (
            "the destination's format has no place for shardings",
            "it is for checkpoints; arrays lie where `shardings=` and the target say",
        ),
        strict=True,
    ):
        assert f"`output.sharding` is left out: {why}" in plan.warnings


@pytest.mark.parametrize("way", ["option", "recipe"])
def test_no_sharding_is_recorded_so_that_any_machine_restores(layers: Path, tmp_path: Path, way: str) -> None:
    output = "output: {sharding: none}\n" if way == "recipe" else ""
    recipe = HEAD + STACK + output
    unshard = None if way == "recipe" else True
    result = ckpt_surgery.apply(recipe, layers, dst=tmp_path / "new", unshard=unshard)
    assert result.plan.warnings == ()
    before, after = restored(layers), restored(tmp_path / "new")
    assert isinstance(before["layer_0/kernel"].sharding, NamedSharding)
    stacked = np.stack([before[f"layer_{i}/kernel"] for i in range(3)])
    assert {type(value) for value in after.values()} == {np.ndarray, int}
    np.testing.assert_array_equal(after["layers/kernel"], stacked)
    np.testing.assert_array_equal(after["step"], 7)
    assert all(leaf.sharding is None for leaf in ckpt_surgery.inspect(tmp_path / "new").leaves)
