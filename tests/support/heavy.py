"""Libraries that take long to import: each is imported when a test first asks for something of it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numcodecs
    import optax
    import orbax.checkpoint as ocp
    import tensorstore as ts
    import zarr
    from flax import nnx, serialization, traverse_util
else:

    class Later:
        """Stands for a module. Tests patch the module itself, by its name: `"flax.serialization.X"`."""

        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(importlib.import_module(self._name), attribute)

    jax, jnp, numcodecs, optax = map(Later, ("jax", "jax.numpy", "numcodecs", "optax"))
    ocp, ts, zarr = map(Later, ("orbax.checkpoint", "tensorstore", "zarr"))
    nn, nnx = map(Later, ("flax.linen", "flax.nnx"))
    serialization, traverse_util = map(Later, ("flax.serialization", "flax.traverse_util"))

__all__ = [
    *("jax", "jnp", "nn", "nnx", "numcodecs", "ocp", "optax"),
    *("serialization", "traverse_util", "ts", "zarr"),
]
