"""T5 1.0 (Raffel et al., 2019), with the tree of FlaxT5ForConditionalGeneration."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tests.recipes.flax_models.layers import Leaves, attend, causal, dense, layers


def rms_norm(p: Leaves, x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p["weight"]


def buckets(length: int, count: int, both: bool) -> np.ndarray:
    """(queries, keys): half of the buckets are for one distance each, the others grow up to 128."""
    after = np.arange(length) - np.arange(length)[:, None]
    count = count // 2 if both else count
    first, distance = (after > 0) * count if both else 0, abs(after) if both else np.maximum(-after, 0)
    exact = count // 2
    far = np.log(np.maximum(distance, 1) / exact) / np.log(128 / exact) * (count - exact)
    return first + np.where(distance < exact, distance, np.minimum(exact + far.astype(int), count - 1))


def attention(p: Leaves, x: jax.Array, seen: jax.Array, heads: int, bias: Any) -> jax.Array:
    q, k, v = dense(p["q"], x), dense(p["k"], seen), dense(p["v"], seen)
    return dense(p["o"], attend(q, k, v, heads, bias, scale=1.0))


def tower(p: Leaves, config: Mapping[str, Any], x: jax.Array, seen: jax.Array | None) -> jax.Array:
    """With `seen`, what the encoder gives, it is the decoder."""
    heads, length = config["num_heads"], x.shape[1]
    table = p["block"]["0"]["layer"]["0"]["SelfAttention"]["relative_attention_bias"]["embedding"]
    bias = table[buckets(length, config["relative_attention_num_buckets"], seen is None)].transpose(2, 0, 1)
    bias = bias if seen is None else bias + causal(length)
    for one in layers(p["block"]):
        parts = list(layers(one["layer"]))
        normed = rms_norm(parts[0]["layer_norm"], x)
        x = x + attention(parts[0]["SelfAttention"], normed, normed, heads, bias)
        if seen is not None:
            normed = rms_norm(parts[1]["layer_norm"], x)
            x = x + attention(parts[1]["EncDecAttention"], normed, seen, heads, 0.0)
        mlp = parts[-1]["DenseReluDense"]
        x = x + dense(mlp["wo"], jax.nn.relu(dense(mlp["wi"], rms_norm(parts[-1]["layer_norm"], x))))
    return rms_norm(p["final_layer_norm"], x)


def outputs(
    params: Leaves, config: Mapping[str, Any], input_ids: jax.Array, decoder_input_ids: jax.Array
) -> dict[str, jax.Array]:
    table = params["shared"]["embedding"]
    seen = tower(params["encoder"], config, table[input_ids], None)
    x = tower(params["decoder"], config, table[decoder_input_ids], seen)
    return {"logits": (x * config["d_model"] ** -0.5) @ table.T}
