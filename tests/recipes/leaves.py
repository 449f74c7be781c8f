"""Decoders leaf by leaf: names and shapes on both sides, and how one side is made of the other.

Written without the package, from the description in the recipes' headers, element by element where a
reshape could hide a mistake.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Function = Callable[..., np.ndarray]
ATTENTION_NORMS = {
    "input_layernorm": "pre_self_attention_layer_norm",
    "post_attention_layernorm": "post_self_attention_layer_norm",
}
GEMMA_NORMS = {
    "input_layernorm": "pre_self_attention_norm",
    "post_attention_layernorm": "post_self_attention_norm",
    "pre_feedforward_layernorm": "pre_ffw_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
MATRICES = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}


@dataclass(frozen=True)
class Leaf:
    """A leaf of the JAX side; `theirs` has the names and shapes that `make` makes it of."""

    ours: str
    shape: Shape
    theirs: Shapes
    make: Function = lambda w: w
    expert: bool = False
    """Whether this is one of several, which are stacked first."""


@dataclass(frozen=True)
class Layout:
    """What all recipes' params say about the JAX side. The defaults are theirs."""

    layout: str = "jax"
    scan: bool = True
    layer_axis: int = 0
    rope: str = "half"
    vocab_size_padded: int = 0

    @property
    def axis(self) -> int:
        return 1 if self.layout == "maxtext" else self.layer_axis

    @property
    def root(self) -> str:
        return "params/params/" if self.layout == "maxtext" else "params/"


class Sizes(ABC):
    """A model by its sizes."""

    LAYOUT: ClassVar[Layout] = Layout()
    layers: int
    vocab: int

    def given(self, back: bool) -> dict[str, object]:
        """Params that say what the model is, of the recipe there or the one back."""
        return {"num_layers": self.layers}

    def no_params(self) -> tuple[str, ...]:
        """Fields of the layout that the recipes do not have as params."""
        return ()

    @property
    def stem(self) -> str:
        """What the names of Hugging Face's layers begin with."""
        return "model.layers."

    @abstractmethod
    def outside(self, layout: Any) -> Iterator[Leaf]:
        """Leaves of no layer, by whole names."""

    @abstractmethod
    def layer(self, layout: Any, i: int) -> Iterator[Leaf]:
        """Leaves of layer `i`, by names within it."""

    @abstractmethod
    def place(self, layout: Any, i: int) -> tuple[str, bool]:
        """Where layer `i` is in the decoder, and whether it is stacked there with others."""

    def rooted(self, layout: Any, key: str) -> tuple[str, int]:
        """The whole key, and the axis of its layers."""
        return layout.root + key, layout.axis


# --- both sides ---------------------------------------------------------------------------------------


def hf_shapes(d: Sizes) -> Shapes:
    """Names and shapes of Hugging Face's side."""
    shapes = {name: shape for leaf in d.outside(d.LAYOUT) for name, shape in leaf.theirs.items()}
    for i in range(d.layers):
        for leaf in d.layer(d.LAYOUT, i):
            shapes |= {f"{d.stem}{i}.{name}": shape for name, shape in leaf.theirs.items()}
    return shapes


def hf_arrays(d: Sizes, dtype: np.dtype) -> Arrays:
    return random_arrays(hf_shapes(d), dtype)


def random_arrays(shapes: Shapes, dtype: np.dtype) -> Arrays:
    generator = np.random.default_rng(0)
    return {key: generator.standard_normal(shape, np.float32).astype(dtype) for key, shape in shapes.items()}


def jax_shapes(d: Sizes, layout: Any) -> Shapes:
    """The shapes of `jax_arrays`, from the sizes alone."""
    longer: Callable[[Sequence[Shape], int], Shape] = lambda s, axis: (*s[0][:axis], len(s), *s[0][axis:])  # noqa: E731
    return _assembled(d, layout, lambda leaf, stem: leaf.shape, longer)


def jax_arrays(d: Sizes, layout: Any, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What the JAX side holds for a Hugging Face model, by key."""
    return _assembled(
        d, layout, lambda leaf, stem: leaf.make(*(hf[stem + name] for name in leaf.theirs)), np.stack
    )


def _assembled(d: Sizes, layout: Any, value_of: Callable[[Leaf, str], Any], stack: Any) -> dict[str, Any]:
    made = {d.rooted(layout, leaf.ours)[0]: value_of(leaf, "") for leaf in d.outside(layout)}
    stacks: dict[str, list[Any]] = {}
    for i in range(d.layers):
        where, stacked = d.place(layout, i)
        found: dict[str, list[Leaf]] = {}
        for leaf in d.layer(layout, i):
            found.setdefault(leaf.ours, []).append(leaf)
        for name, leaves in found.items():
            values = [value_of(leaf, f"{d.stem}{i}.") for leaf in leaves]
            value = stack(values, 0) if leaves[0].expert else values[0]
            if stacked:
                stacks.setdefault(f"decoder/{where}/{name}", []).append(value)
            else:
                made[d.rooted(layout, f"decoder/{where}/{name}")[0]] = value
    for key, values in stacks.items():
        whole, axis = d.rooted(layout, key)
        made[whole] = stack(values, axis)
    return made


def listed(shapes: Shapes, dtype: str = "bfloat16") -> dict[str, str]:
    """Shapes as a listing."""
    return {key: f"{dtype}[{','.join(map(str, shape))}]" for key, shape in shapes.items()}


def said(given: Mapping[str, Any]) -> list[str]:
    """`--set` for params."""
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in given.items()]


def params(d: Sizes, layout: Layout, back: bool) -> list[str]:
    """`--set` for a model and a layout, of the recipe there or the one back."""
    given = d.given(back) | {k: v for k, v in asdict(layout).items() if k not in d.no_params()}
    if back:
        given["vocab_size"] = d.vocab if given.pop("vocab_size_padded") else 0
    return said(given)


def config_of(d: Any) -> dict[str, Any]:
    """The sizes in a config.json."""
    return {
        "num_hidden_layers": d.layers,
        "num_attention_heads": d.heads,
        "num_key_value_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "vocab_size": d.vocab,
    }


def recorded(recipe: str, config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """The config that a conversion to JAX leaves behind for the one back."""
    return {**config, "ckpt_surgery": {"recipes": {f"@{recipe}": {"params": asdict(layout)}}}}


# --- leaves that many models have ---------------------------------------------------------------------


def tables(layout: Layout, vocab: int, embed: int, stem: str = "model.", head: str = "lm_head.weight") -> Any:
    """The embedding, the last norm and, unless `head` is empty, the logits."""
    rows = max(layout.vocab_size_padded, vocab)
    pad = lambda w: padded(w, rows)  # noqa: E731
    yield Leaf("token_embedder/embedding", (rows, embed), {f"{stem}embed_tokens.weight": (vocab, embed)}, pad)
    yield Leaf("decoder/decoder_norm/scale", (embed,), {f"{stem}norm.weight": (embed,)})
    if head:
        theirs = {head: (vocab, embed)}
        yield Leaf("decoder/logits_dense/kernel", (embed, rows), theirs, lambda w: pad(w).T)


def transposed(ours: str, theirs: str, shape: Shape, expert: bool = False) -> Leaf:
    """A kernel: Hugging Face has (out, in), JAX has (in, out)."""
    return Leaf(ours, shape[::-1], {theirs: shape}, lambda w: w.T, expert)


def feed_forward(
    ours: str, theirs: str, inner: int, embed: int, names: Mapping[str, str] = MATRICES, expert: bool = False
) -> Iterator[Leaf]:
    """Gate, up and down; `ours` has `{}` where the name of a matrix is."""
    for name, matrix in names.items():
        shape = (embed, inner) if matrix == "wo" else (inner, embed)
        yield transposed(ours.format(matrix), f"{theirs}.{name}.weight", shape, expert)


def projection(
    ours: str, theirs: str, heads: int, head_dim: int, embed: int, places: Sequence[int] = ()
) -> Leaf:
    """A kernel for queries, keys or values."""
    make = lambda w: in_heads(w, heads, places or range(head_dim))  # noqa: E731
    return Leaf(ours, (embed, heads, head_dim), {theirs: (heads * head_dim, embed)}, make)


def attention(
    ours: str, heads: int, kv_heads: int, head_dim: int, embed: int, places: Sequence[int]
) -> Iterator[Leaf]:
    """Queries, keys, values and what is made of them; `places` is the order within heads that are rotated."""
    for name, which, count in (("query", "q", heads), ("key", "k", kv_heads), ("value", "v", kv_heads)):
        order = range(head_dim) if which == "v" else places
        yield projection(
            f"{ours}/{name}/kernel", f"self_attn.{which}_proj.weight", count, head_dim, embed, order
        )
    yield out_projection(f"{ours}/out/kernel", heads, head_dim, embed)


def out_projection(ours: str, heads: int, head_dim: int, embed: int) -> Leaf:
    """(embed, heads × head_dim) → (heads, head_dim, embed)."""
    cut = lambda w: np.stack([w[:, h * head_dim : (h + 1) * head_dim].T for h in range(heads)])  # noqa: E731
    theirs = {"self_attn.o_proj.weight": (embed, heads * head_dim)}
    return Leaf(ours, (heads, head_dim, embed), theirs, cut)


# --- values -------------------------------------------------------------------------------------------


def computed(w: np.ndarray, function: Function) -> np.ndarray:
    """Arithmetic as the language promises it: in float32, rounded once."""
    wide = function(w.astype(np.float32))
    assert wide.dtype == np.float32
    return wide.astype(w.dtype)


def padded(table: np.ndarray, rows: int) -> np.ndarray:
    made = np.zeros((rows, table.shape[1]), table.dtype)
    made[: len(table)] = table
    return made


def as_pairs(length: int, rope: str) -> list[int]:
    """Where each element of a head goes whose halves are rotated: they stay, or pairs come together."""
    half = length // 2
    return [j if rope == "half" else 2 * j if j < half else 2 * (j - half) + 1 for j in range(length)]


def as_halves(length: int, rope: str, start: int = 0) -> list[int]:
    """Where each element of a head goes whose neighbours, from `start` on, are rotated: the same."""
    half = (length - start) // 2
    moved = [start + (k % 2) * half + k // 2 for k in range(length - start)]
    return list(range(length)) if rope == "interleaved" else [*range(start), *moved]


def in_heads(w: np.ndarray, heads: int, places: Sequence[int]) -> np.ndarray:
    """(heads × head_dim, embed) → (embed, heads, head_dim)."""
    kernel = np.empty((w.shape[1], heads, len(places)), w.dtype)
    for h in range(heads):
        for j, place in enumerate(places):
            kernel[:, h, place] = w[h * len(places) + j]
    return kernel


def bias_in_heads(b: np.ndarray, heads: int, places: Sequence[int]) -> np.ndarray:
    """(heads × head_dim) → (heads, head_dim)."""
    return in_heads(b[:, None], heads, places)[0]


def reordered(w: np.ndarray, places: Sequence[int]) -> np.ndarray:
    """(head_dim): in the order of the heads' elements."""
    return in_heads(w[:, None], 1, places)[0, 0]
