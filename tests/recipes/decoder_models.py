"""Decoders in JAX, written from their papers: what converted weights have to compute."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.heavy import jax, jnp

TOKENS = np.random.default_rng(1).integers(0, 97, (2, 12))


@dataclass(frozen=True)
class Rotation:
    """Rotary position embeddings (Su et al., 2021)."""

    theta: float = 10000.0
    factor: float = 1.0
    """Positions are divided by this."""
    yarn: bool = False
    """YaRN (Peng et al., 2023): what turns seldom is stretched, with a ramp to what stays."""

    def frequencies(self, head_dim: int) -> tuple[np.ndarray, float]:
        """How fast each pair turns, and what the result is multiplied by."""
        half = head_dim // 2
        plain = self.theta ** (-np.arange(half) / half)
        if not self.yarn:
            return plain / self.factor, 1.0
        turns = lambda beta: head_dim * np.log(64 / (beta * 2 * np.pi)) / (2 * np.log(self.theta))  # noqa: E731
        low, high = max(turns(3.0), 0), min(turns(1.0), head_dim - 1)
        ramp = np.clip((np.arange(half) - low) / (high - low), 0, 1)
        return plain / self.factor * ramp + plain * (1 - ramp), 0.1 * np.log(self.factor) + 1


@dataclass(frozen=True)
class Model:
    """What the weights do not say."""

    interleaved: bool = False
    """Rotary pairs are neighbours; otherwise they are half a head apart."""
    query_scale: float = 16**-0.5
    """What the attention multiplies queries by."""
    eps: float = 1e-6
    local: Rotation = Rotation()
    everywhere: Rotation = Rotation()
    """Of layers without a window."""
    gelu: bool = False
    cap_scores: float = 0.0
    cap_logits: float = 0.0
    window: int = 0
    """Window of layers with local attention."""
    embedding_scale: float = 1.0
    """What the model multiplies embeddings by."""
    logits_scale: float = 1.0
    """What the model multiplies logits of a tied embedding by."""
    axis: int = 0
    """Along which layers are stacked."""
    top: int = 0
    """How many experts a token has."""
    limit: float = 0.0
    """Clips what goes into the activation of gpt-oss."""


def rms_norm(model: Model, p: Any, x: "jax.Array") -> "jax.Array":
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + model.eps) * p["scale"]


def rotated(model: Model, rotation: Rotation, x: "jax.Array") -> "jax.Array":
    """(batch, length, heads, head_dim), turned by position."""
    half = x.shape[-1] // 2
    turning, scale = rotation.frequencies(x.shape[-1])
    angles = jnp.arange(x.shape[1])[:, None] * jnp.asarray(turning, jnp.float32)
    cos, sin = jnp.cos(angles)[:, None] * scale, jnp.sin(angles)[:, None] * scale
    a, b = (x[..., ::2], x[..., 1::2]) if model.interleaved else (x[..., :half], x[..., half:])
    turned = (a * cos - b * sin, b * cos + a * sin)
    return jnp.stack(turned, -1).reshape(x.shape) if model.interleaved else jnp.concatenate(turned, -1)


def capped(x: "jax.Array", cap: float) -> "jax.Array":
    return cap * jnp.tanh(x / cap) if cap else x


def attention(model: Model, p: Any, x: "jax.Array", window: int = 0) -> "jax.Array":
    """Heads of gpt-oss have a sink each: something to attend to that has no value."""
    q, k, v = (
        jnp.einsum("ble,ehd->blhd", x, p[name]["kernel"]) + p[name].get("bias", 0.0)
        for name in ("query", "key", "value")
    )
    if "query_norm" in p:
        q, k = rms_norm(model, p["query_norm"], q), rms_norm(model, p["key_norm"], k)
    rotation = model.local if window else model.everywhere
    q, k = rotated(model, rotation, q) * model.query_scale, rotated(model, rotation, k)
    k, v = (jnp.repeat(a, q.shape[2] // a.shape[2], axis=2) for a in (k, v))
    scores = capped(jnp.einsum("blhd,bmhd->bhlm", q, k), model.cap_scores)
    back = jnp.arange(x.shape[1])[:, None] - jnp.arange(x.shape[1])
    seen = (back >= 0) & ((back < window) if window else True)
    scores = jnp.where(seen, scores, -jnp.inf)
    if "sinks" in p:
        sinks = jnp.broadcast_to(p["sinks"][:, None, None], (*scores.shape[:3], 1))
        weights = jax.nn.softmax(jnp.concatenate([scores, sinks], axis=-1), axis=-1)[..., :-1]
    else:
        weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("bhlm,bmhd,hde->ble", weights, v, p["out"]["kernel"]) + p["out"].get("bias", 0.0)


def mlp(model: Model, p: Any, x: "jax.Array") -> "jax.Array":
    gate = x @ p["wi_0"]["kernel"]
    gate = jax.nn.gelu(gate, approximate=True) if model.gelu else jax.nn.silu(gate)
    return (gate * (x @ p["wi_1"]["kernel"])) @ p["wo"]["kernel"]


def experts(model: Model, p: Any, x: "jax.Array") -> "jax.Array":
    """gpt-oss: all experts on all tokens, weighted by the softmax over the chosen ones."""
    scores = x @ p["gate"]["kernel"] + p["gate"]["bias"]
    least = jnp.sort(scores, axis=-1)[..., -model.top, None]
    chosen = jax.nn.softmax(jnp.where(scores >= least, scores, -jnp.inf), axis=-1)
    gate, up = (jnp.einsum("ble,nem->blnm", x, p[f"wi_{k}"]) + p[f"wi_{k}_bias"] for k in range(2))
    gate, up = jnp.minimum(gate, model.limit), jnp.clip(up, -model.limit, model.limit)
    hidden = (up + 1) * gate * jax.nn.sigmoid(1.702 * gate)
    return jnp.einsum("bln,blne->ble", chosen, jnp.einsum("blnm,nme->blne", hidden, p["wo"]) + p["wo_bias"])


def layer(model: Model, p: Any, x: "jax.Array", window: int = 0) -> "jax.Array":
    """One of Llama or Qwen, of Gemma 2 or 3, with norms before and after, or of gpt-oss."""
    norm = lambda name, x: rms_norm(model, p[name], x)  # noqa: E731
    if "pre_ffw_norm" in p:
        y = attention(model, p["self_attention"], norm("pre_self_attention_norm", x), window)
        x = x + norm("post_self_attention_norm", y)
        return x + norm("post_ffw_norm", mlp(model, p["mlp"], norm("pre_ffw_norm", x)))
    attended, fed = ("GptOssAttention", "GptOssMlp") if "GptOssMlp" in p else ("self_attention", "mlp")
    x = x + attention(model, p[attended], norm("pre_self_attention_layer_norm", x), window)
    y = norm("post_self_attention_layer_norm", x)
    return x + (experts if model.top else mlp)(model, p[fed], y)


def layers_of(model: Model, decoder: Mapping[str, Any]) -> list[tuple[Any, bool]]:
    """The layers in their order, and whether each of them looks everywhere."""
    if "layers" not in decoder:
        count = sum(name.startswith("layers_") for name in decoder)
        steps = [decoder[f"layers_{i}"] for i in range(count)]
    else:
        stack = decoder["layers"]
        height = jax.tree.leaves(stack)[0].shape[model.axis]
        steps = [jax.tree.map(lambda a, i=i: jnp.take(a, i, model.axis), stack) for i in range(height)]
    if "mlp_local" in steps[0]:  # Gemma 2 has two layers in one
        spans = ("local", "global")
        whole = [
            {k.removesuffix(f"_{span}"): v for k, v in step.items() if k.endswith(span)}
            for step in steps
            for span in spans
        ]
    elif "layers_0" in steps[0]:
        whole = [step[f"layers_{j}"] for step in steps for j in range(len(step))]
        rest = decoder.get("layers_remainder", {})
        whole += [rest[f"layers_{j}"] for j in range(len(rest))]
    else:
        whole = steps
    period = 6 if "query_norm" in whole[0].get("self_attention", {}) and model.gelu else 2
    return [(p, not model.window or i % period == period - 1) for i, p in enumerate(whole)]


def jax_logits(model: Model, params: Mapping[str, Any]) -> np.ndarray:
    """Of TOKENS, from the tree in a layout of the JAX side."""
    params = params.get("params", params)
    decoder, table = params["decoder"], jnp.asarray(params["token_embedder"]["embedding"])
    compiled = jax.jit(lambda p, x, window: layer(model, p, x, window), static_argnums=2)
    x = table[TOKENS] * model.embedding_scale
    for p, everywhere in layers_of(model, decoder):
        x = compiled(p, x, 0 if everywhere else model.window)
    x = rms_norm(model, decoder["decoder_norm"], x)
    tied = table.T * model.logits_scale
    logits = x @ (decoder["logits_dense"]["kernel"] if "logits_dense" in decoder else tied)
    return np.asarray(capped(logits, model.cap_logits))
