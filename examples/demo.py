"""A training run goes on in a changed model: `make demo`.

A small Flax model is trained for a few steps and saved by Orbax, optimizer state and all. The new
model names its layers differently, keeps its first moments in bfloat16, and has another head. The
recipe takes the checkpoint there, and stock Orbax restores the result into the new training state.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState

RECIPE = r"""version: 1
description: Layers renamed, first moments in bfloat16, a new head.

rules:
  - match: '(?P<top>.*/mu/.*)dense_(?P<n>\d+)/(?P<weight>.*)'
    to: '${top}encoder_${int(n) - 1}/${weight}'
    value: cast(x, 'bfloat16')
  - match: '(?P<top>.*)dense_(?P<n>\d+)/(?P<weight>.*)'
    to: '${top}encoder_${int(n) - 1}/${weight}'
  - match: '.*/old_head/.*'
    drop: true
  - fill: '.*/head/.*'
    fallback: true
"""


class Model(nn.Module):
    """Three dense layers of 32, and a head."""

    layer: str
    first: int
    head: str
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for i in range(3):
            x = nn.relu(nn.Dense(32, name=f"{self.layer}_{self.first + i}")(x))
        return nn.Dense(self.classes, name=self.head)(x)


OLD = Model("dense", 1, "old_head", classes=10)
NEW = Model("encoder", 0, "head", classes=4)


def new_state(model: Model, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    params = model.init(jax.random.key(seed), jnp.ones((1, 16)))
    return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)


def trained(state: TrainState, steps: int) -> TrainState:
    inputs = jax.random.normal(jax.random.key(0), (64, 16))

    def loss(params: optax.Params) -> jax.Array:
        return jnp.mean(state.apply_fn(params, inputs) ** 2)

    for _ in range(steps):
        state = state.apply_gradients(grads=jax.grad(loss)(state.params))
    return state


def save(path: Path, state: TrainState) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)


def restore(path: Path, like: TrainState) -> TrainState:
    with ocp.StandardCheckpointer() as checkpointer:
        restored: TrainState = checkpointer.restore(path, like)
        return restored


def check(old: TrainState, fresh: TrainState, restored: TrainState) -> None:
    """Every weight is where it belongs, bit for bit."""
    layers, before = restored.params["params"], old.params["params"]
    for i in range(3):
        np.testing.assert_array_equal(layers[f"encoder_{i}"]["kernel"], before[f"dense_{i + 1}"]["kernel"])
    np.testing.assert_array_equal(layers["head"]["kernel"], fresh.params["params"]["head"]["kernel"])
    assert restored.opt_state[0].mu["params"]["encoder_0"]["kernel"].dtype == jnp.bfloat16
    assert int(restored.step) == int(old.step)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        old = trained(new_state(OLD, optax.adam(1e-3), seed=1), steps=5)
        fresh = new_state(NEW, optax.adam(1e-3, mu_dtype=jnp.bfloat16), seed=2)
        save(here / "old", old)
        save(here / "fresh", fresh)
        (here / "recipe.yaml").write_text(RECIPE)
        print(f"recipe.yaml:\n\n{RECIPE}", flush=True)

        command = ["apply", "recipe.yaml", "old", "new", "--target", "fresh"]
        print("$ ckpt-surgery", *command, flush=True)
        subprocess.run([sys.executable, "-m", "ckpt_surgery", *command], cwd=here, check=True)

        restored = restore(here / "new", fresh)
        check(old, fresh, restored)
        steps = int(trained(restored, steps=1).step)
        print(f"\nOrbax restored the result into the new training state; step {steps} is done.")


if __name__ == "__main__":
    main()
