"""Recipes inside Orbax's checkpoint managers: before and after saves, with composites, and in version 1."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.orbax import RecipeRestore, handler_registry

OLD = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.int32(3)}
RECIPE = {"version": 1, "rules": [{"match": "a", "to": "b", "value": "x.T"}]}
NEW = {"b": jax.ShapeDtypeStruct((3, 2), jnp.bfloat16), "step": jax.ShapeDtypeStruct((), jnp.int32)}


def check(found: Any) -> None:
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(NEW))
    assert found["b"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(found["b"], np.asarray(OLD["a"]).T.astype(jnp.bfloat16))
    assert int(found["step"]) == 3


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.StandardSave(OLD))
    return tmp_path / "run"


def manager(directory: Path, **options: Any) -> ocp.CheckpointManager:
    return ocp.CheckpointManager(directory, handler_registry=handler_registry(), **options)


def test_a_manager_restores_by_a_recipe_and_saves_as_ever(old: Path) -> None:
    with manager(old) as ours:
        found = ours.restore(1, args=RecipeRestore(RECIPE, NEW))
        check(found)
        ours.save(2, args=ocp.args.StandardSave(found))
        ours.wait_until_finished()
        check(ours.restore(2, args=ocp.args.StandardRestore(NEW)))
        check(ours.restore(1, args=RecipeRestore(RECIPE, NEW)))
        ours.save(3, args=ocp.args.StandardSave(found))
    for step in (2, 3):
        assert (old / str(step) / "default" / "manifest.ocdbt").is_file()
    with ocp.CheckpointManager(old) as stock:
        assert stock.all_steps() == [1, 2, 3]
        check(stock.restore(3, args=ocp.args.StandardRestore(NEW)))


def test_other_arguments_of_orbax_are_taken_after_a_recipe(old: Path) -> None:
    with manager(old) as ours:
        check(ours.restore(1, args=RecipeRestore(RECIPE, NEW)))
        ours.save(2, args=ocp.args.PyTreeSave(OLD))
        ours.wait_until_finished()
        check(ours.restore(2, args=RecipeRestore(RECIPE, NEW)))
    with ocp.CheckpointManager(old) as stock:
        restored = stock.restore(2, args=ocp.args.PyTreeRestore())
    np.testing.assert_array_equal(restored["a"], OLD["a"])


def test_items_of_a_composite(tmp_path: Path) -> None:
    with manager(tmp_path / "run") as ours:
        saved = {"state": ocp.args.StandardSave(OLD), "notes": ocp.args.JsonSave({"run": "a17"})}
        ours.save(1, args=ocp.args.Composite(**saved))
        ours.wait_until_finished()
        wanted = {"state": RecipeRestore(RECIPE, NEW), "notes": ocp.args.JsonRestore()}
        found = ours.restore(1, args=ocp.args.Composite(**wanted))
    check(found.state)
    assert found.notes == {"run": "a17"}


def test_steps_with_a_prefix(tmp_path: Path) -> None:
    options = ocp.CheckpointManagerOptions(step_prefix="ckpt")
    with manager(tmp_path / "run", options=options) as ours:
        ours.save(7, args=ocp.args.StandardSave(OLD))
        ours.wait_until_finished()
        check(ours.restore(7, args=RecipeRestore(RECIPE, NEW)))


def test_further_sources_and_options(old: Path) -> None:
    recipe = {
        "version": 1,
        "sources": ["base", "head"],
        "rules": [{"match": "a", "to": "b", "value": "x.T"}, {"match": "w", "source": "head"}],
    }
    head = {"w": np.full(4, 2, np.float32)}
    device = jax.sharding.SingleDeviceSharding(jax.devices()[3])
    target = {**NEW, "w": jax.ShapeDtypeStruct((4,), jnp.float32)}
    with manager(old) as ours:
        arguments = RecipeRestore(recipe, target, [head], {"shardings": device})
        found = ours.restore(1, args=arguments)
    check({name: found[name] for name in NEW})
    np.testing.assert_array_equal(found["w"], head["w"])
    assert {leaf.sharding for leaf in jax.tree.leaves(found)} == {device}


def test_version_1_loads_by_a_recipe(tmp_path: Path) -> None:
    old = jax.tree.map(jnp.asarray, OLD)
    ocp.v1.save_checkpointables(tmp_path / "new", {"model": old})
    found = ocp.v1.load_checkpointables(tmp_path / "new", {"model": RecipeRestore(RECIPE, NEW)})
    check(found["model"])
    plain = ocp.v1.load_checkpointables(tmp_path / "new", {"model": old})
    np.testing.assert_array_equal(plain["model"]["a"], OLD["a"])


def test_a_plan_that_fails_is_the_error_of_the_restore(old: Path) -> None:
    with manager(old) as ours, pytest.raises(PlanError, match="no source: `c`"):
        ours.restore(1, args=RecipeRestore(RECIPE, {**NEW, "c": NEW["b"]}))


@pytest.mark.parametrize("name", ["step", "item", "src_format", "target"])
def test_options_that_the_manager_decides(name: str, old: Path) -> None:
    with manager(old) as ours, pytest.raises(UsageError, match=f"`{name}` is not an option"):
        ours.restore(1, args=RecipeRestore(RECIPE, NEW, options={name: 1}))
