"""GPT-2 (Radford et al., 2019), with the tree of FlaxGPT2LMHeadModel."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tests.recipes.flax_models.layers import Leaves, attend, causal, layer_norm, layers


def conv1d(p: Leaves, x: jax.Array) -> jax.Array:
    """GPT-2's own linear layer: Flax has its kernel as (out, in)."""
    return x @ p["kernel"].T + p["bias"]


def block(p: Leaves, x: jax.Array, heads: int) -> jax.Array:
    q, k, v = jnp.split(conv1d(p["attn"]["c_attn"], layer_norm(p["ln_1"], x, 1e-5)), 3, axis=-1)
    x = x + conv1d(p["attn"]["c_proj"], attend(q, k, v, heads, causal(x.shape[1])))
    hidden = conv1d(p["mlp"]["c_fc"], layer_norm(p["ln_2"], x, 1e-5))
    return x + conv1d(p["mlp"]["c_proj"], jax.nn.gelu(hidden, approximate=True))


def outputs(params: Leaves, config: Mapping[str, Any], input_ids: jax.Array) -> dict[str, jax.Array]:
    p = params["transformer"]
    table = p["wte"]["embedding"]
    x = table[input_ids] + p["wpe"]["embedding"][: input_ids.shape[1]]
    for one in layers(p["h"]):
        x = block(one, x, config["n_head"])
    return {"logits": layer_norm(p["ln_f"], x, 1e-5) @ table.T}
