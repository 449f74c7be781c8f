"""BERT (Devlin et al., 2018), with the tree of FlaxBertForPreTraining."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tests.recipes.flax_models.layers import Leaves, attend, dense, layer_norm, layers

EPS = 1e-12


def gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


def layer(p: Leaves, x: jax.Array, heads: int) -> jax.Array:
    attention = p["attention"]
    q, k, v = (dense(attention["self"][name], x) for name in ("query", "key", "value"))
    mixed = dense(attention["output"]["dense"], attend(q, k, v, heads))
    x = layer_norm(attention["output"]["LayerNorm"], x + mixed, EPS)
    hidden = dense(p["output"]["dense"], gelu(dense(p["intermediate"]["dense"], x)))
    return layer_norm(p["output"]["LayerNorm"], x + hidden, EPS)


def outputs(params: Leaves, config: Mapping[str, Any], input_ids: jax.Array) -> dict[str, jax.Array]:
    p, heads = params["bert"]["embeddings"], params["cls"]
    table = p["word_embeddings"]["embedding"]
    x = table[input_ids] + p["position_embeddings"]["embedding"][: input_ids.shape[1]]
    x = layer_norm(p["LayerNorm"], x + p["token_type_embeddings"]["embedding"][0], EPS)
    for one in layers(params["bert"]["encoder"]["layer"]):
        x = layer(one, x, config["num_attention_heads"])
    pooled = jnp.tanh(dense(params["bert"]["pooler"]["dense"], x[:, 0]))
    transform = heads["predictions"]["transform"]
    x = layer_norm(transform["LayerNorm"], gelu(dense(transform["dense"], x)), EPS)
    return {
        "prediction_logits": x @ table.T + heads["predictions"]["bias"],
        "seq_relationship_logits": dense(heads["seq_relationship"], pooled),
    }
