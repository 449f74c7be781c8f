"""gpt-oss: its sizes, and its names and shapes on both sides."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.recipes import leaves
from tests.recipes.decoder_layouts import biases
from tests.recipes.leaves import ATTENTION_NORMS, Arrays, Layout, Leaf, Shapes, Sizes, listed, random_arrays

PACKED_ENDS = ("_blocks", "_scales")


@dataclass(frozen=True)
class GptOss(Sizes):
    """A model by its sizes."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    experts: int

    def outside(self, layout: Layout) -> Iterator[Leaf]:
        return iter(leaves.tables(layout, self.vocab, self.embed))

    def place(self, layout: Layout, i: int) -> tuple[str, bool]:
        """Two layers are a block."""
        return (f"layers/layers_{i % 2}", True) if layout.scan else (f"layers_{i}", False)

    def layer(self, layout: Layout, i: int) -> Iterator[Leaf]:
        e, n, m, h = self.embed, self.experts, self.mlp, self.head_dim
        places = leaves.as_pairs(h, layout.rope)
        for name, ours in ATTENTION_NORMS.items():
            yield Leaf(f"{ours}/scale", (e,), {f"{name}.weight": (e,)})
        yield Leaf("GptOssAttention/sinks", (self.heads,), {"self_attn.sinks": (self.heads,)})
        yield from leaves.attention("GptOssAttention", self.heads, self.kv_heads, h, e, places)
        yield from biases("GptOssAttention", self.heads, self.kv_heads, h, places)
        yield Leaf("GptOssAttention/out/bias", (e,), {"self_attn.o_proj.bias": (e,)})
        yield leaves.transposed("GptOssMlp/gate/kernel", "mlp.router.weight", (n, e))
        yield Leaf("GptOssMlp/gate/bias", (n,), {"mlp.router.bias": (n,)})
        yield Leaf("GptOssMlp/wo", (n, m, e), {"mlp.experts.down_proj": (n, m, e)})
        yield Leaf("GptOssMlp/wo_bias", (n, e), {"mlp.experts.down_proj_bias": (n, e)})
        for suffix, shape in (("", (n, e, 2 * m)), ("_bias", (n, 2 * m))):
            for k in range(2):
                every_second = lambda w, k=k: np.stack([w[..., 2 * j + k] for j in range(m)], -1)  # noqa: E731
                theirs = {f"mlp.experts.gate_up_proj{suffix}": shape}
                yield Leaf(f"GptOssMlp/wi_{k}{suffix}", (*shape[:-1], m), theirs, every_second)


OSS_20B = GptOss(24, 64, 8, 64, 2880, 2880, 201088, 32)
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
        **leaves.config_of(d),
        "model_type": "gpt_oss",
        "hidden_size": d.embed,
        "intermediate_size": d.mlp,
        "num_local_experts": d.experts,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * (d.layers // 2),
    }
    return config | ({"quantization_config": {"quant_method": "mxfp4"}} if quantized else {})


def hf_shapes(d: GptOss, quantized: bool = False) -> Shapes:
    """Packed experts are (experts, out, groups of 32 inputs, 16 bytes), with a scale for each group."""
    made: Shapes = {}
    for key, shape in leaves.hf_shapes(d).items():
        if quantized and key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            groups = (shape[0], shape[2], shape[1] // 32)
            made |= {f"{key}_blocks": (*groups, 16), f"{key}_scales": groups}
        else:
            made[key] = shape
    return made


def hf_arrays(d: GptOss, dtype: np.dtype, quantized: bool = False) -> Arrays:
    """Random weights; packed ones are random bytes, with exponents as weights have them."""
    generator, shapes = np.random.default_rng(0), hf_shapes(d, quantized)
    made = random_arrays({k: s for k, s in shapes.items() if not k.endswith(PACKED_ENDS)}, dtype)
    for key, shape in shapes.items():
        if key.endswith(PACKED_ENDS):
            low, high = (0, 256) if key.endswith("_blocks") else (90, 140)
            made[key] = generator.integers(low, high, shape, np.uint8)
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


def dtypes(shapes: Shapes) -> dict[str, str]:
    """A listing as published: bfloat16, and bytes where experts are packed."""
    packed = {key: shape for key, shape in shapes.items() if key.endswith(PACKED_ENDS)}
    return listed(shapes) | listed(packed, "uint8")
