"""Restoring in a training program, as its author sees it: a real model, its checkpoint, what goes wrong."""

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.training.train_state import TrainState

import ckpt_surgery
from ckpt_surgery.formats.plain_files import ListedSource
from tests.support.calls import record_calls
from tests.support.checkpoints import quiet, save_standard

INPUTS = jax.random.normal(jax.random.key(7), (8, 4))


class Model(nn.Module):
    """So many dense layers of width 4, each called `NAME_I`, and a head."""

    depth: int
    name_of_layer: str = "layers"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for i in range(self.depth):
            x = x + nn.relu(nn.Dense(4, name=f"{self.name_of_layer}_{i}")(x))
        return nn.Dense(2, name="head")(x)


def new_state(model: Model, seed: int = 0) -> TrainState:
    variables = model.init(jax.random.key(seed), INPUTS)
    return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2))


def step(state: TrainState) -> tuple[TrainState, float]:
    loss = lambda params: jnp.mean(state.apply_fn({"params": params}, INPUTS) ** 2)  # noqa: E731
    value, gradients = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradients), float(value)


@pytest.fixture(scope="module")
def trained() -> TrainState:
    """A model of 4 layers after two steps."""
    state = new_state(Model(4))
    for _ in range(2):
        state, _ = step(state)
    return state


@pytest.fixture(scope="module")
def old(trained: TrainState, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its checkpoint."""
    path = tmp_path_factory.mktemp("trained") / "old"
    save_standard(path, trained)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the arrays that are read from checkpoints."""
    return record_calls(monkeypatch, ListedSource, "read", lambda source, leaf, region: leaf.key.text)


def same(found: Any, wanted: Any) -> None:
    """Trees of one structure, with the same values."""
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


# --- a state of the model's own -----------------------------------------------------------------------


def test_a_state_of_a_renamed_model_computes_the_same(old: Path, trained: TrainState) -> None:
    """Parameters and both moments of the optimizer follow one rule."""
    recipe = {"version": 1, "rules": [{"match": r"(.*)/layers_(\d+)/(.*)", "to": r"\1/block_\2/\3"}]}
    state = new_state(Model(4, "block"), seed=1)
    found = ckpt_surgery.restore(recipe, old, target=jax.eval_shape(lambda: state))
    assert type(found) is TrainState
    found = found.replace(apply_fn=state.apply_fn)  # which `eval_shape` made anew
    (after, first), (wanted_after, wanted_first) = step(found), step(trained)
    assert first == wanted_first
    assert step(after)[1] == step(wanted_after)[1] < first


def test_a_partial_restore_is_a_smaller_target(old: Path, trained: TrainState, reads: list[str]) -> None:
    wanted = {"params": {name: trained.params[name] for name in ("layers_0", "head")}}
    same(ckpt_surgery.restore(None, old, target=jax.eval_shape(lambda: wanted)), wanted)
    assert {*reads} == {
        f"params/{name}/{leaf}" for name in ("layers_0", "head") for leaf in ("bias", "kernel")
    }


# --- trees in place of checkpoints --------------------------------------------------------------------


@pytest.fixture(scope="module")
def shallow() -> TrainState:
    return new_state(Model(3), seed=1)


def test_a_tree_is_the_target_of_apply(
    old: Path, trained: TrainState, shallow: TrainState, tmp_path: Path
) -> None:
    plan = ckpt_surgery.apply(None, old, dst=tmp_path / "new", target=shallow).plan
    keys = {step.leaf.key.text for step in plan.steps}
    assert len(keys) == len(jax.tree.leaves(shallow)) + 1  # `opt_state/1` has no arrays
    assert {"params/layers_2/kernel", "opt_state/0/mu/head/bias", "opt_state/1", "step"} <= keys
    assert {leaf.leaf.key.text for leaf in plan.dropped} >= {"params/layers_3/kernel"}
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", shallow)
    same(found.params, {name: trained.params[name] for name in shallow.params})
    assert int(found.step) == 2
