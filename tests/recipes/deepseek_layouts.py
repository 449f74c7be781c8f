"""DeepSeek-V3 and its relatives: names and shapes on both sides, and a NumPy conversion.

Written without the package, from the description in the recipes' headers, element by element where a
reshape could hide a mistake.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
MATRICES = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}


@dataclass(frozen=True)
class DeepSeek:
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


@dataclass(frozen=True)
class Layout:
    """What the recipes' params say about the JAX side. The defaults are theirs."""

    layout: str = "jax"
    scan: bool = True
    layer_axis: int = 0
    rope: str = "interleaved"
    vocab_size_padded: int = 0

    @property
    def axis(self) -> int:
        return 1 if self.layout == "maxtext" else self.layer_axis


V3 = DeepSeek("deepseek_v3", 61, 3, 128, 128, 64, 128, 1536, 512, 7168, 18432, 2048, 2048, 256, 129280)
KIMI_K2 = DeepSeek("kimi_k2", 61, 1, 64, 128, 64, 128, 1536, 512, 7168, 18432, 2048, 2048, 384, 163840)
V2_LITE = DeepSeek("deepseek_v2", 27, 1, 16, 128, 64, 128, 0, 512, 2048, 10944, 1408, 2816, 64, 102400)
NARROW = DeepSeek("deepseek_v3", 14, 2, 4, 6, 8, 5, 9, 7, 10, 14, 3, 4, 11, 33)
"""More than ten layers with experts and more than ten experts: `10` sorts before `2` as text."""
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


def params(d: DeepSeek, layout: Layout, back: bool) -> list[str]:
    """`--set` for a model and a layout, of the recipe there or the one back."""
    given: dict[str, object] = {
        "model_type": d.family,
        "num_layers": d.layers,
        "first_dense": d.dense,
        "num_heads": d.heads,
        "num_experts": d.experts,
        "qk_rope_head_dim": d.rope,
    }
    given |= asdict(layout)
    if back and given.pop("vocab_size_padded"):
        given["vocab_size"] = d.vocab
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in given.items()]


def recorded(config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """What a conversion to JAX leaves behind for the one back."""
    return {**config, "ckpt_surgery": {"recipes": {"@hf-deepseek-v3-to-jax": {"params": asdict(layout)}}}}


def listed(shapes: Shapes, quantized: bool = False) -> dict[str, str]:
    """Shapes as a listing: bfloat16, or matrices in float8 with scales in float32."""

    def dtype(key: str) -> str:
        if key.endswith("_scale_inv"):
            return "float32"
        float8 = quantized and is_quantized(key) and "eh_proj" not in key
        return "float8_e4m3fn" if float8 else "bfloat16"

    return {key: f"{dtype(key)}[{','.join(map(str, shape))}]" for key, shape in shapes.items()}


# --- Hugging Face's side ------------------------------------------------------------------------------


def _attention(d: DeepSeek) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(Hugging Face's name, JAX's name, Hugging Face's shape)."""
    queries = d.heads * (d.nope + d.rope)
    if d.q_rank:
        yield "self_attn.q_a_proj", "wq_a/kernel", (d.q_rank, d.embed)
        yield "self_attn.q_a_layernorm", "q_norm/scale", (d.q_rank,)
        yield "self_attn.q_b_proj", "wq_b/kernel", (queries, d.q_rank)
    else:
        yield "self_attn.q_proj", "query/kernel", (queries, d.embed)
    yield "self_attn.kv_a_proj_with_mqa", "wkv_a/kernel", (d.kv_rank + d.rope, d.embed)
    yield "self_attn.kv_a_layernorm", "kv_norm/scale", (d.kv_rank,)
    yield "self_attn.kv_b_proj", "wkv_b/kernel", (d.heads * (d.nope + d.value), d.kv_rank)
    yield "self_attn.o_proj", "out/kernel", (d.embed, d.heads * d.value)


def _three(d: DeepSeek, block: str, inner: int) -> Shapes:
    shapes = ((inner, d.embed), (inner, d.embed), (d.embed, inner))
    return {f"{block}.{name}.weight": shape for name, shape in zip(MATRICES, shapes, strict=True)}


def _hf_layer(d: DeepSeek, i: int) -> Shapes:
    shapes: Shapes = {f"{name}.weight": shape for name, _, shape in _attention(d)}
    shapes |= {f"{which}_layernorm.weight": (d.embed,) for which in ("input", "post_attention")}
    if i < d.dense:
        return shapes | _three(d, "mlp", d.mlp)
    shapes["mlp.gate.weight"] = (d.experts, d.embed)
    if d.family != "deepseek_v2":
        shapes["mlp.gate.e_score_correction_bias"] = (d.experts,)
    for e in range(d.experts):
        shapes |= _three(d, f"mlp.experts.{e}", d.expert_mlp)
    return shapes | _three(d, "mlp.shared_experts", d.shared_mlp)


def hf_shapes(d: DeepSeek) -> Shapes:
    table: Shapes = {
        "model.embed_tokens.weight": (d.vocab, d.embed),
        "model.norm.weight": (d.embed,),
        "lm_head.weight": (d.vocab, d.embed),
    }
    return table | {
        f"model.layers.{i}.{name}": shape for i in range(d.layers) for name, shape in _hf_layer(d, i).items()
    }


def further_layer(d: DeepSeek) -> Shapes:
    """The layer after the last, which predicts the token after the next."""
    shapes = _hf_layer(d, d.layers) | {"eh_proj.weight": (d.embed, 2 * d.embed)}
    shapes |= {f"{name}.weight": (d.embed,) for name in ("enorm", "hnorm", "shared_head.norm")}
    shapes |= {f"{name}.weight": (d.vocab, d.embed) for name in ("embed_tokens", "shared_head.head")}
    return {f"model.layers.{d.layers}.{name}": shape for name, shape in shapes.items()}


def is_quantized(key: str) -> bool:
    """Whether the published files have this weight as float8: the matrices of attention and of all MLPs."""
    return key.endswith(("_proj.weight", "_proj_with_mqa.weight"))


def scales(shapes: Shapes) -> Shapes:
    """The scales that lie beside float8 weights."""
    return {
        f"{key}_scale_inv": tuple(-(-n // 128) for n in shape)
        for key, shape in shapes.items()
        if is_quantized(key) and "eh_proj" not in key
    }


def hf_arrays(d: DeepSeek, dtype: np.dtype) -> Arrays:
    generator = np.random.default_rng(0)
    return {
        key: generator.standard_normal(shape, np.float32).astype(dtype) for key, shape in hf_shapes(d).items()
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


# --- the JAX side -------------------------------------------------------------------------------------


def _place(j: int, length: int, rope: int, order: str) -> int:
    """Where element `j` goes: the last `rope` of them are pairs of neighbours, or come as two halves."""
    start, k = length - rope, j - (length - rope)
    return j if k < 0 or order == "interleaved" else start + (k % 2) * (rope // 2) + k // 2


def _in_heads(w: np.ndarray, heads: int, rope: int, order: str) -> np.ndarray:
    """(heads × length, in) → (in, heads, length)."""
    length = w.shape[0] // heads
    kernel = np.empty((w.shape[1], heads, length), w.dtype)
    for h in range(heads):
        for j in range(length):
            kernel[:, h, _place(j, length, rope, order)] = w[h * length + j]
    return kernel


def _jax_layer(d: DeepSeek, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """One layer; `hf` has the names within the layer."""
    made = {
        f"{which}_self_attention_layer_norm/scale": hf[f"{theirs}_layernorm.weight"]
        for which, theirs in (("pre", "input"), ("post", "post_attention"))
    }
    for theirs, ours, _ in _attention(d):
        w = hf[f"{theirs}.weight"]
        if ours in ("wq_b/kernel", "query/kernel"):
            w = _in_heads(w, d.heads, d.rope, layout.rope)
        elif ours == "wkv_b/kernel":
            w = _in_heads(w, d.heads, 0, "interleaved")
        elif ours == "wkv_a/kernel":
            w = _in_heads(w, 1, d.rope, layout.rope)[:, 0]
        elif ours == "out/kernel":
            w = np.stack([w[:, h * d.value : (h + 1) * d.value].T for h in range(d.heads)])
        elif ours == "wq_a/kernel":
            w = w.T
        made[f"self_attention/{ours}"] = w
    if "mlp.gate.weight" not in hf:
        return made | {
            f"mlp/{ours}/kernel": hf[f"mlp.{theirs}.weight"].T for theirs, ours in MATRICES.items()
        }
    block = "DeepSeekMoeBlock_0/MoeBlock_0"
    made[f"{block}/gate/kernel"] = hf["mlp.gate.weight"].T
    if "mlp.gate.e_score_correction_bias" in hf:
        made[f"{block}/gate/bias"] = hf["mlp.gate.e_score_correction_bias"]
    for theirs, ours in MATRICES.items():
        shared = hf[f"mlp.shared_experts.{theirs}.weight"]
        made[f"DeepSeekMoeBlock_0/shared_experts/{ours}/kernel"] = shared.T
        one_by_one = [hf[f"mlp.experts.{e}.{theirs}.weight"].T for e in range(d.experts)]
        made[f"{block}/{ours}"] = np.stack(one_by_one)
    return made


def jax_arrays(d: DeepSeek, layout: Layout, hf: Mapping[str, np.ndarray]) -> Arrays:
    """What the JAX side holds for a Hugging Face model, by key."""
    rows = max(layout.vocab_size_padded, d.vocab)
    tables = {}
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        tables[key] = np.zeros((rows, d.embed), hf[key].dtype)
        tables[key][: d.vocab] = hf[key]
    made = {
        "token_embedder/embedding": tables["model.embed_tokens.weight"],
        "decoder/decoder_norm/scale": hf["model.norm.weight"],
        "decoder/logits_dense/kernel": tables["lm_head.weight"].T,
    }
    for kind, numbers in (("dense", range(d.dense)), ("moe", range(d.dense, d.layers))):
        layers = []
        for i in numbers:
            prefix = f"model.layers.{i}."
            named = {k.removeprefix(prefix): v for k, v in hf.items() if k.startswith(prefix)}
            layers.append(_jax_layer(d, layout, named))
        if not layout.scan:
            for i, layer in enumerate(layers):
                made |= {f"decoder/{kind}_layers_{i}/{k}": v for k, v in layer.items()}
        elif layers:
            for k in layers[0]:
                stacked = np.stack([layer[k] for layer in layers], axis=layout.axis)
                made[f"decoder/{kind}_layers/{k}"] = stacked
    return {_rooted(layout, k): _turned(layout, k, v) for k, v in made.items()}


def _rooted(layout: Layout, key: str) -> str:
    """The whole key; MaxText has the bias of the gate in a collection of its own."""
    if layout.layout != "maxtext":
        return f"params/{key}"
    return f"params/MoEBiasVar/{key}" if key.endswith("/gate/bias") else f"params/params/{key}"


def _turned(layout: Layout, key: str, array: np.ndarray) -> np.ndarray:
    """MaxText's bias of the gate has its layers first."""
    return array.T if layout.layout == "maxtext" and key.endswith("/gate/bias") else array


def jax_shapes(d: DeepSeek, layout: Layout) -> Shapes:
    """The shapes of `jax_arrays`, from the sizes alone."""
    e, h, q, v = d.embed, d.heads, d.nope + d.rope, max(layout.vocab_size_padded, d.vocab)
    both: Shapes = {f"{which}_self_attention_layer_norm/scale": (e,) for which in ("pre", "post")}
    both |= {
        "self_attention/wkv_a/kernel": (e, d.kv_rank + d.rope),
        "self_attention/kv_norm/scale": (d.kv_rank,),
        "self_attention/wkv_b/kernel": (d.kv_rank, h, d.nope + d.value),
        "self_attention/out/kernel": (h, d.value, e),
    }
    if d.q_rank:
        both |= {"self_attention/wq_a/kernel": (e, d.q_rank), "self_attention/q_norm/scale": (d.q_rank,)}
    both["self_attention/wq_b/kernel" if d.q_rank else "self_attention/query/kernel"] = (d.q_rank or e, h, q)
    block, shared = "DeepSeekMoeBlock_0/MoeBlock_0", "DeepSeekMoeBlock_0/shared_experts"
    moe: Shapes = {f"{block}/gate/kernel": (e, d.experts), f"{block}/wo": (d.experts, d.expert_mlp, e)}
    moe |= {} if d.family == "deepseek_v2" else {f"{block}/gate/bias": (d.experts,)}
    moe |= {f"{block}/{name}": (d.experts, e, d.expert_mlp) for name in ("wi_0", "wi_1")}
    moe |= {f"{shared}/{name}/kernel": (e, d.shared_mlp) for name in ("wi_0", "wi_1")}
    moe[f"{shared}/wo/kernel"] = (d.shared_mlp, e)
    dense: Shapes = {f"mlp/{name}/kernel": (e, d.mlp) for name in ("wi_0", "wi_1")}
    dense["mlp/wo/kernel"] = (d.mlp, e)
    made: Shapes = {"token_embedder/embedding": (v, e), "decoder/decoder_norm/scale": (e,)}
    made["decoder/logits_dense/kernel"] = (e, v)
    for kind, count, layer in (("dense", d.dense, both | dense), ("moe", d.layers - d.dense, both | moe)):
        if layout.scan and count:
            at = layout.axis
            made |= {f"decoder/{kind}_layers/{k}": (*s[:at], count, *s[at:]) for k, s in layer.items()}
        elif not layout.scan:
            made |= {f"decoder/{kind}_layers_{i}/{k}": s for i in range(count) for k, s in layer.items()}
    tables = {_rooted(layout, k): _turned(layout, k, np.broadcast_to(0, s)) for k, s in made.items()}
    return {key: table.shape for key, table in tables.items()}
