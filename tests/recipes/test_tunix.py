"""`layout=tunix`: the tree that tunix's loaders make of a model, and the way back from it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.recipes import gemma3_layout
from tests.recipes.decoder_layouts import NARROW, Arrays, Decoder, Layout, sizes
from tests.recipes.families import BF16, FAMILIES, converted
from tests.recipes.leaves import hf_arrays, hf_shapes, jax_arrays, listed, said
from tests.recipes.running import fails, planned
from tests.support.comparing import assert_same

OF_TUNIX = [family for family in NARROW if family != "mixtral"]
ATTENTION = {f"self_attention/{n}/kernel": f"attn/{n[0]}_proj/w" for n in ("query", "key", "value", "out")}
NAMES = ATTENTION | {
    "pre_self_attention_layer_norm/scale": "input_layernorm/w",
    "post_self_attention_layer_norm/scale": "post_attention_layernorm/w",
    "self_attention/query_norm/scale": "attn/q_norm/w",
    "self_attention/key_norm/scale": "attn/k_norm/w",
    "mlp/wi_0/kernel": "mlp/gate_proj/kernel",
    "mlp/wi_1/kernel": "mlp/up_proj/kernel",
    "mlp/wo/kernel": "mlp/down_proj/kernel",
    "MoeBlock_0/gate/kernel": "mlp/router/kernel",
    "MoeBlock_0/wi_0": "mlp/gate_proj",
    "MoeBlock_0/wi_1": "mlp/up_proj",
    "MoeBlock_0/wo": "mlp/down_proj",
}
"""Names within a layer of the unscanned layout `jax`, and what tunix calls them."""
OF_GEMMA = {
    "pre_self_attention_norm": "pre_attention_norm/scale",
    "post_self_attention_norm": "post_attn_norm/scale",
    "pre_ffw_norm": "pre_ffw_norm/scale",
    "post_ffw_norm": "post_ffw_norm/scale",
}


def given(d: Decoder, back: bool = False, **more: object) -> list[str]:
    family = {"family": d.family} if back and d.experts else {}
    return said(sizes(d) | {"layout": "tunix"} | family | more)


def tunix_arrays(d: Decoder, hf: Arrays) -> Arrays:
    """What tunix holds for a model, by key."""
    jax = jax_arrays(d, Layout(scan=False, norm_plus_one=False), hf)
    norm = "final_norm/scale/value" if d.family == "gemma2" else "final_norm/w/value"
    made = {
        "embedder/input_embedding/value": jax["params/token_embedder/embedding"],
        norm: jax["params/decoder/decoder_norm/scale"],
    }
    if "params/decoder/logits_dense/kernel" in jax:
        made["lm_head/w/value"] = jax["params/decoder/logits_dense/kernel"]
    for i in range(d.layers):
        inner = _of_gemma(d, i, jax) if d.family == "gemma2" else _of_others(i, jax, hf)
        made |= {f"layers/{i}/{name}/value": array for name, array in inner.items()}
    return made


def _of_others(i: int, jax: Arrays, hf: Arrays) -> Arrays:
    prefix = f"params/decoder/layers_{i}/"
    layer = {key.removeprefix(prefix): a for key, a in jax.items() if key.startswith(prefix)}
    made = {NAMES[name]: array for name, array in layer.items() if "/bias" not in name}
    for which in "qkv":
        bias = hf.get(f"model.layers.{i}.self_attn.{which}_proj.bias")
        made |= {} if bias is None else {f"attn/{which}_bias": bias}
    return made


def _of_gemma(d: Decoder, i: int, jax: Arrays) -> Arrays:
    span, prefix = ("local", "global")[i % 2], f"params/decoder/layers_{i // 2}/"
    at = lambda name, rest: jax[f"{prefix}{name}_{span}/{rest}"]  # noqa: E731
    query, key, value = (at("self_attention", f"{n}/kernel") for n in ("query", "key", "value"))
    by_head = lambda kernel: np.stack([kernel[:, h] for h in range(kernel.shape[1])])  # noqa: E731
    made = {ours: at(theirs, "scale") for theirs, ours in OF_GEMMA.items()}
    made |= {
        f"mlp/{ours}/kernel": at("mlp", f"{theirs}/kernel")
        for theirs, ours in (("wi_0", "gate_proj"), ("wi_1", "up_proj"), ("wo", "down_proj"))
    }
    return made | {
        "attn/q_einsum/w": by_head(query),
        "attn/kv_einsum/w": np.stack([by_head(key), by_head(value)]),
        "attn/attn_vec_einsum/w": at("self_attention", "out/kernel"),
    }


@pytest.mark.parametrize("family", OF_TUNIX)
def test_there_and_back_bit_for_bit(family: str) -> None:
    d = NARROW[family]
    hf = hf_arrays(d, BF16)
    if family == "gemma2":
        hf.pop("lm_head.weight", None)
    found = converted(FAMILIES[family].recipes[0], hf, given(d))
    assert_same(found, tunix_arrays(d, hf))
    assert_same(converted(FAMILIES[family].recipes[1], found, given(d, back=True)), hf)


@pytest.mark.parametrize("family", OF_TUNIX)
@pytest.mark.parametrize("back", [False, True])
def test_no_layer_may_be_missing(family: str, back: bool) -> None:
    d = NARROW[family]
    arrays = hf_arrays(d, BF16)
    shapes = {k: a.shape for k, a in tunix_arrays(d, arrays).items()} if back else hf_shapes(d)
    lost = next(key for key in shapes if "mlp" in key and "down_proj" in key)
    left = {key: shape for key, shape in shapes.items() if key != lost}
    says = "layers are missing|no leaf is at place"
    fails(says, lambda: planned(FAMILIES[family].recipes[back], listed(left), overrides=given(d, back)))


def test_its_pairs_are_halves() -> None:
    d = NARROW["llama3"]
    told, overrides = listed(hf_shapes(d)), given(d, rope="interleaved")
    says = "tunix has its own: leave out rope"
    fails(says, lambda: planned("hf-llama3-to-jax", told, overrides=overrides))


def test_gemma3_there_and_back() -> None:
    """It joins queries with keys and values where there are as many heads of each."""
    f, d = FAMILIES["gemma3"], gemma3_layout.SMALL
    hf, overrides = hf_arrays(d, BF16), ["layout=tunix", f"num_layers={d.layers}"]
    found = converted(f.recipes[0], hf, overrides)
    assert_same(found, gemma3_layout.tunix_arrays(d, hf))
    assert_same(converted(f.recipes[1], found, overrides), hf)
    d = replace(d, kv_heads=d.heads)
    run = lambda: planned(f.recipes[0], listed(hf_shapes(d)), overrides=["layout=tunix"], config=f.config(d))  # noqa: E731
    fails("tunix joins queries, keys and values", run)
