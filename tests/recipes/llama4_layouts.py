"""Llama 4: names and shapes on both sides, and a NumPy conversion.

Written without the package, from the description in the recipes' headers, element by element where a
reshape could hide a mistake.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
MATRICES = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}


@dataclass(frozen=True)
class Llama4:
    """A model by its sizes."""

    layers: int
    moe_step: int
    """Layers i with `(i + 1) % moe_step == 0` have experts."""
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    """Of experts, and of what they share."""
    dense_mlp: int
    """Of layers without experts."""
    experts: int
    vocab: int
    images: bool = True
    """Whether it is the model with images, as published, or the text model alone."""

    def has_experts(self, i: int) -> bool:
        return (i + 1) % self.moe_step == 0

    @property
    def prefix(self) -> str:
        return "language_model." if self.images else ""


@dataclass(frozen=True)
class Layout:
    """What the recipes' params say about the JAX side. The defaults are theirs."""

    layout: str = "jax"
    scan: bool = True
    layer_axis: int = 0
    rope: str = "interleaved"
    vocab_size_padded: int = 0
    cycle: int = 4

    @property
    def axis(self) -> int:
        return 1 if self.layout == "maxtext" else self.layer_axis


SCOUT = Llama4(48, 1, 40, 8, 128, 5120, 8192, 16384, 16, 202048)
MAVERICK = Llama4(48, 2, 40, 8, 128, 5120, 8192, 16384, 128, 202048)
NARROW = Llama4(12, 2, 4, 2, 6, 10, 7, 14, 3, 33)
NARROW_SCOUT = Llama4(4, 1, 4, 2, 6, 10, 7, 14, 3, 33, images=False)


def hf_config(d: Llama4) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    text = {
        "model_type": "llama4_text",
        "num_hidden_layers": d.layers,
        "num_attention_heads": d.heads,
        "num_key_value_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "num_local_experts": d.experts,
        "interleave_moe_layer_step": d.moe_step,
        "no_rope_layers": [int((i + 1) % 4 != 0) for i in range(d.layers)],
        "vocab_size": d.vocab,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    return {"model_type": "llama4", "tie_word_embeddings": False, "text_config": text} if d.images else text


def params(d: Llama4, layout: Layout, back: bool) -> list[str]:
    """`--set` for a model and a layout, of the recipe there or the one back."""
    given: dict[str, object] = {
        "model_type": "llama4" if d.images else "llama4_text",
        "num_layers": d.layers,
        "num_heads": d.heads,
        "num_kv_heads": d.kv_heads,
        "num_experts": d.experts,
        "moe_step": d.moe_step,
    }
    given |= asdict(layout)
    if back and given.pop("vocab_size_padded"):
        given["vocab_size"] = d.vocab
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in given.items()]


def recorded(config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """What a conversion to JAX leaves behind for the one back."""
    return {**config, "ckpt_surgery": {"recipes": {"@hf-llama4-to-jax": {"params": asdict(layout)}}}}


def listed(shapes: Shapes) -> dict[str, str]:
    """Shapes as a listing of bfloat16."""
    return {key: f"bfloat16[{','.join(map(str, shape))}]" for key, shape in shapes.items()}


# --- Hugging Face's side ------------------------------------------------------------------------------


def _three(d: Llama4, block: str, inner: int) -> Shapes:
    shapes = ((inner, d.embed), (inner, d.embed), (d.embed, inner))
    return {f"{block}{name}.weight": shape for name, shape in zip(MATRICES, shapes, strict=True)}


def _hf_layer(d: Llama4, i: int) -> Shapes:
    query, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
    shapes: Shapes = {
        "input_layernorm.weight": (d.embed,),
        "post_attention_layernorm.weight": (d.embed,),
        "self_attn.q_proj.weight": (query, d.embed),
        "self_attn.k_proj.weight": (kv, d.embed),
        "self_attn.v_proj.weight": (kv, d.embed),
        "self_attn.o_proj.weight": (d.embed, query),
    }
    if not d.has_experts(i):
        return shapes | _three(d, "feed_forward.", d.dense_mlp)
    shapes["feed_forward.router.weight"] = (d.experts, d.embed)
    shapes["feed_forward.experts.gate_up_proj"] = (d.experts, d.embed, 2 * d.mlp)
    shapes["feed_forward.experts.down_proj"] = (d.experts, d.mlp, d.embed)
    return shapes | _three(d, "feed_forward.shared_expert.", d.mlp)


def hf_shapes(d: Llama4) -> Shapes:
    """Of the decoder."""
    table: Shapes = {
        "model.embed_tokens.weight": (d.vocab, d.embed),
        "model.norm.weight": (d.embed,),
        "lm_head.weight": (d.vocab, d.embed),
    }
    for i in range(d.layers):
        table |= {f"model.layers.{i}.{name}": shape for name, shape in _hf_layer(d, i).items()}
    return {d.prefix + key: shape for key, shape in table.items()}


IMAGES: Shapes = {
    "vision_model.class_embedding": (1408,),
    "vision_model.model.layers.0.self_attn.q_proj.bias": (1408,),
    "multi_modal_projector.linear_1.weight": (5120, 4096),
}
"""Some of what the model with images has beside the decoder."""


def hf_arrays(d: Llama4, dtype: np.dtype) -> Arrays:
    generator = np.random.default_rng(0)
    return {
        key: generator.standard_normal(shape, np.float32).astype(dtype) for key, shape in hf_shapes(d).items()
    }


# --- the JAX side -------------------------------------------------------------------------------------


def _in_heads(w: np.ndarray, heads: int, rope: str) -> np.ndarray:
    """(heads × head_dim, embed) → (embed, heads, head_dim); pairs of neighbours, or two halves."""
    length = w.shape[0] // heads
    kernel = np.empty((w.shape[1], heads, length), w.dtype)
    for h in range(heads):
        for j in range(length):
            place = j if rope == "interleaved" else (j % 2) * (length // 2) + j // 2
            kernel[:, h, place] = w[h * length + j]
    return kernel


def _jax_layer(d: Llama4, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """One layer; `hf` has the names within the layer."""
    out = hf["self_attn.o_proj.weight"]
    n = d.head_dim
    made = {
        "pre_self_attention_layer_norm/scale": hf["input_layernorm.weight"],
        "post_self_attention_layer_norm/scale": hf["post_attention_layernorm.weight"],
        "self_attention/query/kernel": _in_heads(hf["self_attn.q_proj.weight"], d.heads, layout.rope),
        "self_attention/key/kernel": _in_heads(hf["self_attn.k_proj.weight"], d.kv_heads, layout.rope),
        "self_attention/value/kernel": _in_heads(hf["self_attn.v_proj.weight"], d.kv_heads, "interleaved"),
        "self_attention/out/kernel": np.stack([out[:, h * n : (h + 1) * n].T for h in range(d.heads)]),
    }
    if "feed_forward.router.weight" not in hf:
        return made | {f"mlp/{ours}/kernel": hf[f"feed_forward.{k}.weight"].T for k, ours in MATRICES.items()}
    block, fused = "Llama4MoEBlock_0", hf["feed_forward.experts.gate_up_proj"]
    made[f"{block}/MoeBlock_0/gate/kernel"] = hf["feed_forward.router.weight"].T
    made[f"{block}/MoeBlock_0/wi_0"] = fused[..., : d.mlp]
    made[f"{block}/MoeBlock_0/wi_1"] = fused[..., d.mlp :]
    made[f"{block}/MoeBlock_0/wo"] = hf["feed_forward.experts.down_proj"]
    for theirs, ours in MATRICES.items():
        made[f"{block}/shared_experts/{ours}/kernel"] = hf[f"feed_forward.shared_expert.{theirs}.weight"].T
    return made


def jax_arrays(d: Llama4, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What the JAX side holds for a Hugging Face model, by key."""
    hf = {key.removeprefix(d.prefix): array for key, array in hf.items()}
    tables = {}
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        tables[key] = np.zeros((max(layout.vocab_size_padded, d.vocab), d.embed), hf[key].dtype)
        tables[key][: d.vocab] = hf[key]
    made = {
        "token_embedder/embedding": tables["model.embed_tokens.weight"],
        "decoder/decoder_norm/scale": hf["model.norm.weight"],
        "decoder/logits_dense/kernel": tables["lm_head.weight"].T,
    }
    layers = []
    for i in range(d.layers):
        prefix = f"model.layers.{i}."
        named = {k.removeprefix(prefix): v for k, v in hf.items() if k.startswith(prefix)}
        layers.append(_jax_layer(d, layout, named))
    for i, layer in enumerate(layers):
        if not layout.scan:
            made |= {f"decoder/layers_{i}/{k}": v for k, v in layer.items()}
        elif i < layout.cycle:
            for k in layer:
                stacked = np.stack([one[k] for one in layers[i :: layout.cycle]], axis=layout.axis)
                made[f"decoder/layers/layers_{i}/{k}"] = stacked
    root = "params/params" if layout.layout == "maxtext" else "params"
    return {f"{root}/{k}": v for k, v in made.items()}


def jax_shapes(d: Llama4, layout: Layout) -> Shapes:
    """The shapes of `jax_arrays`, from the sizes alone."""
    e, h, k, n, m, x = d.embed, d.heads, d.kv_heads, d.head_dim, d.mlp, d.experts
    both: Shapes = {f"{which}_self_attention_layer_norm/scale": (e,) for which in ("pre", "post")}
    both |= {"self_attention/query/kernel": (e, h, n), "self_attention/out/kernel": (h, n, e)}
    both |= {f"self_attention/{name}/kernel": (e, k, n) for name in ("key", "value")}
    dense: Shapes = {f"mlp/{name}/kernel": (e, d.dense_mlp) for name in ("wi_0", "wi_1")}
    dense["mlp/wo/kernel"] = (d.dense_mlp, e)
    moe: Shapes = {"MoeBlock_0/gate/kernel": (e, x), "MoeBlock_0/wo": (x, m, e)}
    moe |= {f"MoeBlock_0/{name}": (x, e, m) for name in ("wi_0", "wi_1")}
    moe |= {f"shared_experts/{name}/kernel": (e, m) for name in ("wi_0", "wi_1")}
    moe["shared_experts/wo/kernel"] = (m, e)
    v = max(layout.vocab_size_padded, d.vocab)
    made: Shapes = {"token_embedder/embedding": (v, e), "decoder/decoder_norm/scale": (e,)}
    made["decoder/logits_dense/kernel"] = (e, v)
    for i in range(layout.cycle if layout.scan else d.layers):
        layer = both | ({f"Llama4MoEBlock_0/{k}": s for k, s in moe.items()} if d.has_experts(i) else dense)
        if layout.scan:
            at, count = layout.axis, d.layers // layout.cycle
            layer = {k: (*s[:at], count, *s[at:]) for k, s in layer.items()}
        prefix = f"decoder/layers/layers_{i}" if layout.scan else f"decoder/layers_{i}"
        made |= {f"{prefix}/{k}": s for k, s in layer.items()}
    root = "params/params" if layout.layout == "maxtext" else "params"
    return {f"{root}/{k}": shape for k, shape in made.items()}
