"""Llama 4: its sizes, and its names and shapes on both sides."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.recipes import leaves
from tests.recipes.leaves import ATTENTION_NORMS, Leaf, Shapes, Sizes

BLOCK = "Llama4MoEBlock_0"


@dataclass(frozen=True)
class Layout(leaves.Layout):
    """What the recipes' params say about the JAX side. The defaults are theirs."""

    rope: str = "interleaved"
    cycle: int = 4


@dataclass(frozen=True)
class Llama4(Sizes):
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

    LAYOUT = Layout()

    def given(self, back: bool) -> dict[str, object]:
        return {
            "model_type": "llama4" if self.images else "llama4_text",
            "num_layers": self.layers,
            "num_heads": self.heads,
            "num_kv_heads": self.kv_heads,
            "num_experts": self.experts,
            "moe_step": self.moe_step,
        }

    def has_experts(self, i: int) -> bool:
        return (i + 1) % self.moe_step == 0

    @property
    def prefix(self) -> str:
        return "language_model." if self.images else ""

    @property
    def stem(self) -> str:
        return f"{self.prefix}model.layers."

    def outside(self, layout: Layout) -> Iterator[Leaf]:
        head = f"{self.prefix}lm_head.weight"
        return iter(leaves.tables(layout, self.vocab, self.embed, f"{self.prefix}model.", head))

    def place(self, layout: Layout, i: int) -> tuple[str, bool]:
        return (f"layers/layers_{i % layout.cycle}", True) if layout.scan else (f"layers_{i}", False)

    def layer(self, layout: Layout, i: int) -> Iterator[Leaf]:
        e, m, n, theirs = self.embed, self.mlp, self.experts, "feed_forward"
        for name, ours in ATTENTION_NORMS.items():
            yield Leaf(f"{ours}/scale", (e,), {f"{name}.weight": (e,)})
        places = leaves.as_halves(self.head_dim, layout.rope)
        yield from leaves.attention("self_attention", self.heads, self.kv_heads, self.head_dim, e, places)
        if not self.has_experts(i):
            yield from leaves.feed_forward("mlp/{}/kernel", theirs, self.dense_mlp, e)
            return
        yield leaves.transposed(f"{BLOCK}/MoeBlock_0/gate/kernel", f"{theirs}.router.weight", (n, e))
        fused = {f"{theirs}.experts.gate_up_proj": (n, e, 2 * m)}
        yield Leaf(f"{BLOCK}/MoeBlock_0/wi_0", (n, e, m), fused, lambda w: w[..., :m])
        yield Leaf(f"{BLOCK}/MoeBlock_0/wi_1", (n, e, m), fused, lambda w: w[..., m:])
        yield Leaf(f"{BLOCK}/MoeBlock_0/wo", (n, m, e), {f"{theirs}.experts.down_proj": (n, m, e)})
        shared = f"{BLOCK}/shared_experts/{{}}/kernel"
        yield from leaves.feed_forward(shared, f"{theirs}.shared_expert", m, e)


SCOUT = Llama4(48, 1, 40, 8, 128, 5120, 8192, 16384, 16, 202048)
NARROW = Llama4(12, 2, 4, 2, 6, 10, 7, 14, 3, 33)
SMALL = replace(NARROW, layers=8)
NARROW_SCOUT = Llama4(4, 1, 4, 2, 6, 10, 7, 14, 3, 33, images=False)


def hf_config(d: Llama4) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    text = {
        **leaves.config_of(d),
        "model_type": "llama4_text",
        "num_local_experts": d.experts,
        "interleave_moe_layer_step": d.moe_step,
        "no_rope_layers": [int((i + 1) % 4 != 0) for i in range(d.layers)],
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    return {"model_type": "llama4", "tie_word_embeddings": False, "text_config": text} if d.images else text


IMAGES: Shapes = {
    "vision_model.class_embedding": (1408,),
    "vision_model.model.layers.0.self_attn.q_proj.bias": (1408,),
    "multi_modal_projector.linear_1.weight": (5120, 4096),
}
"""Some of what the model with images has beside the decoder."""
