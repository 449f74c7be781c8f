"""DeepSeek-V3 and its relatives: their sizes, and their names and shapes on both sides."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tests.recipes import leaves
from tests.recipes.leaves import ATTENTION_NORMS, Arrays, Leaf, Shapes, Sizes

BLOCK = "DeepSeekMoeBlock_0/MoeBlock_0"


@dataclass(frozen=True)
class Layout(leaves.Layout):
    """What the recipes' params say about the JAX side. The defaults are theirs."""

    rope: str = "interleaved"


@dataclass(frozen=True)
class DeepSeek(Sizes):
    """A model by its sizes."""

    family: str
    """The model_type of its config."""
    layers: int
    dense: int
    """How many layers come first that have no experts."""
    heads: int
    nope: int
    rope: int
    value: int
    q_rank: int
    """0: queries are made by one matrix."""
    kv_rank: int
    embed: int
    mlp: int
    expert_mlp: int
    shared_mlp: int
    experts: int
    vocab: int

    LAYOUT = Layout()

    def given(self, back: bool) -> dict[str, object]:
        return {
            "model_type": self.family,
            "num_layers": self.layers,
            "first_dense": self.dense,
            "num_heads": self.heads,
            "num_experts": self.experts,
            "qk_rope_head_dim": self.rope,
        }

    def outside(self, layout: Layout) -> Iterator[Leaf]:
        return iter(leaves.tables(layout, self.vocab, self.embed))

    def place(self, layout: Layout, i: int) -> tuple[str, bool]:
        """Layers without experts, then those with them, each kind with numbers of its own."""
        kind, at = ("dense_layers", i) if i < self.dense else ("moe_layers", i - self.dense)
        return (kind, True) if layout.scan else (f"{kind}_{at}", False)

    def rooted(self, layout: Layout, key: str) -> tuple[str, int]:
        """MaxText has the bias of the gate in a collection of its own, its layers first."""
        if layout.layout == "maxtext" and key.endswith("/gate/bias"):
            return f"params/MoEBiasVar/{key}", 0
        return super().rooted(layout, key)

    def layer(self, layout: Layout, i: int) -> Iterator[Leaf]:
        yield from self.attention(layout)
        for name, ours in ATTENTION_NORMS.items():
            yield Leaf(f"{ours}/scale", (self.embed,), {f"{name}.weight": (self.embed,)})
        if i < self.dense:
            yield from leaves.feed_forward("mlp/{}/kernel", "mlp", self.mlp, self.embed)
            return
        yield leaves.transposed(f"{BLOCK}/gate/kernel", "mlp.gate.weight", (self.experts, self.embed))
        if self.family != "deepseek_v2":
            theirs = {"mlp.gate.e_score_correction_bias": (self.experts,)}
            yield Leaf(f"{BLOCK}/gate/bias", (self.experts,), theirs)
        for e in range(self.experts):
            one = f"mlp.experts.{e}"
            yield from leaves.feed_forward(f"{BLOCK}/{{}}", one, self.expert_mlp, self.embed, expert=True)
        shared = "DeepSeekMoeBlock_0/shared_experts/{}/kernel"
        yield from leaves.feed_forward(shared, "mlp.shared_experts", self.shared_mlp, self.embed)

    def attention(self, layout: Layout) -> Iterator[Leaf]:
        """Rotated are the last elements of each head of queries, and of what keys have in common."""
        e, ours, length = self.embed, "self_attention", self.nope + self.rope
        places = leaves.as_halves(length, layout.rope, self.nope)
        if self.q_rank:
            yield leaves.transposed(f"{ours}/wq_a/kernel", "self_attn.q_a_proj.weight", (self.q_rank, e))
            yield norm("q", self.q_rank)
            query, theirs = "wq_b", "q_b_proj"
        else:
            query, theirs = "query", "q_proj"
        yield leaves.projection(
            f"{ours}/{query}/kernel",
            f"self_attn.{theirs}.weight",
            self.heads,
            length,
            self.q_rank or e,
            places,
        )
        joined = leaves.as_halves(self.kv_rank + self.rope, layout.rope, self.kv_rank)
        yield Leaf(
            f"{ours}/wkv_a/kernel",
            (e, len(joined)),
            {"self_attn.kv_a_proj_with_mqa.weight": (len(joined), e)},
            lambda w: leaves.in_heads(w, 1, joined)[:, 0],
        )
        yield norm("kv", self.kv_rank)
        theirs = "self_attn.kv_b_proj.weight"
        both = self.nope + self.value
        yield leaves.projection(f"{ours}/wkv_b/kernel", theirs, self.heads, both, self.kv_rank)
        yield leaves.out_projection(f"{ours}/out/kernel", self.heads, self.value, e)


def norm(which: str, length: int) -> Leaf:
    theirs = {f"self_attn.{which}_a_layernorm.weight": (length,)}
    return Leaf(f"self_attention/{which}_norm/scale", (length,), theirs)


V3 = DeepSeek("deepseek_v3", 61, 3, 128, 128, 64, 128, 1536, 512, 7168, 18432, 2048, 2048, 256, 129280)
NARROW = DeepSeek("deepseek_v3", 14, 2, 4, 6, 8, 5, 9, 7, 10, 14, 3, 4, 11, 33)
"""More than ten layers with experts and more than ten experts: `10` sorts before `2` as text."""
SMALL = replace(NARROW, layers=5, experts=3)
NARROW_V2 = DeepSeek("deepseek_v2", 3, 0, 4, 6, 8, 5, 0, 7, 10, 14, 3, 4, 3, 33)


def hf_config(d: DeepSeek) -> dict[str, Any]:
    """The part of `config.json` that says what the model is, with the names of the published ones."""
    return {
        "model_type": d.family,
        "num_hidden_layers": d.layers,
        "first_k_dense_replace": d.dense,
        "num_attention_heads": d.heads,
        "num_key_value_heads": d.heads,
        "n_routed_experts": d.experts,
        "qk_nope_head_dim": d.nope,
        "qk_rope_head_dim": d.rope,
        "vocab_size": d.vocab,
        "hidden_act": "silu",
        "moe_layer_freq": 1,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def further_layer(d: DeepSeek) -> Shapes:
    """The layer after the last, which predicts the token after the next."""
    shapes = {n: s for leaf in d.layer(d.LAYOUT, d.layers) for n, s in leaf.theirs.items()}
    shapes |= {"eh_proj.weight": (d.embed, 2 * d.embed)}
    shapes |= {f"{name}.weight": (d.embed,) for name in ("enorm", "hnorm", "shared_head.norm")}
    shapes |= {f"{name}.weight": (d.vocab, d.embed) for name in ("embed_tokens", "shared_head.head")}
    return {f"model.layers.{d.layers}.{name}": shape for name, shape in shapes.items()}


def is_quantized(key: str) -> bool:
    """Whether the published files have this weight as float8: the matrices of attention and of all MLPs."""
    return key.endswith(("_proj.weight", "_proj_with_mqa.weight")) and "eh_proj" not in key


def scales(shapes: Shapes) -> Shapes:
    """The scales that lie beside float8 weights."""
    return {
        f"{key}_scale_inv": tuple(-(-n // 128) for n in shape)
        for key, shape in shapes.items()
        if is_quantized(key)
    }


def as_float8(hf: Mapping[str, np.ndarray]) -> Arrays:
    """Matrices as float8, with scales that no two blocks share; the rest as it is."""
    generator, made = np.random.default_rng(1), dict(hf)
    for key, shape in scales({key: array.shape for key, array in hf.items()}).items():
        made[key] = generator.uniform(0.01, 2.0, shape).astype(np.float32)
        weight = key.removesuffix("_scale_inv")
        made[weight] = hf[weight].astype(ml_dtypes.float8_e4m3fn)
    return made


def dequantized(quantized: Mapping[str, np.ndarray], dtype: np.dtype) -> Arrays:
    """What `as_float8` means: block by block, in float32, rounded once."""
    made = {}
    for key, array in quantized.items():
        if key.endswith("_scale_inv"):
            continue
        made[key] = array
        if f"{key}_scale_inv" in quantized:
            wide, scale = array.astype(np.float32), quantized[f"{key}_scale_inv"]
            for i, j in np.ndindex(scale.shape):
                wide[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128] *= scale[i, j]
            made[key] = wide.astype(dtype)
    return made
