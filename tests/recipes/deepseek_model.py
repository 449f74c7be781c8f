"""DeepSeek-V3 and DeepSeek-V2 from their papers: what converted weights have to compute.

In NumPy, which has nothing to compile; their logits are also compared with MaxText's, which are JAX's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.recipes.deepseek_layouts import DeepSeek, Layout
from tests.support.heavy import jax


@dataclass(frozen=True)
class Model:
    """What the weights do not say."""

    d: DeepSeek
    rope: str
    top: int
    """How many experts a token has."""
    groups: int = 1
    top_groups: int = 1
    routed_scale: float = 1.0
    normalized: bool = False
    """Whether a token's weights of experts have the sum 1, before `routed_scale`."""
    eps: float = 1e-6
    theta: float = 10000.0


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray((1 + np.tanh(x / 2)) / 2)


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def _norm(model: Model, p: Any, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + model.eps) * p["scale"]


def rotated(theta: float, rope: str, x: np.ndarray) -> np.ndarray:
    """(batch, length, heads, head_dim) with rotary position embeddings (Su et al., 2021)."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if rope == "interleaved" else (x[..., :half], x[..., half:])
    # Queries and keys come out in the same order, which is all that their products depend on.
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def _attend(model: Model, p: Any, x: np.ndarray) -> np.ndarray:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    d = model.d
    if "wq_a" in p:
        compressed = _norm(model, p["q_norm"], x @ p["wq_a"]["kernel"])
        q = np.einsum("blr,rhd->blhd", compressed, p["wq_b"]["kernel"])
    else:
        q = np.einsum("ble,ehd->blhd", x, p["query"]["kernel"])
    latent = x @ p["wkv_a"]["kernel"]
    kv = np.einsum(
        "blr,rhd->blhd", _norm(model, p["kv_norm"], latent[..., : d.kv_rank]), p["wkv_b"]["kernel"]
    )
    turned = rotated(model.theta, model.rope, latent[:, :, None, d.kv_rank :])
    scores = np.einsum("blhd,bmhd->bhlm", q[..., : d.nope], kv[..., : d.nope])
    scores += np.einsum("blhd,bmd->bhlm", rotated(model.theta, model.rope, q[..., d.nope :]), turned[:, :, 0])
    causal = np.tril(np.ones(scores.shape[-2:], bool))
    scores = np.where(causal, scores * (d.nope + d.rope) ** -0.5, -np.inf)
    out = np.einsum("bhlm,bmhd->blhd", softmax(scores, -1), kv[..., d.nope :])
    return np.einsum("blhd,hde->ble", out, p["out"]["kernel"])


def mlp(p: Any, x: np.ndarray) -> np.ndarray:
    return (silu(x @ p["wi_0"]["kernel"]) * (x @ p["wi_1"]["kernel"])) @ p["wo"]["kernel"]


def _routed(model: Model, gate: Any, x: np.ndarray) -> np.ndarray:
    """(…, experts): the weight of each expert, zero for those that are not chosen."""
    logits = x @ gate["kernel"]
    scores = sigmoid(logits) if "bias" in gate else softmax(logits, -1)
    choice = scores + gate["bias"] if "bias" in gate else scores
    grouped = choice.reshape(*choice.shape[:-1], model.groups, -1)
    best = np.sort(grouped, -1)[..., -2:].sum(-1)
    chosen = best >= np.sort(best, -1)[..., -model.top_groups, None]
    choice = np.where(chosen[..., None], grouped, -np.inf).reshape(choice.shape)
    weights = np.where(choice >= np.sort(choice, -1)[..., -model.top, None], scores, 0)
    if model.normalized:
        weights /= weights.sum(-1, keepdims=True)
    return weights * model.routed_scale


def _experts(model: Model, p: Any, x: np.ndarray) -> np.ndarray:
    """All experts run on all tokens; the weights take those that count."""
    block = p["MoeBlock_0"]
    inner = silu(np.einsum("ble,nem->blnm", x, block["wi_0"]))
    inner *= np.einsum("ble,nem->blnm", x, block["wi_1"])
    weights = _routed(model, block["gate"], x)
    return np.einsum("blnm,nme,bln->ble", inner, block["wo"], weights) + mlp(p["shared_experts"], x)


def _bias(layout: Layout, decoder: Any, i: int) -> np.ndarray:
    """The bias of a layer's gate, which MaxText has apart, with the layers first."""
    layers = decoder["moe_layers" if layout.scan else f"moe_layers_{i}"]
    bias = layers["DeepSeekMoeBlock_0"]["MoeBlock_0"]["gate"]["bias"]
    return bias[i] if layout.scan else bias


def jax_logits(model: Model, layout: Layout, params: Mapping[str, Any], tokens: np.ndarray) -> np.ndarray:
    """The logits of tokens (batch, length), from the tree in a layout of the JAX side."""
    biases = {}
    if layout.layout == "maxtext":
        biases, params = params.get("MoEBiasVar", {}), params["params"]
    params = jax.tree.map(np.asarray, params)
    decoder = params["decoder"]
    x = params["token_embedder"]["embedding"][tokens]
    for kind, count in (("dense", model.d.dense), ("moe", model.d.layers - model.d.dense)):
        for i in range(count):
            if layout.scan:
                take = lambda a, i=i: np.take(a, i, axis=layout.axis)  # noqa: E731
                p = jax.tree.map(take, decoder[f"{kind}_layers"])
            else:
                p = decoder[f"{kind}_layers_{i}"]
            if biases and kind == "moe":
                gate = p["DeepSeekMoeBlock_0"]["MoeBlock_0"]["gate"]
                gate["bias"] = np.asarray(_bias(layout, biases["decoder"], i))
            x += _attend(model, p["self_attention"], _norm(model, p["pre_self_attention_layer_norm"], x))
            y = _norm(model, p["post_self_attention_layer_norm"], x)
            x += mlp(p["mlp"], y) if kind == "dense" else _experts(model, p["DeepSeekMoeBlock_0"], y)
    x = _norm(model, decoder["decoder_norm"], x)
    return np.asarray(x @ decoder["logits_dense"]["kernel"])[..., : model.d.vocab]
