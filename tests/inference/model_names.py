"""The names of published models in two libraries each, with small shapes, and what belongs together."""

from collections.abc import Iterator
from dataclasses import dataclass

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.leaves import Leaf
from tests.recipes.t5_layouts import Size, t5
from tests.support.leaves import array_leaf

LAYERS = 3


@dataclass(frozen=True)
class Row:
    """Leaves that belong together. `{n}` is the number of a layer, `{n:03}` the same with three digits."""

    source: str
    source_shape: Shape
    target: str
    target_shape: Shape
    value: str = "x"
    """Expression that computes the first of them from the source."""

    def pairs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The keys of the source for each key of the target."""
        sources = [self.source.format(n=n) for n in range(LAYERS)]
        targets = [self.target.format(n=n) for n in range(LAYERS)]
        if "{n" not in self.target:
            yield tuple(dict.fromkeys(sources)), targets[0]
        else:
            yield from (((source,), target) for source, target in zip(sources, targets, strict=True))

    def source_leaves(self) -> list[Leaf]:
        """The leaves of the source, as float32."""
        return [array_leaf(key, self.source_shape) for sources, _ in self.pairs() for key in sources]

    def target_leaves(self) -> list[Leaf]:
        """The leaves of the target, as float32."""
        return [array_leaf(key, self.target_shape) for _, key in self.pairs()]


def _behind(source: str, target: str, rows: tuple[tuple[str, Shape, str, Shape, str], ...]) -> list[Row]:
    """Rows whose names begin with these texts."""
    return [Row(source + a, a_shape, target + b, b_shape, value) for a, a_shape, b, b_shape, value in rows]


META_LLAMA = [
    Row("tok_embeddings.weight", (100, 40), "model.embed_tokens.weight", (100, 40)),
    Row("norm.weight", (40,), "model.norm.weight", (40,)),
    Row("output.weight", (100, 40), "lm_head.weight", (100, 40)),
    *_behind(
        "layers.{n}.",
        "model.layers.{n}.",
        (
            ("attention_norm.weight", (40,), "input_layernorm.weight", (40,), "x"),
            ("ffn_norm.weight", (40,), "post_attention_layernorm.weight", (40,), "x"),
            ("attention.wq.weight", (40, 40), "self_attn.q_proj.weight", (40, 40), "x"),
            ("attention.wk.weight", (20, 40), "self_attn.k_proj.weight", (20, 40), "x"),
            ("attention.wv.weight", (20, 40), "self_attn.v_proj.weight", (20, 40), "x"),
            ("attention.wo.weight", (40, 40), "self_attn.o_proj.weight", (40, 40), "x"),
            ("feed_forward.w1.weight", (90, 40), "mlp.gate_proj.weight", (90, 40), "x"),
            ("feed_forward.w3.weight", (90, 40), "mlp.up_proj.weight", (90, 40), "x"),
            ("feed_forward.w2.weight", (40, 90), "mlp.down_proj.weight", (40, 90), "x"),
        ),
    ),
]


def _t5(source: str) -> list[Row]:
    """T5 1.1 as T5X has it, from the names of another library; all layers are as the first."""
    rows = []
    for p in t5(Size(100, 40, 4, 24, 90, 32, layers=1), "1.1", "shared"):
        turned = p.transposed and source == "hugging_face"
        key, target = getattr(p, source), f"target/{p.t5x}"
        if "layers_0/" in target:
            key = key.replace("block.0.", "block.{n}.").replace("block_000/", "block_{n:03}/")
            target = target.replace("layers_0/", "layers_{n}/")
        rows.append(Row(key, p.shape[::-1] if turned else p.shape, target, p.shape, "x.T" if turned else "x"))
    return rows


def _linear(source: str, target: str, wide: int, narrow: int) -> list[Row]:
    """A layer of PyTorch, and the same as TensorFlow and Flax have it."""
    return [
        Row(f"{source}.weight", (wide, narrow), f"{target}/kernel", (narrow, wide), "x.T"),
        Row(f"{source}.bias", (wide,), f"{target}/bias", (wide,)),
    ]


def _norm(source: str, target: str, scale: str, shift: str) -> list[Row]:
    return [
        Row(f"{source}.weight", (40,), f"{target}/{scale}", (40,)),
        Row(f"{source}.bias", (40,), f"{target}/{shift}", (40,)),
    ]


_BERT, _TF_BERT = "bert.encoder.layer.{n}.", "bert/encoder/layer_{n}/"

BERT_TENSORFLOW = [
    Row("bert.embeddings.word_embeddings.weight", (100, 40), "bert/embeddings/word_embeddings", (100, 40)),
    Row(
        "bert.embeddings.position_embeddings.weight",
        (30, 40),
        "bert/embeddings/position_embeddings",
        (30, 40),
    ),
    Row(
        "bert.embeddings.token_type_embeddings.weight",
        (2, 40),
        "bert/embeddings/token_type_embeddings",
        (2, 40),
    ),
    *_norm("bert.embeddings.LayerNorm", "bert/embeddings/LayerNorm", "gamma", "beta"),
    *_linear("bert.pooler.dense", "bert/pooler/dense", 40, 40),
    *_linear(_BERT + "attention.self.query", _TF_BERT + "attention/self/query", 40, 40),
    *_linear(_BERT + "attention.self.key", _TF_BERT + "attention/self/key", 40, 40),
    *_linear(_BERT + "attention.self.value", _TF_BERT + "attention/self/value", 40, 40),
    *_linear(_BERT + "attention.output.dense", _TF_BERT + "attention/output/dense", 40, 40),
    *_norm(_BERT + "attention.output.LayerNorm", _TF_BERT + "attention/output/LayerNorm", "gamma", "beta"),
    *_linear(_BERT + "intermediate.dense", _TF_BERT + "intermediate/dense", 90, 40),
    *_linear(_BERT + "output.dense", _TF_BERT + "output/dense", 40, 90),
    *_norm(_BERT + "output.LayerNorm", _TF_BERT + "output/LayerNorm", "gamma", "beta"),
]

_VIT, _FLAX_VIT = "vit.encoder.layer.{n}.", "Transformer/encoderblock_{n}/"
_HEADS = "MultiHeadDotProductAttention_1"


def _vit_heads(name: str) -> list[Row]:
    source, target = f"{_VIT}attention.attention.{name}", f"{_FLAX_VIT}{_HEADS}/{name}"
    kernel = "rearrange(x, '(h d) a -> a h d', h=4)"
    return [
        Row(f"{source}.weight", (40, 40), f"{target}/kernel", (40, 4, 10), kernel),
        Row(f"{source}.bias", (40,), f"{target}/bias", (4, 10), "reshape(x, (4, 10))"),
    ]


VIT_FLAX = [
    Row("vit.embeddings.cls_token", (1, 1, 40), "cls", (1, 1, 40)),
    Row(
        *("vit.embeddings.position_embeddings", (1, 17, 40)),
        *("Transformer/posembed_input/pos_embedding", (1, 17, 40)),
    ),
    Row(
        *(
            "vit.embeddings.patch_embeddings.projection.weight",
            (40, 3, 8, 8),
            "embedding/kernel",
            (8, 8, 3, 40),
        ),
        "rearrange(x, 'a b c f -> c f b a')",
    ),
    Row("vit.embeddings.patch_embeddings.projection.bias", (40,), "embedding/bias", (40,)),
    *_norm("vit.layernorm", "Transformer/encoder_norm", "scale", "bias"),
    *_linear("classifier", "head", 10, 40),
    *_vit_heads("query"),
    *_vit_heads("key"),
    *_vit_heads("value"),
    Row(
        *(_VIT + "attention.output.dense.weight", (40, 40), f"{_FLAX_VIT}{_HEADS}/out/kernel", (4, 10, 40)),
        "rearrange(x, 'a (h d) -> h d a', h=4)",
    ),
    Row(_VIT + "attention.output.dense.bias", (40,), f"{_FLAX_VIT}{_HEADS}/out/bias", (40,)),
    *_norm(_VIT + "layernorm_before", _FLAX_VIT + "LayerNorm_0", "scale", "bias"),
    *_norm(_VIT + "layernorm_after", _FLAX_VIT + "LayerNorm_2", "scale", "bias"),
    *_linear(_VIT + "intermediate.dense", _FLAX_VIT + "MlpBlock_3/Dense_0", 90, 40),
    *_linear(_VIT + "output.dense", _FLAX_VIT + "MlpBlock_3/Dense_1", 40, 90),
]

MODELS = {
    "Llama, Meta and Hugging Face": META_LLAMA,
    "T5, Hugging Face and T5X": _t5("hugging_face"),
    "T5, Mesh TensorFlow and T5X": _t5("mesh"),
    "BERT, Hugging Face and TensorFlow": BERT_TENSORFLOW,
    "ViT, Hugging Face and Flax": VIT_FLAX,
}
"""By the model and its two libraries."""
