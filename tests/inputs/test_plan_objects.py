"""Plans that are objects: carried out as they were made, without the recipe, or refused with what to do."""

import copy
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.errors import Code, SourceError, SourcesChanged, UsageError
from ckpt_surgery.planner.plan import origin_of
from ckpt_surgery.planner.prepared import plan_digest
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.documents import plan_json
from tests.support.merging import arrays as model_arrays
from tests.support.merging import save_config, save_model

ARRAYS = {"a/w": np.arange(8, dtype=np.float32).reshape(2, 4), "b": np.ones(3, np.float32)}
DOUBLED = {"x/w": ARRAYS["a/w"] * 2, "b": ARRAYS["b"]}
RECIPE = "version: 1\nrules:\n  - {match: 'a/(.*)', to: 'x/\\1', value: x * 2}\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_file(ARRAYS, tmp_path / "old.safetensors")
    return tmp_path / "old.safetensors"


def abstract() -> Any:
    return {"b": np.zeros(3, np.float32), "x": {"w": jax.ShapeDtypeStruct((2, 4), jnp.bfloat16)}}


# --- carried out ------------------------------------------------------------------------------------------


def test_apply_carries_out_a_plan_without_its_recipe(source: Path, recipe: Callable[[str], Path]) -> None:
    path = recipe(RECIPE)
    out, elsewhere = (source.parent / f"{name}.safetensors" for name in ("out", "elsewhere"))
    plan = ckpt_surgery.plan(path, source, dst=out)
    path.unlink()
    result = ckpt_surgery.apply(plan)
    assert plan_json(result.plan) == plan_json(plan)
    ckpt_surgery.apply(plan, dst=elsewhere, memory="1GiB", workers=1, verify="full")
    for file in (out, elsewhere):
        assert_same(load_file(file), DOUBLED)


def test_hooks_are_not_loaded_again(source: Path, tmp_path: Path, recipe: Callable[[str], Path]) -> None:
    hooks = tmp_path / "hooks.py"
    hooks.write_text("def add(x):\n    return x + 1\n")
    path = recipe("version: 1\nhooks: hooks.py\nrules:\n  - {match: b, value: hooks.add(x)}\n")
    plan = ckpt_surgery.plan(path, source, dst=tmp_path / "new.safetensors", allow_hooks=True)
    hooks.write_text("raise SystemExit\n")
    ckpt_surgery.apply(plan)
    np.testing.assert_array_equal(load_file(tmp_path / "new.safetensors")["b"], [2, 2, 2])


def test_the_steps_that_were_chosen_are_meant(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoints.save_pytree(tmp_path / "run" / str(step), {"w": np.full(3, step, np.float32)})
    latest = ckpt_surgery.plan(None, tmp_path / "run")
    both = ckpt_surgery.plan("@average", tmp_path / "run", last=2)
    checkpoints.save_pytree(tmp_path / "run/3", {"w": np.full(3, 9, np.float32)})
    for plan, value in ((latest, 2), (both, 1.5)):
        ckpt_surgery.apply(plan, dst=tmp_path / "new", overwrite=True)
        np.testing.assert_array_equal(ckpt_surgery.restore(None, tmp_path / "new")["w"], [value] * 3)


def test_trees_are_those_of_the_plan(tmp_path: Path) -> None:
    tree = {"a": {"w": np.arange(4.0)}, "b": np.ones(2)}
    plan = ckpt_surgery.plan(RECIPE, tree)
    tree["b"] = np.zeros(7)
    del tree["a"]
    ckpt_surgery.apply(plan, dst=tmp_path / "new")
    made = ckpt_surgery.restore(None, tmp_path / "new")
    assert_same(flatten_dict(made, sep="/"), {"b": np.ones(2), "x/w": np.arange(4.0) * 2})


def test_a_plan_of_a_merge_changes_the_config_too(tmp_path: Path) -> None:
    save_model(tmp_path / "base", model_arrays("models", "base"), dtype="float32")
    slices = [{"sources": [{"model": str(tmp_path / "base"), "layer_range": [0, 1]}]}]
    config = save_config(tmp_path / "merge.yaml", {"merge_method": "passthrough", "slices": slices})
    ckpt_surgery.merge(config, tmp_path / "wanted")
    ckpt_surgery.apply(ckpt_surgery.plan_merge(config), dst=tmp_path / "new")
    wanted, made = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("wanted", "new"))
    assert made == wanted
    assert wanted["num_hidden_layers"] == 1


# --- arrays -----------------------------------------------------------------------------------------------


def test_plan_restore_is_what_restore_does(source: Path, recipe: Callable[[str], Path]) -> None:
    path, seen = recipe(RECIPE), list[Any]()
    target = abstract()
    plan = ckpt_surgery.plan_restore(path, source, target=target)
    wanted = flatten_dict(ckpt_surgery.restore(path, source, target=target, on_plan=seen.append), sep="/")
    assert plan_json(plan) == plan_json(seen[0])
    assert [str(step.leaf.spec) for step in plan.steps] == ["float32[3]", "bfloat16[2,4]"]
    path.unlink()
    for options in ({}, {"memory": "1GiB", "workers": 1}):
        assert_same(flatten_dict(ckpt_surgery.restore(plan, **options), sep="/"), wanted)


def test_a_plan_has_its_shardings_and_targets_can_be_donated(source: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    sharding = NamedSharding(mesh, PartitionSpec("d"))
    target = {"a": {"w": jnp.zeros((2, 4))}}
    keep = "version: 1\nrules: [{match: b, drop: true}]\n"
    plan = ckpt_surgery.plan_restore(keep, source, target=target, shardings=sharding)
    made = ckpt_surgery.restore(plan, donate=True)
    assert made["a"]["w"].sharding == sharding
    np.testing.assert_array_equal(made["a"]["w"], ARRAYS["a/w"])
    assert target["a"]["w"].is_deleted()


# --- refused ----------------------------------------------------------------------------------------------


def test_sources_that_have_changed_are_refused(source: Path) -> None:
    applied = ckpt_surgery.plan(RECIPE, source)
    restored = ckpt_surgery.plan_restore(RECIPE, source, target=abstract())
    save_file({**ARRAYS, "c": np.ones(1)}, source)
    runs: list[Callable[[], object]] = [
        lambda: ckpt_surgery.apply(applied, dst=source.parent / "new"),
        lambda: ckpt_surgery.restore(restored),
    ]
    for carry_out in runs:
        with pytest.raises(SourceError, match="changed since the plan was made") as raised:
            carry_out()
        assert type(raised.value) is SourcesChanged
        assert [problem.code for problem in raised.value.problems] == [Code.CHANGED]
    source.unlink()
    for carry_out in runs:
        with pytest.raises(SourceError, match="does not exist"):
            carry_out()
    assert os.listdir(source.parent) == []


@pytest.mark.parametrize(
    ("sources", "options", "named"),
    [
        (1, {}, "the sources"),
        (0, {"step": 3}, "`step=…`"),
        (0, {"set": {"a": 1}, "format": "npz"}, "`format=…` and `set=…`"),
        (0, {"target": "x"}, "`target=…`"),
    ],
)
def test_what_a_plan_has_decided_cannot_be_said_again(
    sources: int, options: dict[str, Any], named: str, source: Path
) -> None:
    plan = ckpt_surgery.plan(RECIPE, source)
    with pytest.raises(UsageError) as raised:
        ckpt_surgery.apply(plan, *[source] * sources, dst=source.parent / "new", **options)
    (problem,) = raised.value.problems
    assert problem.hint == f"Leave out {named}, or make the plan again."


def test_a_plan_of_the_other_function_is_refused(source: Path) -> None:
    with pytest.raises(UsageError, match=r"Call `apply\(plan\)`"):
        ckpt_surgery.restore(ckpt_surgery.plan(RECIPE, source))
    with pytest.raises(UsageError, match=r"Call `restore\(plan\)`"):
        ckpt_surgery.apply(ckpt_surgery.plan_restore(RECIPE, source), dst=source.parent / "new")
    with pytest.raises(UsageError, match="a Plan is not a saved plan"):
        ckpt_surgery.apply_shard(ckpt_surgery.plan(RECIPE, source), shard="0/1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be of type Plan"):
        ckpt_surgery.plan(ckpt_surgery.plan(RECIPE, source), source)  # type: ignore[arg-type]


def test_a_plan_remembers_without_being_another(source: Path) -> None:
    plan = ckpt_surgery.plan(RECIPE, source)
    same = replace(plan)
    assert plan == same
    assert repr(plan) == repr(same)
    assert plan_digest(plan) == plan_digest(same)
    assert origin_of(plan) is not None
    for other in (same, pickle.loads(pickle.dumps(plan)), copy.copy(plan), copy.deepcopy(plan)):
        assert origin_of(other) is None
        assert vars(other).keys() == vars(same).keys()
        with pytest.raises(UsageError, match="Give the Plan itself"):
            ckpt_surgery.apply(other, dst=source.parent / "new")
