"""Small Flax training states with a real optimizer."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState


class Layers(nn.Module):
    """Dense layers `Dense_0`, `Dense_1`, … of the given widths."""

    widths: Sequence[int]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in self.widths:
            x = nn.sigmoid(nn.Dense(width)(x))
        return x


def train_state(*widths: int, seed: int) -> TrainState:
    """AdamW on a model with 8 inputs, after two steps, so that no moment is zero. Leaves are NumPy arrays."""
    model = Layers(widths)
    inputs = jax.random.normal(jax.random.key(seed + 1), (4, 8))
    params = model.init(jax.random.key(seed), inputs)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
    for _ in range(2):
        grads = jax.grad(lambda p: jnp.sum(model.apply(p, inputs) ** 2))(state.params)  # type: ignore[operator]
        state = state.apply_gradients(grads=grads)
    return jax.tree.map(np.asarray, state)
