"""What the recipes of DeepSeek-V3 refuse, there and back, and what they say of it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.recipes.deepseek_layouts import (
    FP8,
    NARROW,
    Layout,
    hf_config,
    hf_shapes,
    jax_shapes,
    listed,
    params,
    recorded,
)
from tests.recipes.mistakes import edited, half_slow
from tests.recipes.running import fails, planned

THERE, BACK = "hf-deepseek-v3-to-jax", "jax-to-hf-deepseek-v3"
SMALL = replace(NARROW, layers=5, experts=3)
CONFIG = hf_config(SMALL)
GATE = "model.layers.3.mlp.gate"
MISTAKES = [
    # what the config says, what is set, how the listing differs, what the message says
    (
        {"model_type": "glm4_moe"},
        [],
        {},
        "the model is glm4_moe, and this recipe is for deepseek_v3, deepseek_v2",
    ),
    ({"model_type": "deepseek_v2"}, [], {}, "and DeepSeek-V2 has none"),
    ({"attention_bias": True}, [], {}, "the layers have biases"),
    ({"rope_interleave": False}, [], {}, "the rotary pairs are not interleaved"),
    ({"moe_layer_freq": 2}, [], {}, "not all layers after the first have experts"),
    ({"hidden_act": "gelu"}, [], {}, "the activation is not that of DeepSeek-V3"),
    (
        {"quantization_config": FP8 | {"quant_method": "awq"}},
        [],
        {},
        "not as float8 with blocks of 128 × 128",
    ),
    ({"quantization_config": FP8 | {"weight_block_size": [64, 128]}}, [], {}, "blocks of 128 × 128"),
    ({"quantization_config": FP8}, [], {}, "and there are no scales"),
    ({"qk_nope_head_dim": 5}, [], {}, "56 rows are not those of num_heads=4 with the lengths of heads"),
    ({"qk_rope_head_dim": 6}, [], {}, "56 rows are not those of num_heads=4 with the lengths of heads"),
    (
        {"tie_word_embeddings": None},
        [],
        {"lm_head.weight": None},
        "there is no lm_head.weight: --set tied=true",
    ),
    *(
        ({}, [given], {}, "what was set is not what the config beside SRC says")
        for given in ("num_layers=4", "first_dense=3", "num_heads=2", "num_experts=4", "tied=true")
    ),
    ({"num_hidden_layers": 6}, [], {}, "in each layer with experts"),
    ({"n_routed_experts": 4}, [], {}, "layers or experts are missing"),
    ({}, [], {"model.layers.1.mlp.up_proj.weight": None}, "layers or experts are missing"),
    ({}, [], {"model.layers.4.mlp.experts.2.up_proj.weight": None}, "layers or experts are missing"),
    ({}, [], {f"{GATE}.e_score_correction_bias": None}, "in each layer with experts"),
    (
        {},
        [],
        {"model.layers.1.mlp.up_proj.weight": None, "model.layers.5.mlp.up_proj.weight": (14, 10)},
        "layers are missing, or num_layers is not theirs",
    ),
    ({}, [], {f"{GATE}.bias": (3,)}, "no rule claims"),
    ({}, [], {f"{GATE}.weight_scale": (1, 1)}, "no rule claims"),
    ({}, [], {f"{GATE}.up.weight_scale_inv": (1, 1)}, "a scale has no weight beside it"),
    (
        {},
        [],
        {f"{GATE}.weight_scale_inv": (2, 1)},
        "`dequantize`: bfloat16[3,10] needs a scale of shape [1, 1]",
    ),
    ({}, [], {"model.layers.3.eh_proj.weight": (10, 20)}, "layer 3 predicts a further token"),
    ({}, ["layout=flax"], {}, "layout is jax or maxtext"),
    ({}, ["rope=pairs"], {}, "rope is interleaved or half"),
    ({}, ["rope=half", "layout=maxtext"], {}, "in MaxText the rotary pairs are interleaved"),
    ({}, ["layer_axis=2"], {}, "layer_axis is 0 or 1"),
    ({}, ["vocab_size_padded=32"], {}, "already longer than 32"),
]


@pytest.mark.parametrize(("said", "given", "edits", "message"), half_slow(MISTAKES))
def test_mistakes_on_the_way_there(
    said: dict[str, Any], given: list[str], edits: dict[str, tuple[int, ...] | None], message: str
) -> None:
    told = listed(edited(hf_shapes(SMALL), edits))
    fails(message, lambda: planned(THERE, told, overrides=given, config=CONFIG | said))


def test_a_float8_weight_without_scales_is_refused() -> None:
    told = listed(hf_shapes(SMALL)) | {f"{GATE}.weight": "float8_e4m3fn[3,10]"}
    fails("a float8 weight has no scales beside it", lambda: planned(THERE, told, config=CONFIG))


MISTAKES_BACK = [
    (Layout(), ["model_type=glm4_moe"], "", "the model is glm4_moe, and this recipe is for deepseek_v3"),
    (Layout(), ["first_dense=3"], "", "the stack is not first_dense long along layer_axis"),
    (Layout(), ["num_layers=4"], "", "the stack is not num_layers - first_dense long along layer_axis"),
    (Layout(layer_axis=1), ["layer_axis=0"], "", "the stack is not first_dense long along layer_axis"),
    (Layout(scan=False), ["num_layers=6"], "", "in each layer with experts"),
    (Layout(scan=False), [], "decoder/moe_layers_2/self_attention/out/kernel", "layers are missing"),
    (Layout(), [], "decoder/moe_layers/DeepSeekMoeBlock_0/MoeBlock_0/wo", "layers are missing"),
    (Layout(), [], "decoder/moe_layers/DeepSeekMoeBlock_0/MoeBlock_0/gate/bias", "has a bias of the gate"),
    (Layout(), ["num_heads=8"], "", "there are 4 heads of 14, which is not what is known of them"),
    (Layout(), ["qk_rope_head_dim=10"], "", "15 columns are not those of qk_rope_head_dim=10"),
    (Layout(), ["num_experts=2"], "", "there are 3 experts, which is not what is known of them"),
    (Layout(), ["vocab_size=34"], "", "slice :34 is out of bounds for axis 0 of length 33"),
    (Layout(), ["tied=true"], "", "no rule claims `params/decoder/logits_dense/kernel`"),
    (Layout(), [], "decoder/logits_dense/kernel", "there is no logits kernel: --set tied=true"),
    (Layout(), ["layout=maxtext"], "", "long along layer_axis"),
    (Layout("maxtext"), ["layout=jax"], "", "the rule claims nothing: it matches only a part"),
    (Layout(), ["layout=flax"], "", "layout is jax or maxtext"),
    (Layout(), ["layer_axis=-1"], "", "layer_axis is 0 or 1"),
]


@pytest.mark.parametrize(("layout", "given", "missing", "message"), half_slow(MISTAKES_BACK))
def test_mistakes_on_the_way_back(layout: Layout, given: list[str], missing: str, message: str) -> None:
    shapes = jax_shapes(SMALL, layout)
    told = listed(edited(shapes, {f"params/{missing}": None} if missing else {}))
    fails(message, lambda: planned(BACK, told, overrides=[*params(SMALL, layout, True), *given]))


def test_what_is_set_against_the_config_is_refused_on_the_way_back() -> None:
    told, config = listed(jax_shapes(SMALL, Layout())), recorded(CONFIG, Layout())
    planned(BACK, told, config=config)
    for given in ("num_layers=4", "first_dense=3", "num_heads=2", "num_experts=4", "tied=true"):
        fails(
            "what was set is not what the config",
            lambda g=given: planned(BACK, told, overrides=[g], config=config),
        )


def test_what_else_maxtext_writes_is_left_out() -> None:
    """Its step, its optimizer's state, and the layer that predicts further tokens."""
    beside = {
        "step": "int32[]",
        "opt_state/mu/decoder/decoder_norm/scale": "float32[10]",
        "params/params/mtp_block/mtp_layer_1/mtp_1_projection/kernel": "float32[20,10]",
    }
    told = listed(jax_shapes(SMALL, Layout("maxtext")))
    plan = planned(BACK, told | beside, config=recorded(CONFIG, Layout("maxtext")))
    assert {one.leaf.key.text for one in plan.dropped} == set(beside)
    assert {step.leaf.key.text: step.leaf.spec.shape for step in plan.steps if step.leaf.spec} == hf_shapes(
        SMALL
    )


def test_the_bias_of_the_gate_comes_back_from_where_older_versions_of_maxtext_had_it() -> None:
    layout = Layout("maxtext")
    newer = jax_shapes(SMALL, layout)
    older = {
        key.replace("MoEBiasVar", "params"): (s[::-1] if "Var" in key else s) for key, s in newer.items()
    }
    assert older != newer
    plan = planned(BACK, listed(older), config=recorded(CONFIG, layout))
    assert {step.leaf.key.text for step in plan.steps} == set(hf_shapes(SMALL))
