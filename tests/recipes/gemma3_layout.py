"""Gemma 3: its sizes, and its names and shapes on both sides."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tests.recipes import leaves
from tests.recipes.decoder_layouts import after
from tests.recipes.leaves import GEMMA_NORMS, Leaf, Sizes, computed, reordered

MAXTEXT_ROWS = 262144
"""Rows of the embedding in MaxText, which has none for the tokens of images."""


@dataclass(frozen=True)
class Layout(leaves.Layout):
    """The params of the recipes about the JAX side, with their defaults."""

    norm_plus_one: bool = True
    scale_embedding: bool = False


@dataclass(frozen=True)
class Gemma3(Sizes):
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

    LAYOUT = Layout()

    @property
    def images(self) -> bool:
        return self.root != "model"

    @property
    def stem(self) -> str:
        return f"{self.root}.layers."

    def norm(self, layout: Layout, w: np.ndarray) -> np.ndarray:
        return computed(w, lambda wide: wide + np.float32(1)) if layout.norm_plus_one else w

    def outside(self, layout: Layout) -> Iterator[Leaf]:
        table, norm = leaves.tables(layout, self.vocab, self.embed, f"{self.root}.", "")
        maxtext, root = layout.layout == "maxtext", embedding_root(self)
        if layout.scale_embedding or maxtext:
            table = after(table, lambda w: computed(w, lambda wide: wide * root))
        if maxtext and not layout.vocab_size_padded:
            made, rows = table.make, min(self.vocab, MAXTEXT_ROWS)
            table = replace(table, shape=(rows, self.embed), make=lambda w: made(w)[:rows])
        return iter([table, after(norm, lambda w: self.norm(layout, w))])

    def place(self, layout: Layout, i: int) -> tuple[str, bool]:
        """Six layers are a block, and what is left over is apart."""
        if not layout.scan:
            return f"layers_{i}", False
        whole = i < self.layers - self.layers % 6
        return f"{'layers' if whole else 'layers_remainder'}/layers_{i % 6}", whole

    def layer(self, layout: Layout, i: int) -> Iterator[Leaf]:
        e, n, places = self.embed, self.head_dim, leaves.as_pairs(self.head_dim, layout.rope)
        yield from leaves.attention("self_attention", self.heads, self.kv_heads, n, e, places)
        for which in ("query", "key"):
            theirs = {f"self_attn.{which[0]}_norm.weight": (n,)}
            make = lambda w: reordered(self.norm(layout, w), places)  # noqa: E731
            yield Leaf(f"self_attention/{which}_norm/scale", (n,), theirs, make)
        yield from leaves.feed_forward("mlp/{}/kernel", "mlp", self.mlp, e)
        for name, ours in GEMMA_NORMS.items():
            theirs = {f"{name}.weight": (e,)}
            yield Leaf(f"{ours}/scale", (e,), theirs, lambda w: self.norm(layout, w))


GEMMA_1B = Gemma3(26, 4, 1, 256, 1152, 6912, 262144, "model")
GEMMA_4B = Gemma3(34, 8, 4, 256, 2560, 10240, 262208)
GEMMA_12B = Gemma3(48, 16, 8, 256, 3840, 15360, 262208)
GEMMA_27B = Gemma3(62, 32, 16, 128, 5376, 21504, 262208)
NARROW = Gemma3(14, 4, 2, 6, 10, 14, 33, "model")
"""Two blocks and two layers, of a width that runs in a moment.

No two lengths in one array are equal, the root of the width is inexact, and layer 10 sorts before layer 2 as
text.
"""

SMALL = replace(NARROW, layers=7)


def embedding_root(d: Gemma3) -> np.float32:
    """What the model multiplies embeddings by, as bfloat16 has it: 34 for 1152, 50.5 for 2560."""
    return np.float32(ml_dtypes.bfloat16(d.embed**0.5))


def hf_config(d: Gemma3) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    text = {
        **leaves.config_of(d),
        "model_type": "gemma3_text",
        "hidden_size": d.embed,
        "intermediate_size": d.mlp,
    }
    return {"model_type": "gemma3", "text_config": text} if d.images else text
