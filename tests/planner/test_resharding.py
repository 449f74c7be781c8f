"""Shardings that a recipe gives, that a target has, and that do not survive; restored by stock Orbax."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.live.shardings import resolved_shardings
from ckpt_surgery.live.tree import live_tree
from tests.support import checkpoints
from tests.support.checkpoints import random, save_standard, sharded
from tests.support.trees import flattened

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


def written(directory: Path, text: str) -> Path:
    (directory / "recipe.yaml").write_text(f"version: 1\n{text}")
    return directory / "recipe.yaml"


def restored(path: Path) -> dict[str, Any]:
    """The arrays that stock Orbax restores when it is given no target, by key."""
    with checkpoints.quiet(), ocp.StandardCheckpointer() as checkpointer:
        return dict(flattened(checkpointer.restore(path)))


def over(*spec: Any) -> Sharding:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    return NamedSharding(mesh, PartitionSpec(*spec))


def test_a_sharding_that_does_not_survive_is_told_once(layers: Path, tmp_path: Path) -> None:
    plan = ckpt_surgery.plan(written(tmp_path, STACK), layers)
    says = (
        "the sharding P('x', 'y') on mesh x:4,y:2 does not survive in `layers/kernel`: it was for [8, 4], "
        "this is [3, 8, 4]; `output: {sharding: …}` gives another"
    )
    assert plan.warnings == (says,)
    other = ckpt_surgery.plan(written(tmp_path, STACK), layers, format="safetensors")
    assert not any("sharding" in warning for warning in other.warnings)


def test_stock_orbax_restores_onto_the_shardings_of_the_recipe(layers: Path, tmp_path: Path) -> None:
    text = STACK + SPECS.replace(".*_step", "step")
    result = ckpt_surgery.apply(written(tmp_path, text), layers, dst=tmp_path / "new")
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
    plan = ckpt_surgery.apply(written(tmp_path, text), layers, dst=tmp_path / "new").plan
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
    ckpt_surgery.apply(written(tmp_path, text), layers, dst=tmp_path / "new", target=tmp_path / "target")
    found = restored(tmp_path / "new")
    assert found["layers/kernel"].sharding == over(None, ("model", "data"))
    np.testing.assert_array_equal(found["layers/kernel"], np.stack([random((8, 4), i) for i in range(3)]))
    assert found["step"].sharding.spec == PartitionSpec()  # its own


def test_a_target_without_shardings_is_told(layers: Path, tmp_path: Path) -> None:
    save_standard(tmp_path / "target", {"step": np.int32(0)})
    recipe = written(tmp_path, "output: {sharding: target}\n")
    plan = ckpt_surgery.plan(recipe, layers, target=tmp_path / "target")
    assert plan.warnings == ("`sharding: target`: no leaf of the target has a sharding",)
    with pytest.raises(PlanError, match=r"2:20  output.sharding\n(.|\n)*`sharding: target` needs a target"):
        ckpt_surgery.plan(recipe, layers)


def test_specs_that_do_not_fit_are_told_together_at_their_lines(layers: Path, tmp_path: Path) -> None:
    text = "output: {sharding: {mesh: {m: 3}, specs: {\n  '.*/kernel': [m],\n  '.*': [null, m]}}}\n"
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.plan(written(tmp_path, text), layers)
    says = [(p.place and p.place.line, p.message) for p in caught.value.problems]
    assert sorted(says) == [
        (3, "`layer_{0..2}/kernel` (3 leaves) has 8 along axis 0, which does not divide into 3 parts (m: 3)"),
        (4, "`layer_{0..2}/bias` (3 leaves) has 1 axis, the spec P(None, 'm') is for 2"),
        (4, "`other` has 1 axis, the spec P(None, 'm') is for 2"),
        (4, "`step` has no axes, the spec P(None, 'm') is for 2"),
    ]


def test_formats_without_a_place_for_them_say_so(layers: Path, tmp_path: Path) -> None:
    plan = ckpt_surgery.plan(written(tmp_path, STACK + SPECS), layers, dst=tmp_path / "new.npz")
    says = "`output.sharding` is left out: the destination's format has no place for shardings"
    assert says in plan.warnings


def test_arrays_in_memory_lie_where_the_call_says(layers: Path, tmp_path: Path) -> None:
    plans: list[ckpt_surgery.Plan] = []
    ckpt_surgery.restore(written(tmp_path, STACK + SPECS), layers, on_plan=plans.append)
    why = "it is for checkpoints; arrays lie where `shardings=` and the target say"
    assert f"`output.sharding` is left out: {why}" in plans[0].warnings


def test_the_recorded_shardings_are_those_of_equal_rules_in_a_program(layers: Path, tmp_path: Path) -> None:
    """What stock Orbax restores onto, told by nothing but the checkpoint, and what `shardings=` gives."""
    text = STACK + SPECS.replace(".*_step", "step|other")
    result = ckpt_surgery.apply(written(tmp_path, text), layers, dst=tmp_path / "new")
    rules = {
        "layers/kernel": PartitionSpec(None, "data", "model"),
        "layers/.*": PartitionSpec(None, ("data", "model")),
        "step|other": PartitionSpec(),
    }
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    arrays = [step.leaf for step in result.plan.steps if step.leaf.kind is LeafKind.ARRAY]
    shapes = {
        leaf.key.text: jax.ShapeDtypeStruct(leaf.spec.shape, leaf.spec.dtype) for leaf in arrays if leaf.spec
    }
    found = restored(tmp_path / "new")
    assert sorted(shapes) == ["layers/bias", "layers/kernel", "other", "step"]
    live = resolved_shardings(live_tree(shapes), (mesh, rules))
    assert {text: found[text].sharding for text in shapes} == live


@pytest.mark.parametrize("way", ["option", "recipe"])
def test_no_sharding_is_recorded_so_that_any_machine_restores(layers: Path, tmp_path: Path, way: str) -> None:
    output = "output: {sharding: none}\n" if way == "recipe" else ""
    recipe = written(tmp_path, STACK + output)
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
