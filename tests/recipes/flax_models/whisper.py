"""Whisper (Radford et al., 2022), with the tree of FlaxWhisperForConditionalGeneration."""

from collections.abc import Mapping
from typing import Any

import jax

from tests.recipes.flax_models.layers import Leaves, attend, causal, convolved, dense, layer_norm, layers

EPS = 1e-5


def gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


def attention(p: Leaves, x: jax.Array, seen: jax.Array, heads: int, mask: Any = 0.0) -> jax.Array:
    """Keys have no bias."""
    q, k, v = dense(p["q_proj"], x), dense(p["k_proj"], seen), dense(p["v_proj"], seen)
    return dense(p["out_proj"], attend(q, k, v, heads, mask))


def layer(p: Leaves, x: jax.Array, heads: int, seen: jax.Array | None = None, mask: Any = 0.0) -> jax.Array:
    """With `seen`, what the encoder gives, it is one of the decoder."""
    normed = layer_norm(p["self_attn_layer_norm"], x, EPS)
    x = x + attention(p["self_attn"], normed, normed, heads, mask)
    if seen is not None:
        x = x + attention(p["encoder_attn"], layer_norm(p["encoder_attn_layer_norm"], x, EPS), seen, heads)
    hidden = gelu(dense(p["fc1"], layer_norm(p["final_layer_norm"], x, EPS)))
    return x + dense(p["fc2"], hidden)


def outputs(
    params: Leaves, config: Mapping[str, Any], input_features: jax.Array, decoder_input_ids: jax.Array
) -> dict[str, jax.Array]:
    encoder, decoder = params["model"]["encoder"], params["model"]["decoder"]
    x = gelu(convolved(encoder["conv1"], input_features.transpose(0, 2, 1), 1, 1))
    x = gelu(convolved(encoder["conv2"], x, 2, 1)) + encoder["embed_positions"]["embedding"]
    for one in layers(encoder["layers"]):
        x = layer(one, x, config["encoder_attention_heads"])
    seen = layer_norm(encoder["layer_norm"], x, EPS)
    table, length = decoder["embed_tokens"]["embedding"], decoder_input_ids.shape[1]
    x = table[decoder_input_ids] + decoder["embed_positions"]["embedding"][:length]
    for one in layers(decoder["layers"]):
        x = layer(one, x, config["decoder_attention_heads"], seen, causal(length))
    return {"logits": layer_norm(decoder["layer_norm"], x, EPS) @ table.T}
