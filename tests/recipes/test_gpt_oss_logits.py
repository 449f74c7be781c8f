"""gpt-oss converted is the same model: the logits of Hugging Face's implementation and of one in JAX.

Tiny models with random weights, float32, saved by Hugging Face's library with the config beside them.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file

from ckpt_surgery.api import applying
from tests.recipes.gpt_oss_layout import GptOss, hf_arrays, hf_config, unpacked
from tests.recipes.test_logits import TOKENS, hf_logits, hf_weights, restored
from tests.support.checkpoints import quiet

ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 20.0,
    "factor": 4.0,
    "beta_fast": 3.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 64,
}
SIZES = GptOss(layers=4, heads=4, kv_heads=2, head_dim=10, embed=36, mlp=44, vocab=97, experts=5)
TOP = 3
WINDOW = 5
LIMIT = 1.5
"""Clips what a model of this size computes, where the published 7.0 would not."""


def config_of(d: GptOss) -> Any:
    config = {k: v for k, v in hf_config(d).items() if k != "model_type"}
    return transformers.GptOssConfig(
        **config,
        num_experts_per_tok=TOP,
        sliding_window=WINDOW,
        swiglu_limit=LIMIT,
        rope_parameters=ROPE,
        initializer_range=0.2,
        max_position_embeddings=256,
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """With every weight random: biases of zeros would hide where they went."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("gpt_oss") / "hf"
    with quiet():
        made = transformers.GptOssForCausalLM(config_of(SIZES)).eval()
        made.set_attn_implementation("eager")
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
                elif "bias" in name or "sinks" in name:
                    parameter.uniform_(-1, 1)
        made.save_pretrained(path)
    return path, made


# --- the model in JAX ---------------------------------------------------------------------------------


def rms_norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale


def frequencies(head_dim: int) -> tuple[np.ndarray, float]:
    """Of YaRN (Peng et al., 2023): those that turn often stay, others are stretched, with a ramp between."""
    half, base, factor = head_dim // 2, ROPE["rope_theta"], ROPE["factor"]
    turns = lambda beta: (  # noqa: E731
        head_dim * np.log(ROPE["original_max_position_embeddings"] / (beta * 2 * np.pi)) / (2 * np.log(base))
    )
    low, high = max(turns(ROPE["beta_fast"]), 0), min(turns(ROPE["beta_slow"]), head_dim - 1)
    ramp = np.clip((np.arange(half) - low) / (high - low), 0, 1)
    plain = base ** (-np.arange(half) / half)
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * np.log(factor) + 1


def rotated(x: jax.Array, interleaved: bool) -> jax.Array:
    """(batch, length, heads, head_dim) with rotary position embeddings."""
    half = x.shape[-1] // 2
    turning, scale = frequencies(x.shape[-1])
    angles = jnp.arange(x.shape[1])[:, None] * jnp.asarray(turning, jnp.float32)
    cos, sin = jnp.cos(angles)[:, None] * scale, jnp.sin(angles)[:, None] * scale
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = (a * cos - b * sin, b * cos + a * sin)
    return jnp.stack(turned, -1).reshape(x.shape) if interleaved else jnp.concatenate(turned, -1)


def attention(p: Any, x: jax.Array, window: int, interleaved: bool) -> jax.Array:
    """Each head has a sink: something to attend to that has no value."""
    q, k, v = (
        jnp.einsum("ble,ehd->blhd", x, p[name]["kernel"]) + p[name]["bias"]
        for name in ("query", "key", "value")
    )
    q, k = rotated(q, interleaved) * q.shape[-1] ** -0.5, rotated(k, interleaved)
    k, v = (jnp.repeat(a, q.shape[2] // a.shape[2], axis=2) for a in (k, v))
    back = jnp.arange(x.shape[1])[:, None] - jnp.arange(x.shape[1])
    seen = (back >= 0) & ((back < window) if window else True)
    scores = jnp.where(seen, jnp.einsum("blhd,bmhd->bhlm", q, k), -jnp.inf)
    sinks = jnp.broadcast_to(p["sinks"][:, None, None], (*scores.shape[:3], 1))
    weights = jax.nn.softmax(jnp.concatenate([scores, sinks], axis=-1), axis=-1)[..., :-1]
    return jnp.einsum("bhlm,bmhd,hde->ble", weights, v, p["out"]["kernel"]) + p["out"]["bias"]


def experts(p: Any, x: jax.Array) -> jax.Array:
    """All experts on all tokens, weighted by the softmax over the chosen ones."""
    scores = x @ p["gate"]["kernel"] + p["gate"]["bias"]
    least = jnp.sort(scores, axis=-1)[..., -TOP, None]
    chosen = jax.nn.softmax(jnp.where(scores >= least, scores, -jnp.inf), axis=-1)
    gate = jnp.einsum("ble,nem->blnm", x, p["wi_0"]) + p["wi_0_bias"]
    up = jnp.einsum("ble,nem->blnm", x, p["wi_1"]) + p["wi_1_bias"]
    gate, up = jnp.minimum(gate, LIMIT), jnp.clip(up, -LIMIT, LIMIT)
    hidden = (up + 1) * gate * jax.nn.sigmoid(1.702 * gate)
    return jnp.einsum("bln,blne->ble", chosen, jnp.einsum("blnm,nme->blne", hidden, p["wo"]) + p["wo_bias"])


def layer(p: Any, x: jax.Array, window: int, interleaved: bool) -> jax.Array:
    y = rms_norm(p["pre_self_attention_layer_norm"]["scale"], x)
    x = x + attention(p["GptOssAttention"], y, window, interleaved)
    return x + experts(p["GptOssMlp"], rms_norm(p["post_self_attention_layer_norm"]["scale"], x))


@functools.partial(jax.jit, static_argnames=("axis", "interleaved"))
def jax_logits(params: Any, *, axis: int = 0, interleaved: bool = False) -> jax.Array:
    """Blocks of a local and a global layer, scanned along `axis`; or through `layers_0`, `layers_1`, …"""
    decoder = params["decoder"]
    x = jnp.asarray(params["token_embedder"]["embedding"])[TOKENS]
    if "layers" in decoder:

        def block(x: jax.Array, p: Any) -> tuple[jax.Array, None]:
            return layer(p["layers_1"], layer(p["layers_0"], x, WINDOW, interleaved), 0, interleaved), None

        x, _ = jax.lax.scan(block, x, jax.tree.map(lambda a: jnp.moveaxis(a, axis, 0), decoder["layers"]))
    else:
        for i in range(4):
            x = layer(decoder[f"layers_{i}"], x, 0 if i % 2 else WINDOW, interleaved)
    return rms_norm(decoder["decoder_norm"]["scale"], x) @ decoder["logits_dense"]["kernel"]


# --- one against the other ----------------------------------------------------------------------------

SLOW = pytest.mark.slow
CASES = [
    ((), {}),
    pytest.param(("scan=false", "rope=interleaved"), {"interleaved": True}, marks=SLOW),
    pytest.param(("layout=maxtext",), {"axis": 1}, marks=SLOW),
]


@pytest.mark.parametrize(("given", "told"), CASES)
def test_logits_are_the_same(
    saved: tuple[Path, Any], tmp_path: Path, given: tuple[str, ...], told: Mapping[str, Any]
) -> None:
    source, made = saved
    applying.apply("@hf-gpt-oss-to-jax", source, dst=tmp_path / "jax", set=given)
    params = restored(tmp_path / "jax")["params"]
    found = jax_logits(params["params"] if "layout=maxtext" in given else params, **told)
    wanted = hf_logits(made)
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() <= 1e-4


@SLOW
def test_the_comparison_sees_what_differs(saved: tuple[Path, Any], tmp_path: Path) -> None:
    """Gate and up in each other's place, sinks in another order, rotary pairs in another order."""
    source, made = saved
    applying.apply("@hf-gpt-oss-to-jax", source, dst=tmp_path / "jax", set=["scan=false"])
    params, wanted = restored(tmp_path / "jax")["params"], hf_logits(made)
    assert np.abs(jax_logits(params, interleaved=True) - wanted).max() > 0.1
    one = params["decoder"]["layers_0"]
    sinks = one["GptOssAttention"]["sinks"]
    one["GptOssAttention"]["sinks"] = sinks[::-1]
    assert np.abs(jax_logits(params) - wanted).max() > 0.01
    one["GptOssAttention"]["sinks"], mlp = sinks, one["GptOssMlp"]
    mlp["wi_0"], mlp["wi_1"] = mlp["wi_1"], mlp["wi_0"]
    assert np.abs(jax_logits(params) - wanted).max() > 0.1


GIVEN = [
    ("layout=maxtext",),
    pytest.param(("scan=false", "rope=interleaved", "vocab_size_padded=128"), marks=SLOW),
]


@pytest.mark.parametrize("given", GIVEN, ids=" ".join)
def test_there_and_back(saved: tuple[Path, Any], tmp_path: Path, given: tuple[str, ...]) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved
    there = applying.apply("@hf-gpt-oss-to-jax", source, dst=tmp_path / "jax", set=given)
    assert there.plan.warnings == ()
    applying.apply("@jax-to-hf-gpt-oss", tmp_path / "jax", dst=tmp_path / "hf")
    found, wanted = hf_weights(tmp_path / "hf"), hf_weights(source)
    assert {k: (a.shape, a.tobytes()) for k, a in found.items()} == {
        k: (a.shape, a.tobytes()) for k, a in wanted.items()
    }
    (tmp_path / "hf" / "config.json").write_bytes((source / "config.json").read_bytes())
    with quiet():
        again = type(made).from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    np.testing.assert_array_equal(hf_logits(again), hf_logits(made))


@SLOW
def test_a_model_in_mxfp4_comes_back_as_one_that_the_library_loads(tmp_path: Path) -> None:
    """Its config is that of the source without `quantization_config`."""
    d = GptOss(layers=2, heads=4, kv_heads=2, head_dim=10, embed=32, mlp=64, vocab=97, experts=5)
    hf, config = hf_arrays(d, np.dtype(np.float32), quantized=True), config_of(d).to_dict()
    (tmp_path / "hf").mkdir()
    save_file(hf, tmp_path / "hf" / "model.safetensors")
    told = config | {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(told))
    applying.apply("@hf-gpt-oss-to-jax", tmp_path / "hf", dst=tmp_path / "jax", set=["dtype=float32"])
    back = applying.apply("@jax-to-hf-gpt-oss", tmp_path / "jax", dst=tmp_path / "back")
    assert back.plan.warnings == ()
    (tmp_path / "back" / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    with quiet():
        made = transformers.GptOssForCausalLM.from_pretrained(tmp_path / "back", attn_implementation="eager")
    plain = unpacked(hf, np.dtype(np.float32))
    found = {name: np.asarray(parameter.detach()) for name, parameter in made.named_parameters()}
    assert {k: (a.dtype, a.tobytes()) for k, a in found.items()} == {
        k: (a.dtype, a.tobytes()) for k, a in plain.items()
    }
