"""ViT (Dosovitskiy et al., 2020), with the tree of FlaxViTForImageClassification."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tests.recipes.flax_models.layers import Leaves, attend, dense, layer_norm, layers, patches

EPS = 1e-12


def layer(p: Leaves, x: jax.Array, heads: int) -> jax.Array:
    attention, normed = p["attention"], layer_norm(p["layernorm_before"], x, EPS)
    q, k, v = (dense(attention["attention"][name], normed) for name in ("query", "key", "value"))
    x = x + dense(attention["output"]["dense"], attend(q, k, v, heads))
    hidden = dense(p["intermediate"]["dense"], layer_norm(p["layernorm_after"], x, EPS))
    return x + dense(p["output"]["dense"], jax.nn.gelu(hidden, approximate=False))


def outputs(params: Leaves, config: Mapping[str, Any], pixel_values: jax.Array) -> dict[str, jax.Array]:
    p = params["vit"]["embeddings"]
    x = patches(p["patch_embeddings"]["projection"], pixel_values, config["patch_size"])
    token = jnp.broadcast_to(p["cls_token"], (len(x), 1, x.shape[-1]))
    x = jnp.concatenate([token, x], axis=1) + p["position_embeddings"]
    for one in layers(params["vit"]["encoder"]["layer"]):
        x = layer(one, x, config["num_attention_heads"])
    x = layer_norm(params["vit"]["layernorm"], x, EPS)
    return {"logits": dense(params["classifier"], x[:, 0])}
