"""What the recipes of Llama 4 refuse, there and back, and what they say of it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.recipes.llama4_layouts import (
    IMAGES,
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

THERE, BACK = "hf-llama4-to-jax", "jax-to-hf-llama4"
SMALL = replace(NARROW, layers=8)
CONFIG = hf_config(SMALL)
LAYER = "language_model.model.layers"
ROPE = CONFIG["text_config"]["no_rope_layers"]
MISTAKES: list[tuple[dict[str, Any], dict[str, Any], list[str], dict[str, Any], str]] = [
    # what config and text_config say, what is set, how the listing differs, what the message says
    ({"model_type": "mllama"}, {}, [], {}, "the model is mllama, and this recipe is for llama4"),
    ({}, {"attention_bias": True}, [], {}, "the layers have biases"),
    ({}, {"hidden_act": "gelu"}, [], {}, "the activation is not that of Llama 4"),
    ({"quantization_config": {"bits": 4}}, {}, [], {}, "the weights are quantized"),
    ({}, {"head_dim": 12}, [], {}, "24 rows are not those of num_heads=4 with the head_dim that is known"),
    ({}, {"num_key_value_heads": 4}, [], {}, "an axis of 12 does not split into h=4"),
    *(
        ({}, {}, [given], {}, "what was set is not what the config beside SRC says")
        for given in (
            *("num_layers=4", "num_heads=2", "num_kv_heads=1", "head_dim=12", "num_experts=4"),
            *("moe_step=1", "tied=true"),
        )
    ),
    ({}, {"num_hidden_layers": 12}, [], {}, "layers are missing"),
    ({}, {"num_hidden_layers": 10}, [], {}, "num_layers is not whole cycles"),
    ({}, {"no_rope_layer_interval": 3}, [], {}, "a cycle is not as many layers as the pattern has"),
    ({}, {}, ["cycle=3"], {}, "a cycle is not as many layers as the pattern has"),
    ({}, {"no_rope_layers": [*ROPE[:-1], 1]}, [], {}, "layer 7 is not as layer 3 with or without rotary"),
    ({}, {"num_local_experts": 4}, [], {}, "3 experts with 14 columns are not num_experts=4 with a gate"),
    ({}, {"interleave_moe_layer_step": 1}, [], {}, "layers are missing, or num_layers or moe_step"),
    ({}, {}, [], {f"{LAYER}.2.feed_forward.up_proj.weight": None}, "layers are missing"),
    ({}, {}, [], {f"{LAYER}.3.feed_forward.experts.down_proj": None}, "layers are missing"),
    ({}, {}, [], {f"{LAYER}.3.self_attn.q_proj.weight": None}, "layers are missing"),
    (
        {},
        {},
        [],
        {
            f"{LAYER}.3.feed_forward.router.weight": None,
            f"{LAYER}.2.feed_forward.router.weight": (3, 10),
        },
        "layer 2 has experts, which is not so with moe_step=2",
    ),
    (
        {},
        {},
        [],
        {
            f"{LAYER}.2.feed_forward.up_proj.weight": None,
            f"{LAYER}.3.feed_forward.up_proj.weight": (14, 10),
        },
        "layer 3 has no experts, which is not so with moe_step=2",
    ),
    ({}, {}, [], {f"{LAYER}.3.self_attn.q_proj.bias": (24,)}, "no rule claims"),
    ({}, {}, [], {"model.norm.weight": (10,)}, "model.norm.weight"),
    ({}, {}, [], {"language_model.lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
    (
        {},
        {},
        [],
        IMAGES,
        "there are weights for images, for which there is no place in the decoder: --set vision=drop",
    ),
    ({}, {}, ["vision=keep"], IMAGES, "vision is error or drop"),
    ({}, {}, ["layout=flax"], {}, "layout is jax or maxtext"),
    ({}, {}, ["rope=pairs"], {}, "table `rope_order` has no entry 'pairs'"),
    ({}, {}, ["rope=half", "layout=maxtext"], {}, "in MaxText the rotary pairs are interleaved"),
    ({}, {}, ["layer_axis=2"], {}, "layer_axis is 0 or 1"),
    ({}, {}, ["vocab_size_padded=32"], {}, "already longer than 32"),
]


@pytest.mark.parametrize(("said", "of_text", "given", "edits", "message"), half_slow(MISTAKES))
def test_mistakes_on_the_way_there(
    said: dict[str, Any], of_text: dict[str, Any], given: list[str], edits: dict[str, Any], message: str
) -> None:
    told, config = listed(edited(hf_shapes(SMALL), edits)), CONFIG | said
    config["text_config"] = config["text_config"] | {"tie_word_embeddings": None} | of_text
    if "language_model.lm_head.weight" in edits:
        config["tie_word_embeddings"] = None
    fails(message, lambda: planned(THERE, told, overrides=given, config=config))


def test_what_was_not_changed_is_planned() -> None:
    planned(THERE, listed(hf_shapes(SMALL)), config=CONFIG)
    planned(BACK, listed(jax_shapes(SMALL, Layout())), config=recorded(CONFIG, Layout()))


def test_layers_whose_pattern_does_not_repeat_can_be_one_by_one() -> None:
    text = CONFIG["text_config"] | {"no_rope_layers": [*ROPE[:-1], 1]}
    told = listed(hf_shapes(SMALL))
    plan = planned(THERE, told, overrides=["scan=false"], config=CONFIG | {"text_config": text})
    assert {step.leaf.key.text for step in plan.steps} == set(jax_shapes(SMALL, Layout(scan=False)))


MISTAKES_BACK = [
    (Layout(), ["model_type=mllama"], {}, "the model is mllama, and this recipe is for llama4"),
    (Layout(), ["num_layers=4"], {}, "the stack is not num_layers // cycle long along layer_axis"),
    (Layout(layer_axis=1), ["layer_axis=0"], {}, "the stack is not num_layers // cycle long"),
    (Layout(), ["cycle=5"], {}, "num_layers is not whole cycles"),
    (Layout(), ["cycle=2"], {}, "is beyond the cycle: --set cycle"),
    (
        Layout(scan=False),
        ["num_layers=10"],
        {},
        "layers are missing, or num_layers or moe_step is not theirs",
    ),
    (Layout(), ["moe_step=1"], {}, "layers are missing, or num_layers or moe_step is not theirs"),
    (Layout(), [], {"layers/layers_2/mlp/wo/kernel": None}, "layers are missing"),
    (Layout(scan=False), [], {"layers_3/Llama4MoEBlock_0/MoeBlock_0/wi_1": None}, "layers are missing"),
    (
        Layout(scan=False),
        [],
        {"layers_2/mlp/wo/kernel": None, "layers_3/mlp/wo/kernel": (14, 10)},
        "layer 3 has mlp, which is not so with moe_step=2",
    ),
    (Layout(), ["num_heads=8"], {}, "there are 4 heads of 6, which is not what is known of them"),
    (Layout(), ["num_kv_heads=4"], {}, "there are 2 heads of keys, which is not what is known of them"),
    (Layout(), ["num_experts=4"], {}, "there are 3 experts, which is not what is known of them"),
    (Layout(), ["rope=pairs"], {}, "table `rope_order` has no entry 'pairs'"),
    (Layout(), ["vocab_size=34"], {}, "slice :34 is out of bounds for axis 0 of length 33"),
    (Layout(), ["tied=true"], {}, "no rule claims `params/decoder/logits_dense/kernel`"),
    (Layout(), [], {"logits_dense/kernel": None}, "there is no logits kernel: --set tied=true"),
    (Layout(), ["layout=maxtext"], {}, "the rule claims nothing"),
    (Layout("maxtext"), ["layout=jax"], {}, "the rule claims nothing"),
    (Layout(), ["layout=flax"], {}, "layout is jax or maxtext"),
    (Layout(), ["layer_axis=-1"], {}, "layer_axis is 0 or 1"),
]


@pytest.mark.parametrize(("layout", "given", "edits", "message"), half_slow(MISTAKES_BACK))
def test_mistakes_on_the_way_back(
    layout: Layout, given: list[str], edits: dict[str, tuple[int, ...] | None], message: str
) -> None:
    told = listed(edited(jax_shapes(SMALL, layout), {f"params/decoder/{k}": s for k, s in edits.items()}))
    fails(message, lambda: planned(BACK, told, overrides=[*params(SMALL, layout, True), *given]))


def test_what_is_set_against_the_config_is_refused_on_the_way_back() -> None:
    told, config = listed(jax_shapes(SMALL, Layout())), recorded(CONFIG, Layout())
    for given in ("num_heads=2", "num_kv_heads=1", "head_dim=12", "num_experts=4", "moe_step=1", "tied=true"):
        run = lambda g=given: planned(BACK, told, overrides=[g], config=config)  # noqa: E731
        fails("what was set is not what the config", run)


def test_what_else_maxtext_writes_is_left_out() -> None:
    """Its step, and its optimizer's state."""
    beside = {"step": "int32[]", "opt_state/mu/decoder/decoder_norm/scale": "float32[10]"}
    told = listed(jax_shapes(SMALL, Layout("maxtext")))
    plan = planned(BACK, told | beside, config=recorded(CONFIG, Layout("maxtext")))
    assert {one.leaf.key.text for one in plan.dropped} == set(beside)
    assert {step.leaf.key.text for step in plan.steps} == set(hf_shapes(SMALL))
