"""gpt-oss: its names and shapes on both sides, and a NumPy conversion that is written without the package."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tests.recipes.decoder_layouts import Arrays, Shapes, in_heads, out_of_heads, place


@dataclass(frozen=True)
class GptOss:
    """A model by its sizes."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    experts: int


@dataclass(frozen=True)
class Layout:
    """The params of the recipes about the JAX side, with their defaults."""

    layout: str = "jax"
    scan: bool = True
    layer_axis: int = 0
    rope: str = "half"
    vocab_size_padded: int = 0


OSS_20B = GptOss(24, 64, 8, 64, 2880, 2880, 201088, 32)
OSS_120B = GptOss(36, 64, 8, 64, 2880, 2880, 201088, 128)
NARROW = GptOss(22, 4, 2, 6, 10, 14, 33, 3)
"""Of a width that runs in a moment.

No two lengths in one array are equal, and block 10 sorts before block 2 as text.
"""
SMALL = replace(NARROW, layers=4)
PACKED = GptOss(4, 4, 2, 6, 64, 96, 33, 3)
"""Of a width that MXFP4 has: experts have whole groups of 32 inputs."""

LUT = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""The numbers of E2M1 (Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0)."""


def hf_config(d: GptOss, quantized: bool = False) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    config: dict[str, Any] = {
        "model_type": "gpt_oss",
        "num_hidden_layers": d.layers,
        "num_attention_heads": d.heads,
        "num_key_value_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "hidden_size": d.embed,
        "intermediate_size": d.mlp,
        "num_local_experts": d.experts,
        "vocab_size": d.vocab,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * (d.layers // 2),
    }
    return config | ({"quantization_config": {"quant_method": "mxfp4"}} if quantized else {})


def recorded_config(d: GptOss, layout: Layout) -> dict[str, Any]:
    """What a conversion to JAX leaves behind for the one back."""
    return hf_config(d) | {"ckpt_surgery": {"recipes": {"@hf-gpt-oss-to-jax": {"params": asdict(layout)}}}}


# --- Hugging Face's side ------------------------------------------------------------------------------


def hf_layer(d: GptOss, quantized: bool = False) -> Shapes:
    """Names within one layer."""
    query, kv, e, m = d.heads * d.head_dim, d.kv_heads * d.head_dim, d.embed, d.mlp
    shapes: Shapes = {
        "input_layernorm.weight": (e,),
        "post_attention_layernorm.weight": (e,),
        "self_attn.sinks": (d.heads,),
        "self_attn.o_proj.weight": (e, query),
        "self_attn.o_proj.bias": (e,),
        "mlp.router.weight": (d.experts, e),
        "mlp.router.bias": (d.experts,),
        "mlp.experts.gate_up_proj_bias": (d.experts, 2 * m),
        "mlp.experts.down_proj_bias": (d.experts, e),
    }
    for name, rows in (("q", query), ("k", kv), ("v", kv)):
        shapes |= {f"self_attn.{name}_proj.weight": (rows, e), f"self_attn.{name}_proj.bias": (rows,)}
    if quantized:
        return shapes | {
            "mlp.experts.gate_up_proj_blocks": (d.experts, 2 * m, e // 32, 16),
            "mlp.experts.gate_up_proj_scales": (d.experts, 2 * m, e // 32),
            "mlp.experts.down_proj_blocks": (d.experts, e, m // 32, 16),
            "mlp.experts.down_proj_scales": (d.experts, e, m // 32),
        }
    return shapes | {
        "mlp.experts.gate_up_proj": (d.experts, e, 2 * m),
        "mlp.experts.down_proj": (d.experts, m, e),
    }


def hf_shapes(d: GptOss, quantized: bool = False) -> Shapes:
    table: Shapes = {f"{name}.weight": (d.vocab, d.embed) for name in ("model.embed_tokens", "lm_head")}
    layer = hf_layer(d, quantized)
    return (
        table
        | {"model.norm.weight": (d.embed,)}
        | {f"model.layers.{i}.{name}": shape for i in range(d.layers) for name, shape in layer.items()}
    )


def hf_arrays(d: GptOss, dtype: np.dtype, quantized: bool = False) -> Arrays:
    """Random weights; packed ones are random bytes, with exponents as weights have them."""
    generator = np.random.default_rng(0)
    made: Arrays = {}
    for key, shape in hf_shapes(d, quantized).items():
        if key.endswith("_blocks"):
            made[key] = generator.integers(0, 256, shape, np.uint8)
        elif key.endswith("_scales"):
            made[key] = generator.integers(90, 140, shape, np.uint8)
        else:
            made[key] = generator.standard_normal(shape, np.float32).astype(dtype)
    return made


def unpacked(hf: Mapping[str, np.ndarray], dtype: np.dtype) -> Arrays:
    """A model with MXFP4 experts as one without."""
    made: Arrays = {}
    for key, array in hf.items():
        if key.endswith("_blocks"):
            name = key.removesuffix("_blocks")
            values = np.empty((*array.shape[:-1], 32), np.float32)
            values[..., 0::2], values[..., 1::2] = LUT[array & 15], LUT[array >> 4]
            exponents = hf[f"{name}_scales"].astype(np.int32) - 127
            exact = np.ldexp(values.astype(np.float64), exponents[..., None])
            rows = exact.reshape(*exact.shape[:2], -1).astype(dtype)
            assert (rows.astype(np.float64) == exact.reshape(rows.shape)).all()
            made[name] = np.ascontiguousarray(rows.swapaxes(1, 2))
        elif not key.endswith("_scales"):
            made[key] = array
    return made


# --- the JAX side -------------------------------------------------------------------------------------


def bias_in_heads(b: np.ndarray, heads: int, head_dim: int, rope: str) -> np.ndarray:
    """(heads × head_dim) → (heads, head_dim)."""
    made = np.empty((heads, head_dim), b.dtype)
    for h in range(heads):
        for j in range(head_dim):
            made[h, place(j, head_dim, rope)] = b[h * head_dim + j]
    return made


def jax_layer(d: GptOss, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """One layer; `hf` has the names within the layer."""
    made = {
        "pre_self_attention_layer_norm/scale": hf["input_layernorm.weight"],
        "post_self_attention_layer_norm/scale": hf["post_attention_layernorm.weight"],
        "GptOssAttention/sinks": hf["self_attn.sinks"],
        "GptOssAttention/out/kernel": out_of_heads(hf["self_attn.o_proj.weight"], d.heads, d.head_dim),
        "GptOssAttention/out/bias": hf["self_attn.o_proj.bias"],
        "GptOssMlp/gate/kernel": hf["mlp.router.weight"].T,
        "GptOssMlp/gate/bias": hf["mlp.router.bias"],
        "GptOssMlp/wo": hf["mlp.experts.down_proj"],
        "GptOssMlp/wo_bias": hf["mlp.experts.down_proj_bias"],
    }
    for name, ours, heads in (("q", "query", d.heads), ("k", "key", d.kv_heads), ("v", "value", d.kv_heads)):
        rope = "half" if name == "v" else layout.rope
        weight, bias = hf[f"self_attn.{name}_proj.weight"], hf[f"self_attn.{name}_proj.bias"]
        made[f"GptOssAttention/{ours}/kernel"] = in_heads(weight, heads, d.head_dim, rope)
        made[f"GptOssAttention/{ours}/bias"] = bias_in_heads(bias, heads, d.head_dim, rope)
    for suffix in ("", "_bias"):
        both = hf[f"mlp.experts.gate_up_proj{suffix}"]
        for k in range(2):
            columns = [both[..., 2 * m + k] for m in range(d.mlp)]
            made[f"GptOssMlp/wi_{k}{suffix}"] = np.stack(columns, axis=-1)
    return made


def jax_arrays(d: GptOss, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What the JAX side holds for a Hugging Face model, by key; `hf` is not packed."""
    if layout.layout == "maxtext":
        within = jax_arrays(d, replace(layout, layout="jax", layer_axis=1), hf)
        return {f"params/{key}": array for key, array in within.items()}
    made = {
        "params/token_embedder/embedding": _padded(hf["model.embed_tokens.weight"], layout),
        "params/decoder/logits_dense/kernel": _padded(hf["lm_head.weight"], layout).T,
        "params/decoder/decoder_norm/scale": hf["model.norm.weight"],
    }
    layers = []
    for i in range(d.layers):
        prefix = f"model.layers.{i}."
        within = {key.removeprefix(prefix): array for key, array in hf.items() if key.startswith(prefix)}
        layers.append(jax_layer(d, layout, within))
    for name in layers[0]:
        if layout.scan:
            for j in range(2):
                stacked = np.stack([one[name] for one in layers[j::2]], axis=layout.layer_axis)
                made[f"params/decoder/layers/layers_{j}/{name}"] = stacked
        else:
            made |= {f"params/decoder/layers_{i}/{name}": one[name] for i, one in enumerate(layers)}
    return made


def _padded(table: np.ndarray, layout: Layout) -> np.ndarray:
    padded = np.zeros((layout.vocab_size_padded or len(table), table.shape[1]), table.dtype)
    padded[: len(table)] = table
    return padded


def jax_shapes(d: GptOss, layout: Layout) -> Shapes:
    """The shapes of `jax_arrays`, from the sizes alone."""
    maxtext, e, h, n = layout.layout == "maxtext", d.embed, d.head_dim, d.experts
    at, rows = 1 if maxtext else layout.layer_axis, layout.vocab_size_padded or d.vocab
    layer: Shapes = {
        **{f"{which}_self_attention_layer_norm/scale": (e,) for which in ("pre", "post")},
        "GptOssAttention/sinks": (d.heads,),
        "GptOssAttention/out/kernel": (d.heads, h, e),
        "GptOssAttention/out/bias": (e,),
        "GptOssMlp/gate/kernel": (e, n),
        "GptOssMlp/gate/bias": (n,),
        "GptOssMlp/wo": (n, d.mlp, e),
        "GptOssMlp/wo_bias": (n, e),
    }
    for name, heads in (("query", d.heads), ("key", d.kv_heads), ("value", d.kv_heads)):
        layer |= {f"GptOssAttention/{name}/kernel": (e, heads, h), f"GptOssAttention/{name}/bias": (heads, h)}
    for k in range(2):
        layer |= {f"GptOssMlp/wi_{k}": (n, e, d.mlp), f"GptOssMlp/wi_{k}_bias": (n, d.mlp)}
    made: Shapes = {
        "token_embedder/embedding": (rows, e),
        "decoder/logits_dense/kernel": (e, rows),
        "decoder/decoder_norm/scale": (e,),
    }
    for name, shape in layer.items():
        if layout.scan:
            stacked = (*shape[:at], d.layers // 2, *shape[at:])
            made |= {f"decoder/layers/layers_{j}/{name}": stacked for j in range(2)}
        else:
            made |= {f"decoder/layers_{i}/{name}": shape for i in range(d.layers)}
    return {f"{'params/params' if maxtext else 'params'}/{key}": shape for key, shape in made.items()}


def dtypes(shapes: Shapes) -> dict[str, str]:
    """A listing as published: bfloat16, and bytes where experts are packed."""
    return {
        key: f"{'uint8' if key.endswith(('_blocks', '_scales')) else 'bfloat16'}[{','.join(map(str, shape))}]"
        for key, shape in shapes.items()
    }
