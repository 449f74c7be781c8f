"""What the recipes of decoders refuse, there and back, and what they say of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.recipes.deepseek_layouts import FP8
from tests.recipes.families import FAMILIES, edited, shapes_of
from tests.recipes.leaves import listed
from tests.recipes.llama4_layouts import IMAGES
from tests.recipes.running import fails, planned

GONE = "layers are missing, or num_layers is not theirs"
MISSING = "layers are missing|layers or experts are missing|the rule claims nothing|`source` has no leaf"
LOCAL = ["sliding_attention"] * 5
ROPE = [1, 1, 1, 0, 1, 1, 1]
LANGUAGE = "language_model.model.layers"
GATE = "model.layers.3.mlp.gate"
SCALES = "model.layers.1.mlp.experts.gate_up_proj_scales"
QUANTIZED = {"quant_method": "bitsandbytes"}
Edits = Mapping[str, tuple[int, ...] | None]


def merged(config: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """A config in which the entries of a part are changed one by one."""
    both = {
        k: config[k] | v for k, v in said.items() if isinstance(v, dict) and isinstance(config.get(k), dict)
    }
    return {**config, **said, **both}


# --- every family -------------------------------------------------------------------------------------

ALL = pytest.mark.parametrize("family", FAMILIES)
BOTH_WAYS = pytest.mark.parametrize("back", [False, True], ids=["there", "back"])


@ALL
@BOTH_WAYS
def test_what_no_recipe_takes(family: str, back: bool) -> None:
    f = FAMILIES[family]
    layout = f.layout()
    told = listed(f.shapes(layout, back))
    kind = "family" if f.name == "moe" else "model_type"
    for given, message in (
        ("layer_axis=-1" if back else "layer_axis=2", "layer_axis is 0 or 1"),
        ("layout=max", "layout is jax, maxtext or tunix|layout is jax or maxtext"),
        ("rope=pairs", "table `rope_order` has no entry 'pairs'|rope is interleaved or half"),
        *([] if f.name == "moe" and not back else [(f"{kind}=mamba", "the model is mamba")]),
        (
            "vocab_size=34" if back else "vocab_size_padded=32",
            "slice :34 is out of bounds|is already longer than 32",
        ),
    ):
        fails(message, lambda g=given: planned(f.recipes[back], told, overrides=[*f.params(layout, back), g]))


@ALL
@BOTH_WAYS
def test_what_is_set_against_the_config(family: str, back: bool) -> None:
    """The weights may not tell: 2 heads of 12 are as many rows as 4 of 6."""
    f = FAMILIES[family]
    layout = f.layout(scan=False)
    told, config = listed(f.shapes(layout, back)), f.recorded(layout)
    planned(f.recipes[back], told, config=config)
    for given in (f"num_layers={2 * f.small.layers}", *f.contradicting.split()):
        run = lambda g=given: planned(f.recipes[back], told, overrides=[g], config=config)  # noqa: E731
        fails("what was set is not what the config|and Mixtral has none", run)


@ALL
@BOTH_WAYS
def test_layers_that_are_numbered_wrongly(family: str, back: bool) -> None:
    """As many layers as there are to be, and one of them is not theirs."""
    f = FAMILIES[family]
    layout = f.layout(scan=False)
    shapes, last = f.shapes(layout, back), f.small.layers - 1
    if back:
        last = int(f.small.place(layout, last)[0].rpartition("_")[2])
    name = "layers_{}/" if back else "layers.{}."
    moved = {key.replace(name.format(last), name.format(last + 1)): shape for key, shape in shapes.items()}
    assert len(moved) == len(shapes)
    assert moved != shapes
    run = lambda: planned(f.recipes[back], listed(moved), overrides=f.params(layout, back))  # noqa: E731
    fails("layers are missing|in each layer with experts", run)


@ALL
@pytest.mark.parametrize("scan", [True, False])
def test_no_kind_of_leaf_may_be_missing_on_the_way_back(family: str, scan: bool) -> None:
    f = FAMILIES[family]
    layout = f.layout(scan=scan)
    shapes = f.shapes(layout, True)
    at = f.small.place(layout, f.small.layers - 1)[0]
    for lost in [key for key in shapes if f"/{at}/" in key][1::5]:
        run = lambda k=lost: planned(  # noqa: E731
            f.recipes[1], listed(edited(shapes, {k: None})), config=f.recorded(layout)
        )
        fails(f"{MISSING}|norms of queries and keys|has a bias of the gate|{lost}", run)


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss", "deepseek_v3", "llama4"])
def test_what_else_maxtext_writes_is_left_out(family: str) -> None:
    """Its step, its optimizer's state, and the layer of DeepSeek that predicts further tokens."""
    f = FAMILIES[family]
    layout = f.layout(layout="maxtext")
    beside = {"step": "int32[]", "opt_state/mu/decoder/decoder_norm/scale": "float32[10]"}
    if family == "deepseek_v3":
        beside["params/params/mtp_block/mtp_layer_1/mtp_1_projection/kernel"] = "float32[20,10]"
    told = listed(f.shapes(layout, True))
    plan = planned(f.recipes[1], told | beside, config=f.recorded(layout))
    assert {one.leaf.key.text for one in plan.dropped} == set(beside)
    assert shapes_of(plan) == f.shapes(layout, False)
    if family == "gemma3":
        told |= beside | {"params/params/vision_encoder/x": "float32[4,4]"}
        given = f.params(layout, True)
        fails("the model sees images", lambda: planned(f.recipes[1], told, overrides=given))
        assert len(planned(f.recipes[1], told, overrides=[*given, "vision=drop"]).dropped) == 3


# --- one family, by its config ------------------------------------------------------------------------

BIASES = ({"attention_bias": True}, "the layers have biases")
CONFIGS: Mapping[str, list[tuple[dict[str, Any], str]]] = {
    "llama3": [
        ({"model_type": "gemma"}, "the model is gemma, and this recipe is for llama"),
        BIASES,
        ({"hidden_act": "gelu"}, "the activation is not that of Llama"),
        ({"mlp_bias": True}, "the layers have biases"),
        ({"partial_rotary_factor": 0.5}, "only a part of each head is rotated"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "only a part of each head is rotated"),
        ({"residual_multiplier": 0.22}, "the model has multipliers"),
        ({"no_rope_layers": [1, 0]}, "some layers do without rotary embeddings"),
        ({"quantization_config": QUANTIZED}, "the weights are quantized"),
        ({"head_dim": 12}, "24 rows are not those of num_heads=4 with the head_dim that is known"),
        ({"num_attention_heads": 2}, "an axis of 12 does not split into h=2 two=2 d=6"),
        ({"tie_word_embeddings": False, "num_hidden_layers": 12}, "no array has the index 11 of 0 to 11"),
    ],
    "qwen3": [
        BIASES,
        ({"model_type": "qwen3_moe"}, "the model is qwen3_moe, and this recipe is for qwen3"),
        ({"num_attention_heads": 2, "head_dim": None}, "24 rows are not those of num_heads=2"),
    ],
    "gemma2": [
        ({"model_type": "gemma"}, "the model is gemma, and this recipe is for gemma2"),
        ({"hidden_activation": "gelu"}, "the activation is not that of Gemma 2"),
        ({"tie_word_embeddings": False}, "embeddings are not tied"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "local first"),
    ],
    "mixtral": [
        ({"model_type": name}, "for Mixtral and Qwen3-MoE, each by its own names")
        for name in ("phimoe", "qwen3_moe")
    ],
    "qwen3_moe": [({"model_type": "mixtral"}, "for Mixtral and Qwen3-MoE, each by its own names")],
    "gemma3": [
        BIASES,
        ({"model_type": "gemma2"}, "the model is gemma2, and this recipe is for gemma3 and gemma3_text"),
        ({"hidden_activation": "silu"}, "the activation is not that of Gemma 3"),
        ({"use_bidirectional_attention": True}, "attention looks ahead"),
        ({"tie_word_embeddings": False}, "embeddings are not tied"),
        ({"sliding_window_pattern": 4}, "local attention five times and then global attention once"),
        ({"layer_types": [*LOCAL[:4], "full_attention", "full_attention"]}, "local attention five times"),
        ({"num_attention_heads": 2}, "24 rows are not those of the heads and the head_dim that are known"),
        ({"num_key_value_heads": 1}, "12 rows are not those of the heads of keys that are known"),
        ({"quantization_config": QUANTIZED}, "the weights are quantized: dequantize them first"),
    ],
    "gpt_oss": [
        ({"model_type": "mixtral"}, "the model is mixtral, and this recipe is for gpt_oss"),
        ({"hidden_act": "gelu"}, "the activation is not that of gpt-oss"),
        ({"attention_bias": False}, "attention has no biases"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "local first"),
        ({"quantization_config": QUANTIZED}, "quantized, and not as MXFP4: dequantize"),
        ({"num_attention_heads": 2}, "there are 4 heads, which is not what is known of them"),
        ({"num_key_value_heads": 1}, "12 rows are not those of the heads of keys that are known"),
        ({"num_local_experts": 4}, "there are 3 experts, which is not what is known of them"),
    ],
    "deepseek_v3": [
        BIASES,
        (
            {"model_type": "glm4_moe"},
            "the model is glm4_moe, and this recipe is for deepseek_v3, deepseek_v2",
        ),
        ({"model_type": "deepseek_v2"}, "and DeepSeek-V2 has none"),
        ({"rope_interleave": False}, "the rotary pairs are not interleaved"),
        ({"moe_layer_freq": 2}, "not all layers after the first have experts"),
        ({"hidden_act": "gelu"}, "the activation is not that of DeepSeek-V3"),
        ({"quantization_config": FP8 | {"quant_method": "awq"}}, "not as float8 with blocks of 128 × 128"),
        ({"quantization_config": FP8}, "and there are no scales"),
        ({"qk_nope_head_dim": 5}, "56 rows are not those of num_heads=4 with the lengths of heads"),
        ({"qk_rope_head_dim": 6}, "56 rows are not those of num_heads=4 with the lengths of heads"),
        ({"num_hidden_layers": 6}, "in each layer with experts"),
        ({"n_routed_experts": 4}, "layers or experts are missing"),
    ],
    "llama4": [
        ({"model_type": "mllama"}, "the model is mllama, and this recipe is for llama4"),
        ({"quantization_config": {"bits": 4}}, "the weights are quantized"),
        *(
            ({"text_config": of_text}, message)
            for of_text, message in (
                BIASES,
                ({"hidden_act": "gelu"}, "the activation is not that of Llama 4"),
                ({"head_dim": 12}, "24 rows are not those of num_heads=4 with the head_dim that is known"),
                ({"num_key_value_heads": 4}, "an axis of 12 does not split into h=4"),
                ({"num_hidden_layers": 12}, "layers are missing"),
                ({"num_hidden_layers": 10}, "num_layers is not whole cycles"),
                ({"no_rope_layer_interval": 3}, "a cycle is not as many layers as the pattern has"),
                ({"no_rope_layers": [*ROPE, 1]}, "layer 7 is not as layer 3 with or without rotary"),
                ({"num_local_experts": 4}, "3 experts with 14 columns are not num_experts=4 with a gate"),
                ({"interleave_moe_layer_step": 1}, "layers are missing, or num_layers or moe_step"),
            )
        ),
    ],
}


@pytest.mark.parametrize("family", CONFIGS)
def test_what_the_config_says_of_another_model(family: str) -> None:
    f = FAMILIES[family]
    told, config = listed(f.shapes(f.layout(), False)), f.config()
    planned(f.recipes[0], told, config=config)
    for said, message in CONFIGS[family]:
        fails(message, lambda s=said: planned(f.recipes[0], told, config=merged(config, s)))


# --- one family, by what is set and what there is -----------------------------------------------------

NO_HEAD = {"tie_word_embeddings": None, "text_config": {"tie_word_embeddings": None}}
THERE: Mapping[str, list[tuple[dict[str, Any] | None, str, Edits, str]]] = {
    # what the config says (None: sizes are set instead), what is set, how the listing differs, the message
    "llama3": [
        (None, "num_kv_heads=4", {}, "an axis of 12 does not split into h=4"),
        (None, "num_layers=10", {}, "`stack`: an array has the index 10, but `count` is 10"),
        (None, "tied=false", {"lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
        (None, "tied=false", {"model.layers.3.mlp.up_proj.bias": (14,)}, "no rule claims"),
        (None, "tied=false", {"model.layers.3.mlp.up_proj.weight": None}, "no leaf is at place 3"),
        (None, "tied=false", {"model.embed_tokens.weight": None}, "the rule claims nothing: no key matches"),
    ],
    "gemma2": [
        (None, "num_layers=5", {}, "num_layers is an even number"),
        (None, "num_layers=6 scan=false", {}, GONE),
    ],
    "qwen3": [(None, "scan=false", {"model.layers.1.input_layernorm.weight": None}, "layers are missing")],
    "mixtral": [
        (None, "scan=false", {"model.layers.1.input_layernorm.weight": None}, "layers are missing"),
        (None, "num_experts=4", {}, "`stack`: no array has the index 3 of 0 to 3"),
        (None, "layout=tunix", {}, "tunix has no Mixtral"),
    ],
    "qwen3_moe": [
        (None, "", {"model.layers.1.mlp.experts.7.down_proj.weight": None}, "no leaf is at place 7"),
        (
            {},
            "",
            {"model.layers.1.self_attn.k_norm.weight": None},
            "a norm of queries and one of keys in each",
        ),
    ],
    "gemma3": [
        (None, "num_layers=6", {}, GONE),
        (None, "num_layers=8", {}, GONE),
        (None, "vision=keep", {}, "vision is drop or error"),
        (None, "layout=tunix rope=interleaved", {}, "tunix has its own: leave out rope and scale_embedding"),
        (None, "", {"model.layers.6.input_layernorm.weight": None}, GONE),
        (None, "", {"model.layers.3.mlp.up_proj.weight": None}, GONE),
        (None, "", {"model.layers.3.mlp.up_proj.bias": (14,)}, "no rule claims"),
        (None, "", {"model.layers.3.self_attn.v_proj.weight": (18, 10)}, "18"),
        (
            None,
            "",
            {"vision_tower.vision_model.post_layernorm.weight": (9,)},
            "--set vision=drop leaves it out",
        ),
        (None, "", {"language_model.model.norm.weight": (10,)}, "model.norm.weight"),
    ],
    "gpt_oss": [
        (None, "num_layers=2", {}, GONE),
        (None, "num_layers=6", {}, GONE),
        (None, "num_layers=3", {}, "num_layers is an even number"),
        (None, "", {"lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
        (None, "", {"model.layers.3.self_attn.sinks": None}, GONE),
        (None, "", {"model.layers.1.mlp.experts.down_proj_bias": None}, GONE),
        (None, "", {"model.layers.1.mlp.experts.down_proj.bias": (3, 10)}, "no rule claims"),
        (None, "", {SCALES: (3, 28, 2)}, f"no rule claims `{SCALES}`"),
        ({}, "", {"model.layers.2.mlp.experts.down_proj": (2, 14, 10)}, "GptOssMlp/wo"),
    ],
    "deepseek_v3": [
        (NO_HEAD, "", {"lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
        ({}, "", {"model.layers.1.mlp.up_proj.weight": None}, "layers or experts are missing"),
        ({}, "", {"model.layers.4.mlp.experts.2.up_proj.weight": None}, "layers or experts are missing"),
        ({}, "", {f"{GATE}.e_score_correction_bias": None}, "in each layer with experts"),
        ({}, "", {f"{GATE}.bias": (3,)}, "no rule claims"),
        ({}, "", {f"{GATE}.up.weight_scale_inv": (1, 1)}, "a scale has no weight beside it"),
        ({}, "", {f"{GATE}.weight_scale_inv": (2, 1)}, "bfloat16[3,10] needs a scale of shape [1, 1]"),
        ({}, "", {"model.layers.3.eh_proj.weight": (10, 20)}, "layer 3 predicts a further token"),
        ({}, "rope=half layout=maxtext", {}, "in MaxText the rotary pairs are interleaved"),
    ],
    "llama4": [
        ({}, "cycle=3", {}, "a cycle is not as many layers as the pattern has"),
        ({}, "", {f"{LANGUAGE}.2.feed_forward.up_proj.weight": None}, "layers are missing"),
        ({}, "", {f"{LANGUAGE}.3.feed_forward.experts.down_proj": None}, "layers are missing"),
        (
            *({}, ""),
            {
                f"{LANGUAGE}.3.feed_forward.router.weight": None,
                f"{LANGUAGE}.2.feed_forward.router.weight": (3, 10),
            },
            "layer 2 has experts, which is not so with moe_step=2",
        ),
        ({}, "", {f"{LANGUAGE}.3.self_attn.q_proj.bias": (24,)}, "no rule claims"),
        ({}, "", {"model.norm.weight": (10,)}, "model.norm.weight"),
        (NO_HEAD, "", {"language_model.lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
        (
            {},
            "",
            IMAGES,
            "there are weights for images, for which there is no place in the decoder: --set vision=drop",
        ),
        ({}, "vision=keep", IMAGES, "vision is error or drop"),
        ({}, "rope=half layout=maxtext", {}, "in MaxText the rotary pairs are interleaved"),
    ],
}


@pytest.mark.parametrize("family", THERE)
def test_mistakes_on_the_way_there(family: str) -> None:
    f = FAMILIES[family]
    for said, given, edits, message in THERE[family]:
        told = listed(edited(f.shapes(f.layout(), False), edits))
        config = None if said is None else merged(f.config(), said)
        overrides = [*(f.params(f.layout(), False) if said is None else ()), *given.split()]
        fails(message, lambda t=told, o=overrides, c=config: planned(f.recipes[0], t, overrides=o, config=c))


ALONG = "long along layer_axis"
BACK: Mapping[str, list[tuple[dict[str, Any], str, Edits, str]]] = {
    # the layout, what is set, how the listing differs, the message
    "llama3": [
        ({}, "num_layers=10", {}, f"the stack is not num_layers {ALONG}"),
        ({"layer_axis": 1}, "layer_axis=0", {}, f"the stack is not num_layers {ALONG}"),
        ({}, "num_heads=8", {}, "there are 4 heads of 6, which is not what is known of them"),
        ({}, "tied=true", {}, "no rule claims `params/decoder/logits_dense/kernel`"),
    ],
    "gemma2": [
        ({}, "num_layers=6", {}, f"the stack is not half of num_layers {ALONG}"),
        ({"scan": False}, "num_layers=5", {}, "num_layers is an even number"),
    ],
    "qwen3": [
        ({"scan": False}, "num_layers=4", {}, GONE),
        ({}, "tied=false", {}, "there is no logits kernel: --set tied=true"),
    ],
    "mixtral": [
        ({}, "family=qwen2", {}, "the model is qwen2: this recipe is for mixtral and qwen3_moe"),
        ({}, "num_experts=2", {}, "there are 3 experts, which is not what is known of them"),
        ({}, "moe_block=moe_block", {}, "`when` is false for"),
        ({}, "family=qwen3_moe", {}, "norms of queries and keys"),
    ],
    "qwen3_moe": [({"scan": False}, "family=mixtral", {}, "norms of queries and keys")],
    "gemma3": [
        ({}, "num_layers=6", {}, GONE),
        ({"layer_axis": 1}, "layer_axis=0", {}, f"the stack is not a sixth of num_layers {ALONG}"),
        ({"scan": False}, "num_layers=8", {}, GONE),
        ({}, "num_heads=8", {}, "there are 4 heads of 6, which is not what is known of them"),
        ({}, "num_kv_heads=4", {}, "there are 2 heads of keys, which is not what is known of them"),
        ({}, "model_type=gemma2", {}, "the model is gemma2, and this recipe is for gemma3 and gemma3_text"),
    ],
    "gpt_oss": [
        ({}, "num_layers=6", {}, f"the stack is not half of num_layers {ALONG}"),
        ({}, "num_layers=3", {}, "num_layers is an even number"),
        ({"layer_axis": 1}, "layer_axis=0", {}, f"the stack is not half of num_layers {ALONG}"),
        ({"scan": False}, "num_layers=6", {}, GONE),
        ({}, "num_heads=8", {}, "there are 4 heads, which is not what is known of them"),
        ({}, "head_dim=3", {}, "a head has 6, which is not what is known of it"),
        ({}, "num_kv_heads=4", {}, "there are 2 heads of keys, which is not what is known of them"),
        ({}, "num_experts=4", {}, "there are 3 experts, which is not what is known of them"),
        ({}, "tied=true", {}, "no rule claims `params/decoder/logits_dense/kernel`"),
    ],
    "deepseek_v3": [
        ({}, "first_dense=3", {}, f"the stack is not first_dense {ALONG}"),
        ({}, "num_layers=4", {}, f"the stack is not num_layers - first_dense {ALONG}"),
        ({"layer_axis": 1}, "layer_axis=0", {}, f"the stack is not first_dense {ALONG}"),
        ({"scan": False}, "num_layers=6", {}, "in each layer with experts"),
        ({}, "num_heads=8", {}, "there are 4 heads of 14, which is not what is known of them"),
        ({}, "qk_rope_head_dim=10", {}, "15 columns are not those of qk_rope_head_dim=10"),
        ({}, "num_experts=2", {}, "there are 3 experts, which is not what is known of them"),
        ({}, "tied=true", {}, "no rule claims `params/decoder/logits_dense/kernel`"),
        ({}, "", {"logits_dense/kernel": None}, "there is no logits kernel: --set tied=true"),
        ({"layout": "maxtext"}, "layout=jax", {}, "the rule claims nothing: it matches only a part"),
    ],
    "llama4": [
        ({}, "num_layers=4", {}, f"the stack is not num_layers // cycle {ALONG}"),
        ({"layer_axis": 1}, "layer_axis=0", {}, "the stack is not num_layers // cycle long"),
        ({}, "cycle=5", {}, "num_layers is not whole cycles"),
        ({}, "cycle=2", {}, "is beyond the cycle: --set cycle"),
        ({"scan": False}, "num_layers=10", {}, "layers are missing, or num_layers or moe_step is not theirs"),
        ({}, "moe_step=1", {}, "layers are missing, or num_layers or moe_step is not theirs"),
        (
            *({"scan": False}, ""),
            {"layers_2/mlp/wo/kernel": None, "layers_3/mlp/wo/kernel": (14, 10)},
            "layer 3 has mlp, which is not so with moe_step=2",
        ),
        ({}, "num_heads=8", {}, "there are 4 heads of 6, which is not what is known of them"),
        ({}, "num_kv_heads=4", {}, "there are 2 heads of keys, which is not what is known of them"),
        ({}, "num_experts=4", {}, "there are 3 experts, which is not what is known of them"),
        ({}, "tied=true", {}, "no rule claims `params/decoder/logits_dense/kernel`"),
        ({}, "", {"logits_dense/kernel": None}, "there is no logits kernel: --set tied=true"),
        ({"layout": "maxtext"}, "layout=jax", {}, "the rule claims nothing"),
    ],
}


@pytest.mark.parametrize("family", BACK)
def test_mistakes_on_the_way_back(family: str) -> None:
    f = FAMILIES[family]
    for params, given, edits, message in BACK[family]:
        layout = f.layout(**params)
        told = listed(edited(f.shapes(layout, True), {f"params/decoder/{k}": s for k, s in edits.items()}))
        overrides = [*f.params(layout, True), *given.split()]
        fails(message, lambda t=told, o=overrides: planned(f.recipes[1], t, overrides=o))


def test_quantized_weights_without_their_scales() -> None:
    f = FAMILIES["deepseek_v3"]
    told = listed(f.shapes(f.layout(), False)) | {f"{GATE}.weight": "float8_e4m3fn[3,10]"}
    fails("a float8 weight has no scales beside it", lambda: planned(f.recipes[0], told, config=f.config()))
    oss = FAMILIES["gpt_oss"].module
    told = oss.dtypes(edited(oss.hf_shapes(oss.PACKED, quantized=True), {SCALES: None}))
    config = oss.hf_config(oss.PACKED, quantized=True)
    fails(SCALES, lambda: planned("hf-gpt-oss-to-jax", told, config=config))
