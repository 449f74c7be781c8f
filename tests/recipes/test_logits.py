"""Converted weights are the same model: the logits of Hugging Face's implementation and of one in JAX.

Tiny models with random weights, float32, saved by Hugging Face's library with the config beside them.
"""

import functools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import PlanError
from tests.support.checkpoints import quiet
from tests.support.slow import slow

TOKENS = np.random.default_rng(1).integers(0, 97, (2, 12))
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
MODELS = {
    "llama3": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SIZES, tie_word_embeddings=False)
    ),
    "mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**SIZES, tie_word_embeddings=False)
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            **{k: v for k, v in SIZES.items() if k != "head_dim"}, tie_word_embeddings=True
        )
    ),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**SIZES, tie_word_embeddings=True)
    ),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**SIZES, query_pre_attn_scalar=10, sliding_window=5)
    ),
}
EXPERTS: dict[str, Any] = {
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SIZES, num_local_experts=3, sliding_window=None)
    ),
    "qwen3_moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**SIZES, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=24)
    ),
}
RECIPES = {"mistral": "llama3", "mixtral": "moe", "qwen3_moe": "moe"}
"""Names of recipes that are not those of the family."""
OTHERS: dict[str, Any] = {
    "gemma": lambda: transformers.GemmaForCausalLM(transformers.GemmaConfig(**SIZES)),
    "granite": lambda: transformers.GraniteForCausalLM(
        transformers.GraniteConfig(**SIZES, residual_multiplier=0.22, embedding_multiplier=12)
    ),
    "helium": lambda: transformers.HeliumForCausalLM(transformers.HeliumConfig(**SIZES)),
    "smollm3": lambda: transformers.SmolLM3ForCausalLM(
        transformers.SmolLM3Config(**SIZES, pad_token_id=0, tie_word_embeddings=False)
    ),
}
"""Names and shapes as Llama has them, and another computation."""


def model(family: str) -> Any:
    """With every weight random: norms of ones would hide where they went."""
    torch.manual_seed(0)
    made = {**MODELS, **EXPERTS, **OTHERS}[family]().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(-0.5, 0.5).add_(0.0 if family == "gemma2" else 1.0)
            if "bias" in name:
                parameter.uniform_(-0.5, 0.5)
    return made


def hf_logits(made: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(made(torch.from_numpy(TOKENS)).logits)


def hf_weights(path: Path) -> dict[str, np.ndarray]:
    """As they lie in files: a tied weight once, experts one by one."""
    return load_file(path / "model.safetensors")


# --- the model in JAX ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """What the weights do not say."""

    interleaved: bool = False
    """Rotary pairs are neighbours; otherwise they are half a head apart."""
    query_scale: float = 16**-0.5
    """What the attention multiplies queries by."""
    eps: float = 1e-6
    theta: float = 10000.0
    gelu: bool = False
    cap_scores: float = 0.0
    cap_logits: float = 0.0
    window: int = 0
    """Window of layers with local attention."""
    embedding_scale: float = 1.0
    """What the model multiplies embeddings by."""
    logits_scale: float = 1.0
    """What the model multiplies logits of a tied embedding by."""


def rms_norm(model: Model, scale: jax.Array, x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + model.eps) * scale


def rotated(model: Model, x: jax.Array) -> jax.Array:
    """(batch, length, heads, head_dim) with rotary position embeddings (Su et al., 2021)."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * model.theta ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if model.interleaved else (x[..., :half], x[..., half:])
    turned = (a * cos - b * sin, b * cos + a * sin)
    return jnp.stack(turned, -1).reshape(x.shape) if model.interleaved else jnp.concatenate(turned, -1)


def capped(x: jax.Array, cap: float) -> jax.Array:
    return cap * jnp.tanh(x / cap) if cap else x


def attention(model: Model, p: Any, x: jax.Array, window: int = 0) -> jax.Array:
    q, k, v = (
        jnp.einsum("ble,ehd->blhd", x, p[name]["kernel"]) + p[name].get("bias", 0.0)
        for name in ("query", "key", "value")
    )
    if "query_norm" in p:
        q, k = rms_norm(model, p["query_norm"]["scale"], q), rms_norm(model, p["key_norm"]["scale"], k)
    q, k = rotated(model, q) * model.query_scale, rotated(model, k)
    k, v = (jnp.repeat(a, q.shape[2] // a.shape[2], axis=2) for a in (k, v))
    scores = capped(jnp.einsum("blhd,bmhd->bhlm", q, k), model.cap_scores)
    back = jnp.arange(x.shape[1])[:, None] - jnp.arange(x.shape[1])
    seen = (back >= 0) & ((back < window) if window else True)
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhlm,bmhd,hde->ble", weights, v, p["out"]["kernel"])


def mlp(model: Model, p: Any, x: jax.Array) -> jax.Array:
    gate = x @ p["wi_0"]["kernel"]
    gate = jax.nn.gelu(gate, approximate=True) if model.gelu else jax.nn.silu(gate)
    return (gate * (x @ p["wi_1"]["kernel"])) @ p["wo"]["kernel"]


def layer(model: Model, p: Any, x: jax.Array) -> jax.Array:
    norm = lambda name, x: rms_norm(model, p[name]["scale"], x)  # noqa: E731
    x = x + attention(model, p["self_attention"], norm("pre_self_attention_layer_norm", x))
    return x + mlp(model, p["mlp"], norm("post_self_attention_layer_norm", x))


def block(model: Model, p: Any, x: jax.Array) -> jax.Array:
    """Two layers of Gemma 2, with norms before and after."""
    for span, window in (("local", model.window), ("global", 0)):
        norm = lambda name, x, span=span: rms_norm(model, p[f"{name}_{span}"]["scale"], x)  # noqa: E731
        y = attention(model, p[f"self_attention_{span}"], norm("pre_self_attention_norm", x), window)
        x = x + norm("post_self_attention_norm", y)
        x = x + norm("post_ffw_norm", mlp(model, p[f"mlp_{span}"], norm("pre_ffw_norm", x)))
    return x


def jax_logits(model: Model, params: Mapping[str, Any]) -> np.ndarray:
    """Scanned over the first axis of `layers`, or through `layers_0`, `layers_1`, …"""
    decoder, table = params["decoder"], params["token_embedder"]["embedding"]
    one = block if model.gelu else layer
    x = table[TOKENS] * model.embedding_scale
    if "layers" in decoder:
        x, _ = jax.lax.scan(lambda x, p: (one(model, p, x), None), x, decoder["layers"])
    else:
        for name in sorted(name for name in decoder if name.startswith("layers_")):
            x = one(model, decoder[name], x)
    x = rms_norm(model, decoder["decoder_norm"]["scale"], x)
    tied = table.T * model.logits_scale
    logits = x @ (decoder["logits_dense"]["kernel"] if "logits_dense" in decoder else tied)
    return np.asarray(capped(logits, model.cap_logits))


# --- one against the other ----------------------------------------------------------------------------


Saved = Callable[[str], tuple[Path, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """By family: the directory of a model as Hugging Face's library saves it, and the model."""

    @functools.cache
    def saved_model(family: str) -> tuple[Path, Any]:
        path, made = tmp_path_factory.mktemp(family) / "hf", model(family)
        with quiet():
            made.save_pretrained(path)
        return path, made

    return saved_model


def restored(path: Path) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


GEMMA = Model(
    gelu=True, cap_scores=50.0, cap_logits=30.0, window=5, query_scale=10**-0.5, embedding_scale=8.0
)
FOLDED = ("fold_query_scale=true", "scale_embedding=true")
CASES = [
    ("llama3", (), Model()),
    ("llama3", ("scan=false", "rope=interleaved"), Model(interleaved=True)),
    ("llama3", ("rope=interleaved", "fold_query_scale=true"), Model(interleaved=True, query_scale=1.0)),
    ("mistral", (), Model()),
    ("qwen2", (), Model()),
    ("qwen2", ("scan=false", "rope=interleaved"), Model(interleaved=True)),
    ("qwen3", (), Model()),
    ("qwen3", ("rope=interleaved",), Model(interleaved=True)),
    ("gemma2", (), GEMMA),
    ("gemma2", FOLDED, replace(GEMMA, query_scale=1.0, embedding_scale=1.0, logits_scale=1 / 8)),
]


@pytest.mark.parametrize(("family", "given", "jax_model"), CASES)
def test_logits_are_the_same(
    saved: Saved,
    tmp_path: Path,
    family: str,
    given: tuple[str, ...],
    jax_model: Model,
) -> None:
    source, made = saved(family)
    applying.apply(f"@hf-{RECIPES.get(family, family)}-to-jax", source, dst=tmp_path / "jax", set=given)
    wanted = hf_logits(made)
    found = jax_logits(jax_model, restored(tmp_path / "jax")["params"])
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() <= 1e-4


def test_the_comparison_sees_a_wrong_order_of_rotary_pairs(saved: Saved, tmp_path: Path) -> None:
    source, made = saved("llama3")
    applying.apply("@hf-llama3-to-jax", source, dst=tmp_path / "jax", set=["rope=interleaved"])
    found = jax_logits(Model(), restored(tmp_path / "jax")["params"])
    assert np.abs(found - hf_logits(made)).max() > 0.1


LAYOUTS = [(), ("scan=false", "rope=interleaved"), ("layer_axis=1", "vocab_size_padded=128")]


@pytest.mark.parametrize("family", [*MODELS, *EXPERTS])
@pytest.mark.parametrize("given", [(), slow((LAYOUTS[1],)), slow((LAYOUTS[2],))], ids=" ".join)
def test_there_and_back(saved: Saved, tmp_path: Path, family: str, given: tuple[str, ...]) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved(family)
    name = RECIPES.get(family, family)
    exact = [*given, "norm_plus_one=false"] if family == "gemma2" else [*given]
    there = applying.apply(f"@hf-{name}-to-jax", source, dst=tmp_path / "jax", set=exact)
    assert there.plan.warnings == ()
    back = applying.apply(f"@jax-to-hf-{name}", tmp_path / "jax", dst=tmp_path / "hf")
    assert [warning for warning in back.plan.warnings if "are used by no output" not in warning] == []
    found, wanted = hf_weights(tmp_path / "hf"), hf_weights(source)
    assert sorted(found) == sorted(wanted)
    for key, weight in wanted.items():
        assert (found[key].shape, found[key].tobytes()) == (weight.shape, weight.tobytes()), key
    (tmp_path / "hf" / "config.json").write_bytes((source / "config.json").read_bytes())
    with quiet():
        again = type(made).from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    np.testing.assert_array_equal(hf_logits(again), hf_logits(made))


def test_the_way_back_finds_the_config_after_other_conversions(saved: Saved, tmp_path: Path) -> None:
    source, _ = saved("llama3")
    applying.apply("@hf-llama3-to-jax", source, dst=tmp_path / "jax", set=["rope=interleaved"])
    applying.apply("@cast", tmp_path / "jax", dst=tmp_path / "wide", set=["dtype=float64"])
    applying.convert(tmp_path / "wide", tmp_path / "copy.npz")
    applying.apply("@cast", tmp_path / "copy.npz", dst=tmp_path / "cast", set=["dtype=float32"])
    plan = applying.apply("@jax-to-hf-llama3", tmp_path / "cast", dst=tmp_path / "hf").plan
    assert plan.warnings == ()
    found, wanted = hf_weights(tmp_path / "hf"), hf_weights(source)
    assert {key: weight.tobytes() for key, weight in found.items()} == {
        key: weight.tobytes() for key, weight in wanted.items()
    }


def test_safetensors_unless_told_otherwise(saved: Saved, tmp_path: Path) -> None:
    applying.apply("@hf-llama3-to-jax", saved("llama3")[0], dst=tmp_path / "jax")
    applying.apply("@jax-to-hf-llama3", tmp_path / "jax", dst=tmp_path / "hf")
    beside = ["config.json", "generation_config.json", "model.safetensors"]
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == beside
    with safe_open(tmp_path / "hf" / "model.safetensors", "np") as file:
        assert file.metadata()["format"] == "pt"
    applying.apply("@jax-to-hf-llama3", tmp_path / "jax", dst=tmp_path / "orbax", format="orbax")
    assert sorted(restored(tmp_path / "orbax")) == sorted(hf_weights(tmp_path / "hf"))


@pytest.mark.parametrize("family", OTHERS)
def test_other_models_of_the_same_names_and_shapes_are_refused(
    saved: Saved, tmp_path: Path, family: str
) -> None:
    source, _ = saved(family)
    with pytest.raises(PlanError, match=f"the model is {family}, and this recipe is for llama"):
        applying.apply("@hf-llama3-to-jax", source, dst=tmp_path / "jax")
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(source / "model.safetensors", bare)
    sizes = ["num_layers=2", "num_heads=4", "num_kv_heads=2"]
    sizes += ["tied=true"] if "lm_head.weight" not in hf_weights(source) else ["tied=false"]
    plan = applying.plan("@hf-llama3-to-jax", bare, set=sizes)
    assert plan.warnings == (f"by default model_type=llama: there is no config.json beside {bare}",)
