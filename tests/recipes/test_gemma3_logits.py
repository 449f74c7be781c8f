"""Gemma 3 converted is the same model: the logits of Hugging Face's implementation and of one in JAX.

Tiny models with random weights, float32, saved by Hugging Face's library with the config beside them.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open

from ckpt_surgery.api import applying
from tests.recipes.test_logits import TOKENS, hf_logits, hf_weights, restored
from tests.support.checkpoints import quiet

TEXT: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 36,  # its root is 6, which bfloat16 has too
    "intermediate_size": 56,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 64,
    "query_pre_attn_scalar": 7,
    "sliding_window": 5,
    "rope_theta": 700.0,
    "rope_local_base_freq": 90.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "initializer_range": 0.2,
}
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 28,
    "patch_size": 14,
}
Saved = Callable[[str], tuple[Path, Any]]


def model(kind: str) -> Any:
    """With every weight random: norms of zeros would hide where they went."""
    torch.manual_seed(0)
    text = transformers.Gemma3TextConfig(**TEXT)
    made: Any
    if kind == "text":
        made = transformers.Gemma3ForCausalLM(text)
    else:
        made = transformers.Gemma3ForConditionalGeneration(
            transformers.Gemma3Config(text_config=text.to_dict(), vision_config=VISION, mm_tokens_per_image=4)
        )
    made.set_attn_implementation("eager")
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(-0.5, 0.5)
    return made.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    @functools.cache
    def saved_model(kind: str) -> tuple[Path, Any]:
        path = tmp_path_factory.mktemp(kind) / "hf"
        with quiet():
            made = model(kind)
            made.save_pretrained(path)
        return path, made

    return saved_model


# --- the model in JAX ---------------------------------------------------------------------------------


def rms_norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def rotated(x: jax.Array, theta: float, factor: float, interleaved: bool) -> jax.Array:
    """(batch, length, heads, head_dim) with rotary position embeddings, positions divided by `factor`."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / factor * theta ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = (a * cos - b * sin, b * cos + a * sin)
    return jnp.stack(turned, -1).reshape(x.shape) if interleaved else jnp.concatenate(turned, -1)


def attention(p: Any, x: jax.Array, everywhere: bool, interleaved: bool) -> jax.Array:
    """Global attention has a larger base and scaled positions; local attention looks back over a window."""
    q, k, v = (jnp.einsum("ble,ehd->blhd", x, p[name]["kernel"]) for name in ("query", "key", "value"))
    q, k = rms_norm(p["query_norm"]["scale"], q), rms_norm(p["key_norm"]["scale"], k)
    theta, factor = (700.0, 8.0) if everywhere else (90.0, 1.0)
    q, k = rotated(q, theta, factor, interleaved) * 7**-0.5, rotated(k, theta, factor, interleaved)
    k, v = (jnp.repeat(a, 2, axis=2) for a in (k, v))
    back = jnp.arange(x.shape[1])[:, None] - jnp.arange(x.shape[1])
    seen = (back >= 0) & (everywhere | (back < 5))
    scores = jnp.where(seen, jnp.einsum("blhd,bmhd->bhlm", q, k), -jnp.inf)
    return jnp.einsum("bhlm,bmhd,hde->ble", jax.nn.softmax(scores, axis=-1), v, p["out"]["kernel"])


def layer(p: Any, x: jax.Array, everywhere: bool, interleaved: bool) -> jax.Array:
    norm = lambda name, x: rms_norm(p[name]["scale"], x)  # noqa: E731
    y = attention(p["self_attention"], norm("pre_self_attention_norm", x), everywhere, interleaved)
    x = x + norm("post_self_attention_norm", y)
    y, mlp = norm("pre_ffw_norm", x), p["mlp"]
    y = jax.nn.gelu(y @ mlp["wi_0"]["kernel"], approximate=True) * (y @ mlp["wi_1"]["kernel"])
    return x + norm("post_ffw_norm", y @ mlp["wo"]["kernel"])


@functools.partial(jax.jit, static_argnames=("axis", "interleaved"))
def jax_logits(params: Any, *, axis: int = 0, root: float = 6.0, interleaved: bool = False) -> jax.Array:
    """Blocks of six scanned along `axis`, then the layers after them; or through `layers_0`, `layers_1`, …"""
    decoder, table = params["decoder"], params["token_embedder"]["embedding"]
    x = jnp.asarray(table)[TOKENS] * root
    if "layers" in decoder:

        def block(x: jax.Array, p: Any) -> tuple[jax.Array, None]:
            for j in range(6):
                x = layer(p[f"layers_{j}"], x, j == 5, interleaved)
            return x, None

        blocks = jax.tree.map(lambda a: jnp.moveaxis(a, axis, 0), decoder["layers"])
        x, _ = jax.lax.scan(block, x, blocks)
        for j in range(2):
            x = layer(decoder["layers_remainder"][f"layers_{j}"], x, False, interleaved)
    else:
        for i in range(8):
            x = layer(decoder[f"layers_{i}"], x, i == 5, interleaved)
    return rms_norm(decoder["decoder_norm"]["scale"], x) @ table.T * (root / 6)


# --- one against the other ----------------------------------------------------------------------------

SLOW = pytest.mark.slow
CASES = [
    ("text", (), {}),
    pytest.param("text", ("scan=false", "rope=interleaved"), {"interleaved": True}, marks=SLOW),
    pytest.param("images", ("vision=drop", "layout=maxtext"), {"axis": 1, "root": 1.0}, marks=SLOW),
]


@pytest.mark.parametrize(("kind", "given", "told"), CASES)
def test_logits_are_the_same(
    saved: Saved, tmp_path: Path, kind: str, given: tuple[str, ...], told: dict[str, Any]
) -> None:
    source, made = saved(kind)
    applying.apply("@hf-gemma3-to-jax", source, dst=tmp_path / "jax", set=given)
    params = restored(tmp_path / "jax")["params"]
    found = jax_logits(params["params"] if "layout=maxtext" in given else params, **told)
    wanted = hf_logits(made)
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() <= 1e-4


@SLOW
def test_the_comparison_sees_what_differs(saved: Saved, tmp_path: Path) -> None:
    """Layers in another order, norms without their 1, and rotary pairs in another order."""
    source, made = saved("text")
    applying.apply("@hf-gemma3-to-jax", source, dst=tmp_path / "jax", set=["scan=false"])
    params, wanted = restored(tmp_path / "jax")["params"], hf_logits(made)
    assert np.abs(jax_logits(params, interleaved=True) - wanted).max() > 0.1
    decoder = params["decoder"]
    decoder["layers_5"], decoder["layers_6"] = decoder["layers_6"], decoder["layers_5"]
    assert np.abs(jax_logits(params) - wanted).max() > 0.1


GIVEN = [
    ("norm_plus_one=false",),
    pytest.param(
        ("norm_plus_one=false", "scan=false", "rope=interleaved", "vocab_size_padded=128"), marks=SLOW
    ),
]


@pytest.mark.parametrize("given", GIVEN, ids=" ".join)
def test_there_and_back(saved: Saved, tmp_path: Path, given: tuple[str, ...]) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved("text")
    there = applying.apply("@hf-gemma3-to-jax", source, dst=tmp_path / "jax", set=given)
    assert there.plan.warnings == ()
    applying.apply("@jax-to-hf-gemma3", tmp_path / "jax", dst=tmp_path / "hf")
    found, wanted = hf_weights(tmp_path / "hf"), hf_weights(source)
    assert {k: (a.shape, a.tobytes()) for k, a in found.items()} == {
        k: (a.shape, a.tobytes()) for k, a in wanted.items()
    }
    (tmp_path / "hf" / "config.json").write_bytes((source / "config.json").read_bytes())
    with quiet():
        again = type(made).from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    np.testing.assert_array_equal(hf_logits(again), hf_logits(made))


@pytest.mark.parametrize("alone", [pytest.param(False, marks=SLOW), True])
def test_a_model_that_sees_images_comes_back_as_its_text_model(
    saved: Saved, tmp_path: Path, alone: bool
) -> None:
    """With the names that it had, or as a text model in itself, which the library loads."""
    source, made = saved("images")
    given = ["vision=drop", "norm_plus_one=false"]
    applying.apply("@hf-gemma3-to-jax", source, dst=tmp_path / "jax", set=given)
    as_text = ["model_type=gemma3_text"] if alone else []
    applying.apply("@jax-to-hf-gemma3", tmp_path / "jax", dst=tmp_path / "hf", set=as_text)
    wanted = {k: a for k, a in hf_weights(source).items() if k.startswith("language_model.")}
    if alone:
        wanted = {k.removeprefix("language_model."): a for k, a in wanted.items()}
        made.config.get_text_config().save_pretrained(tmp_path / "hf")
        with quiet():
            again = transformers.Gemma3ForCausalLM.from_pretrained(
                tmp_path / "hf", attn_implementation="eager"
            )
        np.testing.assert_array_equal(hf_logits(again.eval()), hf_logits(made))
    found = hf_weights(tmp_path / "hf")
    assert {k: a.tobytes() for k, a in found.items()} == {k: a.tobytes() for k, a in wanted.items()}
    with safe_open(tmp_path / "hf" / "model.safetensors", "np") as file:
        assert file.metadata()["format"] == "pt"
