"""Gemma 3: its names and shapes on both sides, and a NumPy conversion that is written without the package."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tests.recipes.decoder_layouts import Arrays, Shapes, computed, in_heads, out_of_heads, reordered


@dataclass(frozen=True)
class Gemma3:
    """A model by its sizes."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    root: str = "language_model.model"
    """What the names of the text model begin with."""

    @property
    def images(self) -> bool:
        return self.root != "model"


@dataclass(frozen=True)
class Layout:
    """The params of the recipes about the JAX side, with their defaults."""

    layout: str = "jax"
    scan: bool = True
    layer_axis: int = 0
    rope: str = "half"
    norm_plus_one: bool = True
    scale_embedding: bool = False
    vocab_size_padded: int = 0


GEMMA_270M = Gemma3(18, 4, 1, 256, 640, 2048, 262144, "model")
GEMMA_1B = Gemma3(26, 4, 1, 256, 1152, 6912, 262144, "model")
GEMMA_4B = Gemma3(34, 8, 4, 256, 2560, 10240, 262208)
GEMMA_12B = Gemma3(48, 16, 8, 256, 3840, 15360, 262208)
GEMMA_27B = Gemma3(62, 32, 16, 128, 5376, 21504, 262208)
NARROW = Gemma3(14, 4, 2, 6, 10, 14, 33, "model")
"""Two blocks and two layers, of a width that runs in a moment.

No two lengths in one array are equal, the root of the width is inexact, and layer 10 sorts before layer 2 as
text.
"""

NORMS = {
    "input_layernorm": "pre_self_attention_norm",
    "post_attention_layernorm": "post_self_attention_norm",
    "pre_feedforward_layernorm": "pre_ffw_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
MLP = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}

TUNIX = {
    "self_attention/out/kernel": "attn/attn_vec_einsum/w",
    "self_attention/query_norm/scale": "attn/_query_norm/scale",
    "self_attention/key_norm/scale": "attn/_key_norm/scale",
    "pre_self_attention_norm/scale": "pre_attention_norm/scale",
    "post_self_attention_norm/scale": "post_attention_norm/scale",
    "pre_ffw_norm/scale": "pre_ffw_norm/scale",
    "post_ffw_norm/scale": "post_ffw_norm/scale",
    "mlp/wi_0/kernel": "mlp/gate_proj/kernel",
    "mlp/wi_1/kernel": "mlp/up_proj/kernel",
    "mlp/wo/kernel": "mlp/down_proj/kernel",
}
"""Names within a layer, and what tunix calls them."""


def hf_config(d: Gemma3) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    text = {
        "model_type": "gemma3_text",
        "num_hidden_layers": d.layers,
        "num_attention_heads": d.heads,
        "num_key_value_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "hidden_size": d.embed,
        "intermediate_size": d.mlp,
        "vocab_size": d.vocab,
    }
    return {"model_type": "gemma3", "text_config": text} if d.images else text


def published_config(d: Gemma3) -> dict[str, Any]:
    """As the 4B model has it: what is the default of the library's class is not there."""
    config = hf_config(d)
    for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"):
        del config["text_config"][name]
    return config


def recorded_config(d: Gemma3, layout: Layout) -> dict[str, Any]:
    """What a conversion to JAX leaves behind for the one back."""
    return hf_config(d) | {"ckpt_surgery": {"recipes": {"@hf-gemma3-to-jax": {"params": asdict(layout)}}}}


def hf_layer(d: Gemma3) -> Shapes:
    """Names within one layer."""
    query, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
    return {
        "self_attn.q_proj": (query, d.embed),
        "self_attn.k_proj": (kv, d.embed),
        "self_attn.v_proj": (kv, d.embed),
        "self_attn.o_proj": (d.embed, query),
        "self_attn.q_norm": (d.head_dim,),
        "self_attn.k_norm": (d.head_dim,),
        "mlp.gate_proj": (d.mlp, d.embed),
        "mlp.up_proj": (d.mlp, d.embed),
        "mlp.down_proj": (d.embed, d.mlp),
    } | dict.fromkeys(NORMS, (d.embed,))


def text_shapes(d: Gemma3) -> Shapes:
    layer = hf_layer(d)
    table = {f"{d.root}.embed_tokens.weight": (d.vocab, d.embed), f"{d.root}.norm.weight": (d.embed,)}
    return table | {
        f"{d.root}.layers.{i}.{name}.weight": shape for i in range(d.layers) for name, shape in layer.items()
    }


def vision_shapes(d: Gemma3) -> Shapes:
    """What sees images in the published models: SigLIP, 27 layers of 1152, and the projector."""
    if not d.images:
        return {}
    wide, tower = 1152, "vision_tower.vision_model"
    layer: Shapes = {f"layer_norm{n}.{leaf}": (wide,) for n in (1, 2) for leaf in ("weight", "bias")}
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        layer |= {f"self_attn.{name}.weight": (wide, wide), f"self_attn.{name}.bias": (wide,)}
    layer |= {"mlp.fc1.weight": (4304, wide), "mlp.fc1.bias": (4304,)}
    layer |= {"mlp.fc2.weight": (wide, 4304), "mlp.fc2.bias": (wide,)}
    return {
        f"{tower}.embeddings.patch_embedding.weight": (wide, 3, 14, 14),
        f"{tower}.embeddings.patch_embedding.bias": (wide,),
        f"{tower}.embeddings.position_embedding.weight": (4096, wide),
        f"{tower}.post_layernorm.weight": (wide,),
        f"{tower}.post_layernorm.bias": (wide,),
        "multi_modal_projector.mm_input_projection_weight": (wide, d.embed),
        "multi_modal_projector.mm_soft_emb_norm.weight": (wide,),
        **{f"{tower}.encoder.layers.{i}.{name}": shape for i in range(27) for name, shape in layer.items()},
    }


def hf_arrays(d: Gemma3, dtype: np.dtype) -> Arrays:
    generator = np.random.default_rng(0)
    return {k: generator.standard_normal(s, np.float32).astype(dtype) for k, s in text_shapes(d).items()}


def norm_of(layout: Layout, w: np.ndarray) -> np.ndarray:
    return computed(w, lambda wide: wide + np.float32(1)) if layout.norm_plus_one else w


def embedding_root(d: Gemma3) -> np.float32:
    """What the model multiplies embeddings by, as bfloat16 has it: 34 for 1152, 50.5 for 2560."""
    return np.float32(ml_dtypes.bfloat16(d.embed**0.5))


def jax_layer(d: Gemma3, layout: Layout, hf: Mapping[str, np.ndarray], i: int) -> Arrays:
    of = lambda name: hf[f"{d.root}.layers.{i}.{name}.weight"]  # noqa: E731
    made = {
        "self_attention/query/kernel": in_heads(of("self_attn.q_proj"), d.heads, d.head_dim, layout.rope),
        "self_attention/key/kernel": in_heads(of("self_attn.k_proj"), d.kv_heads, d.head_dim, layout.rope),
        "self_attention/value/kernel": in_heads(of("self_attn.v_proj"), d.kv_heads, d.head_dim, "half"),
        "self_attention/out/kernel": out_of_heads(of("self_attn.o_proj"), d.heads, d.head_dim),
        "self_attention/query_norm/scale": reordered(norm_of(layout, of("self_attn.q_norm")), layout.rope),
        "self_attention/key_norm/scale": reordered(norm_of(layout, of("self_attn.k_norm")), layout.rope),
    }
    made |= {f"{ours}/scale": norm_of(layout, of(theirs)) for theirs, ours in NORMS.items()}
    return made | {f"mlp/{ours}/kernel": of(f"mlp.{theirs}").T for theirs, ours in MLP.items()}


def jax_arrays(d: Gemma3, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What the JAX side holds for a Hugging Face model, by key."""
    if layout.layout == "maxtext":
        within = jax_arrays(d, replace(layout, layout="jax", layer_axis=1, scale_embedding=True), hf)
        table = within["params/token_embedder/embedding"][:262144]
        within["params/token_embedder/embedding"] = table
        return {f"params/{key}": array for key, array in within.items()}
    table = hf[f"{d.root}.embed_tokens.weight"]
    if layout.scale_embedding:
        table = computed(table, lambda wide: wide * embedding_root(d))
    padded = np.zeros((max(layout.vocab_size_padded, d.vocab), d.embed), table.dtype)
    padded[: d.vocab] = table
    made = {
        "params/token_embedder/embedding": padded,
        "params/decoder/decoder_norm/scale": norm_of(layout, hf[f"{d.root}.norm.weight"]),
    }
    layers = [jax_layer(d, layout, hf, i) for i in range(d.layers)]
    if not layout.scan:
        return made | {
            f"params/decoder/layers_{i}/{k}": a for i, one in enumerate(layers) for k, a in one.items()
        }
    whole = d.layers - d.layers % 6
    for name in layers[0]:
        for j in range(6):
            stacked = np.stack([layers[i][name] for i in range(j, whole, 6)], axis=layout.layer_axis)
            made[f"params/decoder/layers/layers_{j}/{name}"] = stacked
        for j, one in enumerate(layers[whole:]):
            made[f"params/decoder/layers_remainder/layers_{j}/{name}"] = one[name]
    return made


def tunix_arrays(d: Gemma3, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What tunix holds for a Hugging Face model, by key: norms as they are, heads first, keys with values."""
    by_head = lambda kernel: np.stack([kernel[:, h] for h in range(kernel.shape[1])])  # noqa: E731
    made = {
        "embedder/input_embedding": hf[f"{d.root}.embed_tokens.weight"],
        "final_norm/scale": hf[f"{d.root}.norm.weight"],
    }
    for i in range(d.layers):
        layer = jax_layer(d, Layout(norm_plus_one=False), hf, i)
        query, key, value = (
            by_head(layer.pop(f"self_attention/{n}/kernel")) for n in ("query", "key", "value")
        )
        made[f"layers/{i}/attn/q_einsum/w"] = query
        made[f"layers/{i}/attn/kv_einsum/w"] = np.stack([key, value])
        made |= {f"layers/{i}/{TUNIX[name]}": array for name, array in layer.items()}
    return {f"{key}/value": array for key, array in made.items()}


def jax_shapes(d: Gemma3, layout: Layout) -> Shapes:
    """The shapes of `jax_arrays`, from the sizes alone."""
    maxtext, e, h = layout.layout == "maxtext", d.embed, d.head_dim
    at = 1 if maxtext else layout.layer_axis
    rows = max(layout.vocab_size_padded, min(d.vocab, 262144) if maxtext else d.vocab)
    layer: Shapes = {
        "self_attention/query/kernel": (e, d.heads, h),
        "self_attention/key/kernel": (e, d.kv_heads, h),
        "self_attention/value/kernel": (e, d.kv_heads, h),
        "self_attention/out/kernel": (d.heads, h, e),
        "self_attention/query_norm/scale": (h,),
        "self_attention/key_norm/scale": (h,),
        "mlp/wi_0/kernel": (e, d.mlp),
        "mlp/wi_1/kernel": (e, d.mlp),
        "mlp/wo/kernel": (d.mlp, e),
    } | {f"{name}/scale": (e,) for name in NORMS.values()}
    blocks, rest = divmod(d.layers, 6)
    made: Shapes = {"token_embedder/embedding": (rows, e), "decoder/decoder_norm/scale": (e,)}
    for name, shape in layer.items():
        if layout.scan:
            stacked = (*shape[:at], blocks, *shape[at:])
            made |= {f"decoder/layers/layers_{j}/{name}": stacked for j in range(6)}
            made |= {f"decoder/layers_remainder/layers_{j}/{name}": shape for j in range(rest)}
        else:
            made |= {f"decoder/layers_{i}/{name}": shape for i in range(d.layers)}
    return {f"{'params/params' if maxtext else 'params'}/{key}": shape for key, shape in made.items()}
