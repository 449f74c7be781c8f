"""Decoders like Llama: Gemma 2 and 3, Qwen 2 and 3, Mixtral and Qwen3-MoE, with their names on both sides."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tests.recipes import leaves
from tests.recipes.leaves import (
    ATTENTION_NORMS,
    GEMMA_NORMS,
    MATRICES,
    Function,
    Leaf,
    Sizes,
    bias_in_heads,
    computed,
    reordered,
)

MAXTEXT_ROWS = 262144
"""Rows of Gemma 3's embedding in MaxText, which has none for the tokens of images."""


@dataclass(frozen=True)
class Layout(leaves.Layout):
    """What the recipes' params say about the JAX side. The defaults are theirs."""

    fold_query_scale: bool = False
    norm_plus_one: bool = True
    """Whether 1 is added to norms of Gemma, which are stored as the distance from it."""
    scale_embedding: bool = False
    """Whether embeddings are stored multiplied by the root of their width, as Gemma applies them."""
    moe_block: str = "MoeBlock_0"


@dataclass(frozen=True)
class Decoder(Sizes):
    """A model by its sizes."""

    family: str
    """`llama3`, `gemma2`, `gemma3`, `qwen2`, `qwen3`, `mixtral` or `qwen3_moe`."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    tied: bool = False
    experts: int = 0
    root: str = "model"
    """What the names begin with; another one than `model` is that of a model that sees images."""

    LAYOUT = Layout()

    def given(self, back: bool) -> dict[str, object]:
        return sizes(self) | ({"family": self.family} if back and self.experts else {})

    def no_params(self) -> tuple[str, ...]:
        of_gemma = () if self.gemma else ("norm_plus_one", "scale_embedding")
        of_queries = ("fold_query_scale",) if self.family in ("gemma3", "qwen2", "qwen3") else ()
        return (*of_gemma, *of_queries, *(() if self.experts else ("moe_block",)))

    @property
    def gemma(self) -> bool:
        return self.family in ("gemma2", "gemma3")

    @property
    def stem(self) -> str:
        return f"{self.root}.layers."

    @property
    def embedding_root(self) -> np.float32:
        """What Gemma multiplies embeddings by; the third as bfloat16 has it: 34 for 1152, 50.5 for 2560."""
        root = self.embed**0.5
        return np.float32(ml_dtypes.bfloat16(root) if self.family == "gemma3" else root)

    def outside(self, layout: Layout) -> Iterator[Leaf]:
        head = "" if self.tied else "lm_head.weight"
        embedding, norm, *logits = leaves.tables(layout, self.vocab, self.embed, f"{self.root}.", head)
        maxtext = layout.layout == "maxtext"
        if layout.scale_embedding or maxtext:
            embedding = after(embedding, lambda w: computed(w, lambda wide: wide * self.embedding_root))
        if maxtext and not layout.vocab_size_padded:
            made, rows = embedding.make, min(self.vocab, MAXTEXT_ROWS)
            embedding = replace(embedding, shape=(rows, self.embed), make=lambda w: made(w)[:rows])
        return iter([embedding, after(norm, self.norm(layout)), *logits])

    def norm(self, layout: Layout) -> Function:
        """Gemma stores how far a norm's scale is from 1."""
        plus = self.gemma and layout.norm_plus_one
        return lambda w: computed(w, lambda wide: wide + np.float32(1)) if plus else w

    def place(self, layout: Layout, i: int) -> tuple[str, bool]:
        """Two layers of Gemma 2 are a block, and six of Gemma 3, of which what is left over is apart."""
        if self.family == "gemma3" and layout.scan:
            whole = i < self.layers - self.layers % 6
            return f"{'layers' if whole else 'layers_remainder'}/layers_{i % 6}", whole
        return ("layers", True) if layout.scan else (f"layers_{self.step(i)}", False)

    def step(self, i: int) -> int:
        return i // 2 if self.family == "gemma2" else i

    def layer(self, layout: Layout, i: int) -> Iterator[Leaf]:
        for leaf in self.plain_layer(layout):
            if self.family == "gemma2":  # `mlp/wi_0/kernel` → `mlp_local/wi_0/kernel`
                leaf = replace(leaf, ours=leaf.ours.replace("/", f"_{('local', 'global')[i % 2]}/", 1))
            yield leaf

    def plain_layer(self, layout: Layout) -> Iterator[Leaf]:
        places, e, n = leaves.as_pairs(self.head_dim, layout.rope), self.embed, self.head_dim
        query, *others = leaves.attention("self_attention", self.heads, self.kv_heads, n, e, places)
        if layout.fold_query_scale:
            factor = np.float32((256 if self.family == "gemma2" else n) ** -0.5)
            query = after(query, lambda w: computed(w, lambda wide: wide * factor))
        yield from (query, *others)
        for theirs, ours in (GEMMA_NORMS if self.gemma else ATTENTION_NORMS).items():
            yield Leaf(f"{ours}/scale", (e,), {f"{theirs}.weight": (e,)}, self.norm(layout))
        if self.family == "qwen2":
            yield from biases("self_attention", self.heads, self.kv_heads, n, places)
        if self.family in ("gemma3", "qwen3", "qwen3_moe"):
            make = lambda w: reordered(self.norm(layout)(w), places)  # noqa: E731
            for which in ("query", "key"):
                theirs = {f"self_attn.{which[0]}_norm.weight": (n,)}
                yield Leaf(f"self_attention/{which}_norm/scale", (n,), theirs, make)
        if not self.experts:
            yield from leaves.feed_forward("mlp/{}/kernel", "mlp", self.mlp, e)
            return
        block = "block_sparse_moe" if self.family == "mixtral" else "mlp"
        names = {"w1": "wi_0", "w3": "wi_1", "w2": "wo"} if self.family == "mixtral" else MATRICES
        yield leaves.transposed(f"{layout.moe_block}/gate/kernel", f"{block}.gate.weight", (self.experts, e))
        for k in range(self.experts):
            theirs = f"{block}.experts.{k}"
            yield from leaves.feed_forward(f"{layout.moe_block}/{{}}", theirs, self.mlp, e, names, True)


def after(leaf: Leaf, first: Function) -> Leaf:
    """A leaf whose weight is changed before."""
    return replace(leaf, make=lambda w: leaf.make(first(w)))


def biases(ours: str, heads: int, kv_heads: int, head_dim: int, places: list[int]) -> Iterator[Leaf]:
    """Of queries, keys and values."""
    for name, count in (("query", heads), ("key", kv_heads), ("value", kv_heads)):
        order = range(head_dim) if name == "value" else places
        theirs = {f"self_attn.{name[0]}_proj.bias": (count * head_dim,)}
        make = lambda b, count=count, order=order: bias_in_heads(b, count, order)  # noqa: E731
        yield Leaf(f"{ours}/{name}/bias", (count, head_dim), theirs, make)


LLAMA = Decoder("llama3", 32, 32, 8, 128, 4096, 14336, 128256)
GEMMA = Decoder("gemma2", 26, 8, 4, 256, 2304, 9216, 256000, tied=True)
QWEN2 = Decoder("qwen2", 28, 28, 4, 128, 3584, 18944, 152064)
QWEN = Decoder("qwen3", 28, 16, 8, 128, 1024, 3072, 151936, tied=True)
MIXTRAL = Decoder("mixtral", 32, 32, 8, 128, 4096, 14336, 32000, experts=8)
QWEN_MOE = Decoder("qwen3_moe", 48, 32, 4, 128, 2048, 768, 151936, experts=128)
GEMMA3 = Decoder("gemma3", 26, 4, 1, 256, 1152, 6912, 262144, tied=True)

NARROW = {
    d.family: replace(d, layers=n, heads=4, kv_heads=2, head_dim=6, embed=10, mlp=14, vocab=33, experts=e)
    for d, n, e in [
        (LLAMA, 11, 0),
        (GEMMA, 4, 0),
        (QWEN2, 3, 0),
        (QWEN, 3, 0),
        (MIXTRAL, 2, 3),
        (QWEN_MOE, 2, 11),
        (GEMMA3, 14, 0),  # two blocks and two layers
    ]
}
"""The same at a width that runs in a moment; no two lengths in one array are equal, and sqrt is inexact.

Two have more than ten layers, and Qwen3-MoE more than ten experts: `10` sorts before `2` as text.
"""


def hf_config(d: Decoder) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    config = {
        **leaves.config_of(d),
        "model_type": "llama" if d.family == "llama3" else d.family,
        "tie_word_embeddings": d.tied,
    }
    if d.family == "gemma2":
        config |= {"query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"}
    elif d.family == "gemma3":
        config |= {"model_type": "gemma3_text", "hidden_size": d.embed, "intermediate_size": d.mlp}
        return config if d.root == "model" else {"model_type": "gemma3", "text_config": config}
    else:
        config["hidden_act"] = "silu"
    return config | (
        {"num_experts" if d.family == "qwen3_moe" else "num_local_experts": d.experts} if d.experts else {}
    )


def recipe(d: Decoder) -> str:
    """The part of the recipes' names that says what they are for."""
    return "moe" if d.experts else d.family


def sizes(d: Decoder) -> dict[str, object]:
    """The params that say how large a model is; both directions take them."""
    given: dict[str, object] = {
        "num_layers": d.layers,
        "num_heads": d.heads,
        "num_kv_heads": d.kv_heads,
        "head_dim": d.head_dim,
    }
    if d.experts:
        given["num_experts"] = d.experts
    if not d.gemma:
        given["tied"] = d.tied
    return given
