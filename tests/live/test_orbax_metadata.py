"""Metadata of Orbax as targets: what `metadata()` of versions 0 and 1 returns gives what was saved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint.experimental import v1

import ckpt_surgery
from ckpt_surgery.core.errors import Code, PlanError, UsageError
from tests.support.checkpoints import quiet, save_pytree, save_standard, save_steps, save_v1

STATE: dict[str, Any] = {
    "w": jnp.arange(6, dtype=jnp.float32).reshape(2, 3),
    "list": [jnp.zeros(2, jnp.bfloat16), {"deep": jnp.ones(3)}],
    "wide": np.arange(3),
    "step": 7,
    "rate": 2.5,
    "name": "text",
    "none": None,
    "empty": {},
    "key": jax.random.key(3),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with checkpoints of the same state, one per interface of Orbax."""
    path = tmp_path_factory.mktemp("metadata")
    save_pytree(path / "pytree", STATE)
    save_standard(path / "standard", {key: value for key, value in STATE.items() if key != "name"})
    save_v1(path / "v1", STATE)
    return path


def pytree(saved: Path) -> Any:
    with quiet(), ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.metadata(saved / "pytree")


def version_1(saved: Path) -> Any:
    with quiet():
        return v1.metadata(saved / "v1")


CASES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "PyTreeCheckpointer": ("pytree", pytree),
    "its TreeMetadata": ("pytree", lambda saved: pytree(saved).item_metadata),
    "its tree": ("pytree", lambda saved: pytree(saved).item_metadata.tree),
    "StandardCheckpointer": (
        "standard",
        lambda saved: ocp.StandardCheckpointer().metadata(saved / "standard"),
    ),
    "version 1": ("v1", version_1),
    "its metadata": ("v1", lambda saved: version_1(saved).metadata),
    "version 1, items": ("v1", lambda saved: v1.checkpointables_metadata(saved / "v1")),
}


@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_was_saved(case: str, saved: Path) -> None:
    name, metadata = CASES[case]
    with quiet():
        target = metadata(saved)
    found = ckpt_surgery.restore(None, saved / name, target=target)
    wanted = {key: value for key, value in STATE.items() if key in found}
    assert found.keys() >= STATE.keys() - {"name"}
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(wanted))
    for ours, theirs in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert isinstance(ours, jax.Array) is isinstance(theirs, jax.Array)
        assert type(ours) is type(theirs) or isinstance(ours, jax.Array)
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
        assert jax.tree.all(jax.tree.map(lambda a, b: np.all(a == b), ours, theirs))


def test_plans_and_checkpoints_take_it_too(saved: Path, tmp_path: Path) -> None:
    plan = ckpt_surgery.plan(None, saved / "pytree", target=pytree(saved))
    assert len(plan.steps) == 10
    ckpt_surgery.apply(None, saved / "v1", dst=tmp_path / "out", target=version_1(saved))
    assert not ckpt_surgery.diff(saved / "v1", tmp_path / "out", values=True).different


def test_a_part_of_it_is_a_part_of_the_checkpoint(saved: Path) -> None:
    tree = pytree(saved).item_metadata
    found = ckpt_surgery.restore(None, saved / "pytree", target={"list": tree["list"], "w": ...})
    assert found["w"] is ...
    np.testing.assert_array_equal(found["list"][1]["deep"], np.ones(3))


def test_shapes_of_it_are_compared_and_it_has_no_values(saved: Path) -> None:
    fallback = {"version": 1, "target": {"missing": "fallback"}}
    for metadata in (pytree(saved), version_1(saved)):
        with pytest.raises(PlanError) as caught:
            ckpt_surgery.restore(fallback, {"w": np.zeros((5, 5), np.float32)}, target=metadata)
        assert {problem.code for problem in caught.value.problems} == {
            Code.TARGET_MISFIT,
            Code.TARGET_MISSING,
        }
        missing = [p.message for p in caught.value.problems if p.code is Code.TARGET_MISSING]
        assert all(f"`{key}`" in missing[0] for key in ("step", "rate", "name", "wide", "key"))


def described_by_manager(path: Path, **items: Any) -> tuple[Any, Any]:
    """Metadata of a step with these items and JSON, by both methods of the manager that saved it."""
    saves = {name: ocp.args.StandardSave(value) for name, value in items.items()}
    with quiet(), ocp.CheckpointManager(path, item_names=(*items, "data")) as manager:
        manager.save(1, args=ocp.args.Composite(data=ocp.args.JsonSave({"epoch": 1}), **saves))
        manager.wait_until_finished()
        return manager.item_metadata(1), manager.metadata(1)


def test_a_manager_describes_one_item_or_several(tmp_path: Path) -> None:
    for target in described_by_manager(tmp_path / "one", params={"w": jnp.ones(3)}):
        found = ckpt_surgery.restore(None, tmp_path / "one", target=target)
        np.testing.assert_array_equal(found["w"], np.ones(3))
    both = {"params": {"w": jnp.ones(3)}, "ema": {"w": jnp.zeros(3)}}
    metadata = described_by_manager(tmp_path / "two", **both)
    for target in metadata:
        with pytest.raises(UsageError, match=r"2 items: `ema`, `params`"):
            ckpt_surgery.restore(None, tmp_path / "two", target=target, item="ema")
    found = ckpt_surgery.restore(None, tmp_path / "two", target=metadata[0]["ema"], item="ema")
    np.testing.assert_array_equal(found["w"], np.zeros(3))


def test_a_manager_without_items_describes_its_tree(tmp_path: Path) -> None:
    save_steps(tmp_path / "steps", {1: {"w": jnp.ones(3)}})
    with quiet(), ocp.CheckpointManager(tmp_path / "steps") as manager:
        manager.restore(1, args=ocp.args.StandardRestore())
        metadata = manager.item_metadata(1), manager.metadata(1)
    for target in metadata:
        assert ckpt_surgery.restore(None, tmp_path / "steps", target=target)["w"].tolist() == [1, 1, 1]


def test_several_items_of_version_1_are_refused(tmp_path: Path) -> None:
    with quiet():
        v1.save_checkpointables(tmp_path / "c", {"one": {"w": jnp.ones(3)}, "two": {"w": jnp.ones(2)}})
        metadata = v1.checkpointables_metadata(tmp_path / "c")
        with pytest.raises(UsageError, match="2 items"):
            ckpt_surgery.restore(None, tmp_path / "c", target=metadata, item="one")
        found = ckpt_surgery.restore(None, tmp_path / "c", target=metadata.metadata["two"], item="two")
    assert found["w"].shape == (2,)


def test_metadata_without_a_tree_is_refused(tmp_path: Path) -> None:
    """Version 1 cannot describe a bool: it logs that, and its metadata is None."""
    save_v1(tmp_path / "c", {"flag": True})
    with quiet():
        metadata = v1.pytree_metadata(tmp_path / "c")
    assert metadata.metadata is None
    with pytest.raises(UsageError, match="CheckpointMetadata"):
        ckpt_surgery.restore(None, tmp_path / "c", target=metadata)
