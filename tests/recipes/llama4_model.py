"""Llama 4's decoder: what converted weights have to compute.

In NumPy, which has nothing to compile; its logits are also compared with MaxText's, which are JAX's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.recipes.deepseek_model import mlp, rotated, sigmoid, silu, softmax
from tests.recipes.llama4_layouts import Layout, Llama4
from tests.support.heavy import jax


@dataclass(frozen=True)
class Model:
    """What the weights do not say."""

    d: Llama4
    qk_norm: bool
    """Whether rotated queries and keys are divided by their root mean square."""
    chunk: int
    """Tokens of layers with rotary embeddings see others of the same chunk of so many."""
    floor_scale: int
    attn_scale: float
    """The temperature of the other layers: queries grow with the logarithm of the position."""
    nope_step: int = 4
    eps: float = 1e-5
    theta: float = 500000.0


def _normed(model: Model, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + model.eps)


def _attend(model: Model, layout: Layout, p: Any, x: np.ndarray, rope: bool) -> np.ndarray:
    q, k, v = (np.einsum("ble,ehd->blhd", x, p[name]["kernel"]) for name in ("query", "key", "value"))
    positions = np.arange(x.shape[1])
    seen = positions[:, None] >= positions
    if rope:
        q, k = rotated(model.theta, layout.rope, q), rotated(model.theta, layout.rope, k)
        if model.qk_norm:
            q, k = _normed(model, q), _normed(model, k)
        seen &= positions[:, None] // model.chunk == positions // model.chunk
    else:
        heat = np.log1p(np.floor((positions + 1.0) / model.floor_scale)) * model.attn_scale + 1.0
        q *= heat[:, None, None]
    k, v = (np.repeat(a, q.shape[2] // a.shape[2], axis=2) for a in (k, v))
    scores = np.einsum("blhd,bmhd->bhlm", q, k) * q.shape[-1] ** -0.5
    weights = softmax(np.where(seen, scores, -np.inf), -1)
    return np.einsum("bhlm,bmhd,hde->ble", weights, v, p["out"]["kernel"])


def _experts(p: Any, x: np.ndarray) -> np.ndarray:
    """Each token goes to the expert with the largest logit, multiplied by that one's sigmoid before."""
    block = p["MoeBlock_0"]
    logits = x @ block["gate"]["kernel"]
    chosen = (np.arange(logits.shape[-1]) == np.argmax(logits, -1)[..., None]) * sigmoid(logits)
    routed = np.einsum("ble,bln->blne", x, chosen)
    inner = silu(np.einsum("blne,nem->blnm", routed, block["wi_0"]))
    inner *= np.einsum("blne,nem->blnm", routed, block["wi_1"])
    return np.einsum("blnm,nme->ble", inner, block["wo"]) + mlp(p["shared_experts"], x)


def jax_logits(model: Model, layout: Layout, params: Mapping[str, Any], tokens: np.ndarray) -> np.ndarray:
    """The logits of tokens (batch, length), from the tree in a layout of the JAX side."""
    params = params["params"] if layout.layout == "maxtext" else params
    params = jax.tree.map(np.asarray, params)
    decoder = params["decoder"]
    x = params["token_embedder"]["embedding"][tokens]
    for i in range(model.d.layers):
        p = decoder["layers"][f"layers_{i % layout.cycle}"] if layout.scan else decoder[f"layers_{i}"]
        if layout.scan:
            take = lambda a, i=i: np.take(a, i // layout.cycle, axis=layout.axis)  # noqa: E731
            p = jax.tree.map(take, p)
        rope = (i + 1) % model.nope_step != 0
        y = _normed(model, x) * p["pre_self_attention_layer_norm"]["scale"]
        x += _attend(model, layout, p["self_attention"], y, rope)
        y = _normed(model, x) * p["post_self_attention_layer_norm"]["scale"]
        x += mlp(p["mlp"], y) if "mlp" in p else _experts(p["Llama4MoEBlock_0"], y)
    x = _normed(model, x) * decoder["decoder_norm"]["scale"]
    return np.asarray(x @ decoder["logits_dense"]["kernel"])[..., : model.d.vocab]
