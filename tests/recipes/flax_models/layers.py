"""Layers of the models beside this file, on the leaves of the Flax classes of Transformers.

Each takes `p`, the leaves of one module, by name. All arrays are float32.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

Leaves = Mapping[str, Any]


def dense(p: Leaves, x: jax.Array) -> jax.Array:
    """(…, in) → (…, out)"""
    return x @ p["kernel"] + p.get("bias", 0.0)


def layer_norm(p: Leaves, x: jax.Array, eps: float) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * p["scale"] + p["bias"]


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, heads: int, mask: Any = 0.0, scale: float | None = None
) -> jax.Array:
    """(batch, length, heads × size) each; `mask` is added to the scores, (heads, queries, keys) or less."""
    q, k, v = (x.reshape(*x.shape[:2], heads, -1) for x in (q, k, v))
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    mixed = jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores + mask, axis=-1), v)
    return mixed.reshape(*mixed.shape[:2], -1)


def causal(length: int) -> jax.Array:
    """What is added to scores so that no position sees one after it."""
    return jnp.where(jnp.tri(length, dtype=bool), 0.0, -jnp.inf)


def convolved(p: Leaves, x: jax.Array, stride: int, padding: int = 0) -> jax.Array:
    """(batch, side …, in) → (batch, side …, out), of one or two dimensions."""
    sides = "HW"[: x.ndim - 2]
    numbers = (f"N{sides}C", f"{sides}IO", f"N{sides}C")
    out = jax.lax.conv_general_dilated(
        x, p["kernel"], [stride] * len(sides), [(padding, padding)] * len(sides), dimension_numbers=numbers
    )
    return out + p.get("bias", 0.0)


def patches(p: Leaves, pixels: jax.Array, size: int) -> jax.Array:
    """(batch, channels, height, width) → (batch, patches, out)"""
    out = convolved(p, pixels.transpose(0, 2, 3, 1), size)
    return out.reshape(out.shape[0], -1, out.shape[-1])


def layers(p: Leaves) -> Iterator[Leaves]:
    """Modules that are numbered, in their order."""
    return (p[str(i)] for i in range(len(p)))
