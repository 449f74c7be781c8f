"""Decoders of several architectures: their names and shapes on both sides, and a NumPy conversion.

Written without the package, from the description in the recipes' headers, element by element where a
reshape could hide a mistake.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]

KEYTABLES = Path(__file__).parents[1] / "data" / "keytables"


@dataclass(frozen=True)
class Decoder:
    """A model by its sizes."""

    family: str
    """`llama3`, `gemma2`, `qwen2`, `qwen3`, `mixtral` or `qwen3_moe`."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    tied: bool = False
    experts: int = 0


@dataclass(frozen=True)
class Layout:
    """What the recipes' params say about the JAX side. The defaults are theirs."""

    scan: bool = True
    layer_axis: int = 0
    rope: str = "half"
    vocab_size_padded: int = 0
    fold_query_scale: bool = False
    norm_plus_one: bool = True
    """Whether 1 is added to norms of Gemma 2, which are stored as the distance from it."""
    scale_embedding: bool = False
    """Whether embeddings are stored multiplied by the root of their width, as Gemma 2 applies them."""
    moe_block: str = "MoeBlock_0"


LLAMA = Decoder("llama3", 32, 32, 8, 128, 4096, 14336, 128256)
GEMMA = Decoder("gemma2", 26, 8, 4, 256, 2304, 9216, 256000, tied=True)
QWEN2 = Decoder("qwen2", 28, 28, 4, 128, 3584, 18944, 152064)
QWEN = Decoder("qwen3", 28, 16, 8, 128, 1024, 3072, 151936, tied=True)
MIXTRAL = Decoder("mixtral", 32, 32, 8, 128, 4096, 14336, 32000, experts=8)
QWEN_MOE = Decoder("qwen3_moe", 48, 32, 4, 128, 2048, 768, 151936, experts=128)

NARROW = {
    d.family: replace(d, layers=n, heads=4, kv_heads=2, head_dim=6, embed=10, mlp=14, vocab=33, experts=e)
    for d, n, e in [
        (LLAMA, 11, 0),
        (GEMMA, 4, 0),
        (QWEN2, 3, 0),
        (QWEN, 3, 0),
        (MIXTRAL, 2, 3),
        (QWEN_MOE, 2, 11),
    ]
}
"""The same at a width that runs in a moment; no two lengths in one array are equal, and sqrt is inexact.

Llama has more than ten layers, and Qwen3-MoE more than ten experts: `10` sorts before `2` as text.
"""


def keytable(name: str) -> Shapes:
    """The names and shapes that are in a published model's files."""
    document = json.loads((KEYTABLES / f"{name}.json").read_text())
    return {key: tuple(shape) for key, shape in document["disk"].items()}


def hf_config(d: Decoder) -> dict[str, Any]:
    """The part of `config.json` that says what the model is."""
    config = {
        "model_type": d.family.removesuffix("3") if d.family == "llama3" else d.family,
        "num_hidden_layers": d.layers,
        "num_attention_heads": d.heads,
        "num_key_value_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "vocab_size": d.vocab,
        "tie_word_embeddings": d.tied,
    }
    if d.family == "gemma2":
        config |= {"query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"}
    else:
        config["hidden_act"] = "silu"
    return config | (
        {"num_experts" if d.family == "qwen3_moe" else "num_local_experts": d.experts} if d.experts else {}
    )


def recorded_config(d: Decoder, layout: Layout) -> dict[str, Any]:
    """What a conversion to JAX leaves behind for the one back."""
    name = "moe" if d.experts else d.family
    params = {"layout": "jax"} | asdict(layout)
    record = {"recipes": {f"@hf-{name}-to-jax": {"params": params}}}
    return hf_config(d) | {"ckpt_surgery": record}


# --- Hugging Face's side ------------------------------------------------------------------------------


def hf_layer(d: Decoder) -> Shapes:
    """Names within one layer."""
    query, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
    shapes: Shapes = {
        "self_attn.q_proj": (query, d.embed),
        "self_attn.k_proj": (kv, d.embed),
        "self_attn.v_proj": (kv, d.embed),
        "self_attn.o_proj": (d.embed, query),
        "input_layernorm": (d.embed,),
        "post_attention_layernorm": (d.embed,),
    }
    if d.family == "qwen2":
        shapes |= {f"self_attn.{which}_proj.bias": (shapes[f"self_attn.{which}_proj"][0],) for which in "qkv"}
    if d.family == "gemma2":
        shapes |= {f"{which}_feedforward_layernorm": (d.embed,) for which in ("pre", "post")}
    if d.family.startswith("qwen3"):
        shapes |= {f"self_attn.{which}_norm": (d.head_dim,) for which in "qk"}
    return shapes | {name: shape for name, _, shape in _feed_forward(d)}


def _feed_forward(d: Decoder) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(name, what it is called in JAX or `wi_0 3` for an expert's, shape)."""
    inner, outer = (d.mlp, d.embed), (d.embed, d.mlp)
    if d.experts:
        block = "block_sparse_moe" if d.family == "mixtral" else "mlp"
        names = ("w1", "w3", "w2") if d.family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        yield f"{block}.gate", "gate", (d.experts, d.embed)
        for e in range(d.experts):
            for name, jax_name, shape in zip(
                names, ("wi_0", "wi_1", "wo"), (inner, inner, outer), strict=True
            ):
                yield f"{block}.experts.{e}.{name}", f"{jax_name} {e}", shape
        return
    yield "mlp.gate_proj", "wi_0", inner
    yield "mlp.up_proj", "wi_1", inner
    yield "mlp.down_proj", "wo", outer


def hf_shapes(d: Decoder) -> Shapes:
    table = {"model.embed_tokens.weight": (d.vocab, d.embed), "model.norm.weight": (d.embed,)}
    table |= {} if d.tied else {"lm_head.weight": (d.vocab, d.embed)}
    layer = hf_layer(d)
    return table | {
        f"model.layers.{i}.{name}" + ("" if name.endswith(".bias") else ".weight"): shape
        for i in range(d.layers)
        for name, shape in layer.items()
    }


def hf_arrays(d: Decoder, dtype: np.dtype) -> Arrays:
    generator = np.random.default_rng(0)
    return {
        key: generator.standard_normal(shape, np.float32).astype(dtype) for key, shape in hf_shapes(d).items()
    }


# --- the JAX side -------------------------------------------------------------------------------------


def computed(w: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Arithmetic as the language promises it: in float32, rounded once."""
    wide = function(w.astype(np.float32))
    assert wide.dtype == np.float32
    return wide.astype(w.dtype)


def place(j: int, head_dim: int, rope: str) -> int:
    """Where element `j` of a head goes: halves stay halves, or pairs come together."""
    half = head_dim // 2
    return j if rope == "half" else (2 * j if j < half else 2 * (j - half) + 1)


def in_heads(w: np.ndarray, heads: int, head_dim: int, rope: str) -> np.ndarray:
    """(heads × head_dim, embed) → (embed, heads, head_dim)."""
    kernel = np.empty((w.shape[1], heads, head_dim), w.dtype)
    for h in range(heads):
        for j in range(head_dim):
            kernel[:, h, place(j, head_dim, rope)] = w[h * head_dim + j]
    return kernel


def bias_in_heads(b: np.ndarray, heads: int, head_dim: int, rope: str) -> np.ndarray:
    """(heads × head_dim) → (heads, head_dim)."""
    return in_heads(b[:, None], heads, head_dim, rope)[0]


def out_of_heads(w: np.ndarray, heads: int, head_dim: int) -> np.ndarray:
    """(embed, heads × head_dim) → (heads, head_dim, embed)."""
    kernel = np.empty((heads, head_dim, w.shape[0]), w.dtype)
    for h in range(heads):
        for j in range(head_dim):
            kernel[h, j] = w[:, h * head_dim + j]
    return kernel


def reordered(w: np.ndarray, rope: str) -> np.ndarray:
    """(head_dim): in the order of the heads' elements."""
    scale = np.empty_like(w)
    for j in range(len(w)):
        scale[place(j, len(w), rope)] = w[j]
    return scale


def norm_of(d: Decoder, layout: Layout, w: np.ndarray) -> np.ndarray:
    """Gemma 2 stores how far a norm's scale is from 1."""
    if d.family == "gemma2" and layout.norm_plus_one:
        return computed(w, lambda wide: wide + np.float32(1))
    return w


def jax_layer(d: Decoder, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """One layer; Gemma's names without `_local` or `_global`. `hf` has the names within the layer."""
    query_factor = np.float32((256 if d.family == "gemma2" else d.head_dim) ** -0.5)
    q = hf["self_attn.q_proj"]
    q = computed(q, lambda wide: wide * query_factor) if layout.fold_query_scale else q
    made = {
        "self_attention/query/kernel": in_heads(q, d.heads, d.head_dim, layout.rope),
        "self_attention/key/kernel": in_heads(hf["self_attn.k_proj"], d.kv_heads, d.head_dim, layout.rope),
        "self_attention/value/kernel": in_heads(hf["self_attn.v_proj"], d.kv_heads, d.head_dim, "half"),
        "self_attention/out/kernel": out_of_heads(hf["self_attn.o_proj"], d.heads, d.head_dim),
    }
    made |= {f"{ours}/scale": norm_of(d, layout, hf[theirs]) for theirs, ours in _norms(d).items()}
    if "self_attn.q_proj.bias" in hf:
        for which, name, heads in (
            ("q", "query", d.heads),
            ("k", "key", d.kv_heads),
            ("v", "value", d.kv_heads),
        ):
            bias, rope = hf[f"self_attn.{which}_proj.bias"], "half" if which == "v" else layout.rope
            made[f"self_attention/{name}/bias"] = bias_in_heads(bias, heads, d.head_dim, rope)
    if "self_attn.q_norm" in hf:
        made["self_attention/query_norm/scale"] = reordered(hf["self_attn.q_norm"], layout.rope)
        made["self_attention/key_norm/scale"] = reordered(hf["self_attn.k_norm"], layout.rope)
    return made | _jax_feed_forward(d, layout, hf)


def _norms(d: Decoder) -> dict[str, str]:
    if d.family == "gemma2":
        return {
            "input_layernorm": "pre_self_attention_norm",
            "post_attention_layernorm": "post_self_attention_norm",
            "pre_feedforward_layernorm": "pre_ffw_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    return {
        "input_layernorm": "pre_self_attention_layer_norm",
        "post_attention_layernorm": "post_self_attention_layer_norm",
    }


def _jax_feed_forward(d: Decoder, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    if not d.experts:
        return {f"mlp/{ours}/kernel": hf[theirs].T for theirs, ours, _ in _feed_forward(d)}
    made: Arrays = {}
    for theirs, ours, shape in _feed_forward(d):
        name, _, expert = ours.partition(" ")
        if expert:
            into = made.setdefault(
                f"{layout.moe_block}/{name}", np.empty((d.experts, *shape[::-1]), hf[theirs].dtype)
            )
            into[int(expert)] = hf[theirs].T
        else:
            made[f"{layout.moe_block}/gate/kernel"] = hf[theirs].T
    return made


def within_layer(hf: Mapping[str, np.ndarray], i: int) -> Arrays:
    prefix, suffix = f"model.layers.{i}.", ".weight"
    return {k.removeprefix(prefix).removesuffix(suffix): v for k, v in hf.items() if k.startswith(prefix)}


def jax_arrays(d: Decoder, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What the JAX side holds for a Hugging Face model, by key."""
    steps: list[Arrays] = []
    for i in range(d.layers):
        layer = jax_layer(d, layout, within_layer(hf, i))
        if d.family != "gemma2":
            steps.append(layer)
        elif i % 2 == 0:
            steps.append(_named(layer, "local"))
        else:
            steps[-1] |= _named(layer, "global")
    made = _outside_layers(d, layout, hf)
    if not layout.scan:
        return made | {
            f"params/decoder/layers_{i}/{k}": v for i, step in enumerate(steps) for k, v in step.items()
        }
    stacked = {k: np.stack([step[k] for step in steps], axis=layout.layer_axis) for k in steps[0]}
    return made | {f"params/decoder/layers/{k}": v for k, v in stacked.items()}


def _named(layer: Arrays, span: str) -> Arrays:
    """`mlp/wi_0/kernel` → `mlp_local/wi_0/kernel`."""
    return {k.replace("/", f"_{span}/", 1): v for k, v in layer.items()}


def _outside_layers(d: Decoder, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    table = hf["model.embed_tokens.weight"]
    if layout.scale_embedding:
        table = computed(table, lambda wide: wide * np.float32(d.embed**0.5))
    made = {
        "params/token_embedder/embedding": _padded(table, layout),
        "params/decoder/decoder_norm/scale": norm_of(d, layout, hf["model.norm.weight"]),
    }
    if not d.tied:
        made["params/decoder/logits_dense/kernel"] = _padded(hf["lm_head.weight"], layout).T
    return made


def _padded(table: np.ndarray, layout: Layout) -> np.ndarray:
    padded = np.zeros((layout.vocab_size_padded or len(table), table.shape[1]), table.dtype)
    padded[: len(table)] = table
    return padded


def jax_shapes(d: Decoder, layout: Layout) -> Shapes:
    """The shapes of `jax_arrays`, from the sizes alone."""
    e, h, k, v = d.embed, d.head_dim, d.kv_heads, layout.vocab_size_padded or d.vocab
    layer: Shapes = {f"{name}/scale": (e,) for name in _norms(d).values()}
    layer |= {
        "self_attention/query/kernel": (e, d.heads, h),
        "self_attention/key/kernel": (e, k, h),
        "self_attention/value/kernel": (e, k, h),
        "self_attention/out/kernel": (d.heads, h, e),
    }
    if d.family == "qwen2":
        layer |= {"self_attention/query/bias": (d.heads, h)}
        layer |= {f"self_attention/{which}/bias": (k, h) for which in ("key", "value")}
    if d.family.startswith("qwen3"):
        layer |= {f"self_attention/{which}_norm/scale": (h,) for which in ("query", "key")}
    if d.experts:
        layer[f"{layout.moe_block}/gate/kernel"] = (e, d.experts)
        layer |= {f"{layout.moe_block}/{name}": (d.experts, e, d.mlp) for name in ("wi_0", "wi_1")}
        layer[f"{layout.moe_block}/wo"] = (d.experts, d.mlp, e)
    else:
        layer |= {f"mlp/{name}/kernel": (e, d.mlp) for name in ("wi_0", "wi_1")}
        layer["mlp/wo/kernel"] = (d.mlp, e)
    steps = d.layers
    if d.family == "gemma2":
        steps //= 2
        layer = {
            k.replace("/", f"_{span}/", 1): shape
            for span in ("local", "global")
            for k, shape in layer.items()
        }
    made: Shapes = {"params/token_embedder/embedding": (v, e), "params/decoder/decoder_norm/scale": (e,)}
    made |= {} if d.tied else {"params/decoder/logits_dense/kernel": (e, v)}
    if layout.scan:
        at = layout.layer_axis
        return made | {f"params/decoder/layers/{k}": (*s[:at], steps, *s[at:]) for k, s in layer.items()}
    return made | {f"params/decoder/layers_{i}/{k}": s for i in range(steps) for k, s in layer.items()}
