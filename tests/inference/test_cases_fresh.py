"""A trained source and a target of Flax that was just initialised: names decide, constants do not."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

from ckpt_surgery import Inferred, infer
from ckpt_surgery.inference.expressions.formations import COMPARED
from tests.inference.cases.running import inferred


class Block(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Conv(self.features, (3, 3), use_bias=False)(x)
        y = nn.BatchNorm(use_running_average=False)(y)
        y = nn.Conv(self.features, (3, 3), use_bias=False)(nn.relu(y))
        y = nn.BatchNorm(use_running_average=False, scale_init=nn.initializers.zeros)(y)
        return y + nn.Conv(self.features, (1, 1), name="proj")(x)


class ResNet(nn.Module):
    prefix: str = "block"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.BatchNorm(use_running_average=False, name="bn")(nn.Conv(4, (3, 3), name="conv")(x))
        for i, features in enumerate((4, 8, 8)):
            x = Block(features, name=f"{self.prefix}_{i}")(x)
        return nn.Dense(10, name="head")(x.mean((1, 2)))


class Transformer(nn.Module):
    prefix: str = "block"
    norms: tuple[str, str] = ("ln_0", "ln_1")

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for i in range(3):
            name = f"{self.prefix}_{i}"
            attention = nn.MultiHeadDotProductAttention(2, name=f"{name}_attn")
            x = x + attention(nn.LayerNorm(name=f"{name}_{self.norms[0]}")(x))
            x = x + nn.Dense(12, name=f"{name}_fc2")(
                nn.Dense(20, name=f"{name}_fc1")(nn.LayerNorm(name=f"{name}_{self.norms[1]}")(x))
            )
        return nn.LayerNorm(name="ln_f")(x)


IMAGE, TEXT = jnp.zeros((1, 8, 8, 3)), jnp.zeros((1, 5, 12))


def state(
    model: nn.Module, x: jax.Array, seed: int, trained: bool, untouched: str = "none"
) -> dict[str, Any]:
    """A state with Adam, of Flax's structure and with the constants that Flax begins with.

    Of a trained one, leaves whose keys have `untouched` are as they were at first.
    """
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    create = functools.partial(TrainState.create, apply_fn=model.apply, tx=optax.adam(1e-3))
    fresh = jax.eval_shape(lambda params: create(params=params), variables.pop("params"))
    tree = {"step": fresh.step, "params": fresh.params, "opt_state": fresh.opt_state, **variables}
    random = np.random.default_rng(seed)

    def value(path: Any, leaf: Any) -> Any:
        key = jax.tree_util.keystr(path)
        changed = trained and untouched not in key
        if np.shape(leaf) == ():
            return np.asarray(1000 if changed else 0, np.int32)
        ones = (
            "opt_state" not in key and ("scale" in key or "var" in key) and "BatchNorm_1']['scale" not in key
        )
        at_first = np.full(leaf.shape, ones, np.float32)
        noise = random.standard_normal(leaf.shape).astype(np.float32)
        return at_first + noise if changed or ("kernel" in key and "opt_state" not in key) else at_first

    return jax.tree_util.tree_map_with_path(value, tree)


def names_of(inference: Inferred) -> dict[str, tuple[str, ...]]:
    return {one.target: one.sources for one in inference.findings.formations}


@pytest.mark.parametrize("untouched", ["none", "scale", "bias", "batch_stats", "mu", "BatchNorm", "ln_"])
@pytest.mark.parametrize(
    ("model", "x"), [(ResNet(), IMAGE), (Transformer(), TEXT)], ids=["resnet", "transformer"]
)
def test_the_same_model(model: nn.Module, x: jax.Array, untouched: str) -> None:
    inference = infer(state(model, x, 0, True, untouched), state(model, x, 1, False))
    assert (inference.decided, inference.values, inference.needs_target) == (True, "unrelated", False)
    assert all(sources == (key,) for key, sources in names_of(inference).items())


@pytest.mark.parametrize("untouched", ["none", "scale", "bias", "batch_stats", "ln_"])
@pytest.mark.parametrize(
    ("model", "renamed", "x"),
    [
        (ResNet(), ResNet("layers"), IMAGE),
        (Transformer(), Transformer("layers"), TEXT),
        (Transformer(), Transformer("layers", ("norm1", "norm2")), TEXT),
        (Transformer(), Transformer("block", ("ln_1", "ln_2")), TEXT),
    ],
    ids=["resnet", "transformer", "norms", "norms counted from 1"],
)
def test_a_renamed_model(model: nn.Module, renamed: nn.Module, x: jax.Array, untouched: str) -> None:
    """Whatever is decided is of its own layer, its own tree and its own norm."""
    inference = infer(state(model, x, 0, True, untouched), state(renamed, x, 1, False))
    assert (inference.values, inference.problems) == ("unrelated", ())
    for key, sources in names_of(inference).items():
        same = key.replace("layers_", "block_")
        for word, number in (("norm1", 0), ("norm2", 1)):
            same = same.replace(word, f"ln_{number}")
        if isinstance(renamed, Transformer) and renamed.norms[0] == "ln_1":
            same = same.replace("ln_1", "ln_0").replace("ln_2", "ln_1")
        assert sources == (same,), key


def test_a_target_of_zeros() -> None:
    """`tree.map(zeros_like, …)` is a common target: nothing in it contradicts the source."""
    source = state(Transformer(), TEXT, 0, True)
    inference = infer(source, jax.tree.map(np.zeros_like, source))
    assert (inference.decided, inference.values) == (True, "unrelated")
    assert all(one.evidence not in COMPARED for one in inference.findings.formations)


def test_stacks_of_constants_are_no_evidence() -> None:
    """Ones and zeros together are those of batch norms as well as of their statistics."""
    ones, zeros = np.ones(6, np.float32), np.zeros(6, np.float32)
    old = {"batch_stats/bn/var": ones, "batch_stats/bn/mean": zeros, "w": np.arange(12, dtype=np.float32) / 7}
    new = {"params/bn/all": np.stack([zeros, ones]), "w": old["w"]}
    inference = inferred(old, new)
    assert "params/bn/all" not in names_of(inference)
