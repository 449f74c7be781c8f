"""Programs of Orbax v1's and Flax's guides to model surgery, beside the library's own calls, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.core import freeze
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import v1

import ckpt_surgery
from ckpt_surgery.planner.plan import Fate, Plan
from tests.support.checkpoints import quiet

Tree = Any


def assert_same_bits(
    found: Tree, wanted: Tree, dtype_of: Callable[[Any], Any] = lambda leaf: leaf.dtype
) -> None:
    """Compare two trees; `dtype_of` a leaf of the second is the dtype that the first has."""
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(wanted))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if theirs is ...:
            assert ours is ...
            continue
        assert isinstance(ours, jax.Array) is isinstance(theirs, jax.Array)
        assert ours.dtype == dtype_of(theirs)
        assert np.asarray(ours).astype(theirs.dtype).tobytes() == np.asarray(theirs).tobytes()


# --- Orbax v1: a part of a checkpoint -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tree]:
    """A training state on a mesh, as the guide saves it."""
    path = tmp_path_factory.mktemp("guide") / "ckpt-1"
    rng = np.random.default_rng(0)
    state = {
        "params": {
            "layer0": {"kernel": rng.uniform(size=(2, 2)).astype(np.float32), "bias": np.ones(2, np.int32)}
        },
        "opt_state": {"0": rng.random(2).astype(np.float32), "1": [np.ones(2, np.float32)] * 2},
        "step": np.asarray(5, np.int32),
    }
    sharding = NamedSharding(Mesh(jax.devices(), ("x",)), PartitionSpec(None))
    state = jax.tree.map(lambda a: jax.make_array_from_callback(a.shape, sharding, lambda i: a[i]), state)
    with quiet():
        v1.save(path, state, overwrite=True)
    return path, state


def skipping(keys: Any, leaf: Any, kept: Callable[[Any], Any]) -> Any:
    first = jax.tree_util.keystr(keys, simple=True, separator="/").split("/")[0]
    return v1.PLACEHOLDER if first == "opt_state" else kept(leaf)


def test_placeholders_and_empty_arrays(saved: tuple[Path, Tree]) -> None:
    path, state = saved
    wanted = jax.tree.map_with_path(lambda k, leaf: skipping(k, leaf, lambda _: np.array([])), state)
    with quiet():
        theirs = v1.load(path, wanted)
    plans: list[Plan] = []
    found = ckpt_surgery.restore(None, path, target=wanted, on_plan=plans.append)
    stored = {id(a): b.dtype for a, b in zip(jax.tree.leaves(theirs), jax.tree.leaves(state), strict=True)}
    assert_same_bits(found, theirs, lambda leaf: stored[id(leaf)])
    assert {gone.leaf.key.text: gone.why for gone in plans[0].dropped} == dict.fromkeys(
        ["opt_state/0", "opt_state/1/0", "opt_state/1/1"], "placeholder"
    )
    assert {step.fate for step in plans[0].steps} == {Fate.KEPT}


# --- Flax: flat dicts, optimizers, modules ------------------------------------------------------------------


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(4, (3, 3))(x)).reshape((x.shape[0], -1))
        return nn.log_softmax(nn.Dense(3)(nn.relu(nn.Dense(8)(x))))


def by_hand(tree: Tree) -> Tree:
    """Halve one kernel and clear its bias, as the guide does."""
    flat = flatten_dict(tree)
    flat["Dense_0", "kernel"] = flat["Dense_0", "kernel"] * 0.5
    flat["Dense_0", "bias"] = jnp.zeros_like(flat["Dense_0", "bias"])
    return unflatten_dict(flat)


SURGERY = {
    "version": 1,
    "rules": [
        {"match": "(.*/)?Dense_0/kernel", "value": "x * 0.5"},
        {"match": "(.*/)?Dense_0/bias", "value": "0"},
    ],
}


@pytest.mark.slow("trains models of several libraries")
def test_params_flat_frozen_and_nested_and_moments_of_an_optimizer() -> None:
    params = CNN().init(jax.random.key(0), jnp.ones((1, 5, 5, 1)))["params"]
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    wanted = by_hand(params)
    for form in (lambda tree: tree, freeze, flatten_dict, lambda tree: flatten_dict(tree, sep="/")):
        source = form(params)
        assert_same_bits(ckpt_surgery.restore(SURGERY, source, target=source), form(wanted))
    assert_same_bits(ckpt_surgery.restore(SURGERY, flatten_dict(params)), flatten_dict(wanted))
    transformation = optax.adam(1e-3)
    state = transformation.update(params, transformation.init(params), params)[1]
    wanted = (state[0]._replace(mu=by_hand(state[0].mu), nu=by_hand(state[0].nu)), *state[1:])
    assert_same_bits(ckpt_surgery.restore(SURGERY, state, target=state), wanted)


class Old(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.linear1, self.linear2 = (nnx.Linear(4, 4, rngs=rngs) for _ in range(2))

    def __call__(self, x: Any) -> Any:
        return self.linear2(self.linear1(x))


class New(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.layer1, self.layer2 = (nnx.Linear(4, 4, rngs=rngs) for _ in range(2))

    def __call__(self, x: Any) -> Any:
        return self.layer2(self.layer1(x))


@pytest.mark.parametrize("abstract", [False, True])
def test_a_module_whose_parts_have_other_names(abstract: bool) -> None:
    old = Old(nnx.Rngs(0))
    target = nnx.eval_shape(lambda: New(nnx.Rngs(1))) if abstract else New(nnx.Rngs(1))
    rename = {"version": 1, "rules": [{"match": r"linear(\d)/(.*)", "to": r"layer\1/\2"}]}
    found = ckpt_surgery.restore(rename, nnx.state(old), target=target)
    state = nnx.state(New(nnx.Rngs(2)))
    for i in (1, 2):
        state[f"layer{i}"] = nnx.state(old)[f"linear{i}"]
    assert_same_bits(nnx.state(found), state)
    np.testing.assert_array_equal(found(jnp.ones((3, 4))), old(jnp.ones((3, 4))))


def test_a_part_that_is_new_keeps_its_own_values() -> None:
    def with_lora() -> Old:
        model = Old(nnx.Rngs(42))
        model.linear1 = nnx.LoRALinear(4, 4, lora_rank=3, rngs=nnx.Rngs(7))
        return model

    old, wanted = Old(nnx.Rngs(0)), with_lora()
    nnx.update(wanted, nnx.state(old))
    recipe = {"version": 1, "rules": [{"fill": ".*/lora/.*", "fallback": "missing"}]}
    found = ckpt_surgery.restore(recipe, nnx.state(old), target=with_lora())
    assert_same_bits(nnx.state(found), nnx.state(wanted))
