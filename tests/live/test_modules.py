"""Modules of NNX as targets and sources: what they share stays shared, and they stay as they were."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery.live.tree import live_tree
from tests.support.checkpoints import quiet


class Model(nnx.Module):
    """A submodule under two names, a tied kernel, a list of layers and a random stream."""

    def __init__(self, seed: int = 0):
        rngs = nnx.Rngs(seed)
        self.encoder = nnx.Linear(3, 3, rngs=rngs)
        self.decoder = self.encoder
        self.embed = nnx.Embed(5, 3, rngs=rngs)
        self.head = nnx.Linear(3, 5, use_bias=False, rngs=rngs)
        self.head.kernel = self.embed.embedding
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.width = 3


def kernel(model: Any) -> Any:
    return model.encoder.kernel.get_value()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of the state of a model, as NNX's guide saves it."""
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", nnx.state(Model(1)))
    return tmp_path / "saved"


def is_whole(found: Any) -> bool:
    return (
        isinstance(found, Model)
        and found.decoder is found.encoder
        and found.head.kernel is found.embed.embedding
        and found.width == 3
    )


@pytest.mark.parametrize("abstract", [False, True])
def test_a_module_with_shared_parts_is_a_target(abstract: bool, saved: Path) -> None:
    target = nnx.eval_shape(lambda: Model(2)) if abstract else Model(2)
    before = kernel(target)
    found = ckpt_surgery.restore(None, saved, target=target)
    assert is_whole(found)
    assert found.encoder is not target.encoder
    assert kernel(target) is before
    wanted, restored = nnx.state(Model(1)), nnx.state(found)
    assert str(jax.tree.structure(restored)) == str(jax.tree.structure(wanted))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), restored, wanted))


@pytest.mark.slow("builds modules of Flax")
def test_a_checkpoint_of_the_module_itself_fits_too(tmp_path: Path) -> None:
    with quiet(), ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "module", Model(1))
    found = ckpt_surgery.restore(None, tmp_path / "module", target=Model(2))
    assert is_whole(found)
    np.testing.assert_array_equal(kernel(found), kernel(Model(1)))


def test_a_module_and_its_optimizer_in_one_tree() -> None:
    model = Model()
    tree = {"model": model, "optimizer": nnx.ModelAndOptimizer(model, optax.adam(1e-3), wrt=nnx.Param)}
    keys = list(live_tree(tree).leaves)
    assert [key for key in keys if key.endswith("decoder/kernel/value")] == [
        "model/decoder/kernel/value",
        "optimizer/opt_state/0/mu/decoder/kernel/value",
        "optimizer/opt_state/0/nu/decoder/kernel/value",
    ]
    found = ckpt_surgery.restore(None, tree, target=tree)
    assert is_whole(found["model"])
    assert found["optimizer"].model is found["model"] is not model


def test_layers_of_a_module_are_stacked_by_one_pattern() -> None:
    rule = {"match": r"layers/(?P<i>\d+)/(.*)", "to": r"layers/\2", "by": "int(i)", "value": "stack(xs)"}
    found = ckpt_surgery.restore({"version": 1, "rules": [rule]}, Model())
    assert {name: leaf["value"].shape for name, leaf in found["layers"].items()} == {
        "bias": (2, 3),
        "kernel": (2, 3, 3),
    }
    assert not [key for key in live_tree(Model()).leaves if "_pytree__" in key]


@pytest.mark.parametrize("prefix", ["one", "state", "module", "rules"])
def test_shardings_of_a_module(prefix: str) -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    whole = NamedSharding(mesh, PartitionSpec())
    shardings = {
        "one": lambda: whole,
        "state": lambda: jax.tree.map(lambda _: whole, nnx.state(Model())),
        "module": lambda: jax.tree.map(lambda _: whole, Model()),
        "rules": lambda: (mesh, [(".*", PartitionSpec())]),
    }[prefix]()
    found = ckpt_surgery.restore(None, Model(1), target=Model(2), shardings=shardings)
    assert kernel(found).sharding == whole


def test_donating_a_module_deletes_its_arrays() -> None:
    target = Model(2)
    found = ckpt_surgery.restore(None, Model(1), target=target, donate=True)
    assert kernel(target).is_deleted()
    assert not kernel(found).is_deleted()


class Nnx(nnx.Module):
    """A model with a random stream, which linen does not keep."""

    def __init__(self, rngs: nnx.Rngs):
        self.up = nnx.Linear(3, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)


@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_of_linen_go_into_a_module(wrapped: bool) -> None:
    variables = {"params": {"up": {"kernel": jnp.full((3, 4), 0.5), "bias": jnp.arange(4.0)}}}
    target = Nnx(nnx.Rngs(1))
    before = jax.tree.leaves(nnx.state(target))
    given = {"model": target} if wrapped else target
    found = ckpt_surgery.restore("@linen-to-nnx", variables, target=given)
    model = found["model"] if wrapped else found
    assert type(model) is Nnx
    assert model is not target
    np.testing.assert_array_equal(model.up(jnp.ones(3)), 1.5 + np.arange(4))
    # The streams are the target's own, and the module that was given has everything that it had.
    assert model.dropout.rngs.key.get_value() == target.dropout.rngs.key.get_value()
    for own, old in zip(jax.tree.leaves(nnx.state(target)), before, strict=True):
        assert own is old


class Odd(nnx.Module):
    """Variables of other kinds, arrays that are none, and no pytree."""

    def __init__(self, seed: int):
        self.cache = nnx.Cache(jnp.full(2, seed))
        self.count = nnx.Variable(jnp.asarray(seed))
        self.table = jnp.full(3, seed)
        self.host = np.full(2, seed)


class Bare(nnx.Module, pytree=False):
    def __init__(self, seed: int):
        self.w = nnx.Param(jnp.full(2, float(seed)))


@pytest.mark.parametrize("kind", [Odd, Bare])
def test_other_variables_and_modules(kind: Any, tmp_path: Path) -> None:
    source, target = kind(3), kind(0)
    with quiet(), ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "c", nnx.to_pure_dict(nnx.state(source)))
    found = ckpt_surgery.restore(
        {"version": 1, "rules": [{"fill": "(?P<k>.*?)(?:/value)?", "from": "${k}"}]},
        tmp_path / "c",
        target=target,
    )
    assert type(found) is kind
    for ours, theirs in zip(*(jax.tree.leaves(nnx.state(one)) for one in (found, source)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(nnx.state(target)))
