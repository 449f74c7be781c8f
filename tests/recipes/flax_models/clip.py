"""CLIP (Radford et al., 2021), with the tree of FlaxCLIPModel."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tests.recipes.flax_models.layers import Leaves, attend, causal, dense, layer_norm, layers, patches

EPS = 1e-5


def layer(p: Leaves, x: jax.Array, heads: int, mask: Any) -> jax.Array:
    normed = layer_norm(p["layer_norm1"], x, EPS)
    q, k, v = (dense(p["self_attn"][f"{name}_proj"], normed) for name in "qkv")
    x = x + dense(p["self_attn"]["out_proj"], attend(q, k, v, heads, mask))
    hidden = dense(p["mlp"]["fc1"], layer_norm(p["layer_norm2"], x, EPS))
    return x + dense(p["mlp"]["fc2"], hidden * jax.nn.sigmoid(1.702 * hidden))


def image(p: Leaves, config: Mapping[str, Any], pixels: jax.Array) -> jax.Array:
    embeddings = p["embeddings"]
    x = patches(embeddings["patch_embedding"], pixels, config["patch_size"])
    token = jnp.broadcast_to(embeddings["class_embedding"], (len(x), 1, x.shape[-1]))
    x = jnp.concatenate([token, x], axis=1) + embeddings["position_embedding"]["embedding"]
    x = layer_norm(p["pre_layrnorm"], x, EPS)
    for one in layers(p["encoder"]["layers"]):
        x = layer(one, x, config["num_attention_heads"], 0.0)
    return layer_norm(p["post_layernorm"], x[:, 0], EPS)


def text(p: Leaves, config: Mapping[str, Any], ids: jax.Array) -> jax.Array:
    embeddings = p["embeddings"]
    x = embeddings["token_embedding"]["embedding"][ids]
    x = x + embeddings["position_embedding"]["embedding"][: ids.shape[1]]
    for one in layers(p["encoder"]["layers"]):
        x = layer(one, x, config["num_attention_heads"], causal(ids.shape[1]))
    last = ids.argmax(-1)  # where the end of the text has the largest number, as in OpenAI's models
    return layer_norm(p["final_layer_norm"], x[jnp.arange(len(ids)), last], EPS)


def unit(x: jax.Array) -> jax.Array:
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def outputs(
    params: Leaves, config: Mapping[str, Any], input_ids: jax.Array, pixel_values: jax.Array
) -> dict[str, jax.Array]:
    images = dense(
        params["visual_projection"], image(params["vision_model"], config["vision_config"], pixel_values)
    )
    texts = dense(params["text_projection"], text(params["text_model"], config["text_config"], input_ids))
    return {"logits_per_image": jnp.exp(params["logit_scale"]) * unit(images) @ unit(texts).T}
