"""The recipes between Hugging Face's gpt-oss and JAX: names, shapes, values and what they refuse."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ckpt_surgery.core.errors import PlanError
from tests.inference.going_back import reasons, there_and_back
from tests.recipes.gpt_oss_layout import (
    NARROW,
    OSS_20B,
    OSS_120B,
    PACKED,
    SMALL,
    GptOss,
    Layout,
    dtypes,
    hf_arrays,
    hf_config,
    hf_shapes,
    jax_arrays,
    jax_shapes,
    recorded_config,
    unpacked,
)
from tests.recipes.running import RECIPES, planned
from tests.recipes.test_layouts import BF16, F32, FULL_WIDTH, converted, listed, shapes_of, without
from tests.support.comparing import assert_same

THERE, BACK = "hf-gpt-oss-to-jax", "jax-to-hf-gpt-oss"
MAXTEXT = Layout(layout="maxtext")
SLOW = pytest.mark.slow
DTYPES = pytest.mark.parametrize("dtype", [BF16, pytest.param(F32, marks=SLOW)], ids=str)


def params(d: GptOss, layout: Layout, back: bool = False) -> list[str]:
    """`--set` for a model and a layout, of the recipe there or the one back."""
    given = asdict(layout) | {"num_layers": d.layers}
    del given["vocab_size_padded"]
    given |= (
        {"vocab_size": d.vocab if layout.vocab_size_padded else 0}
        if back
        else {"vocab_size_padded": layout.vocab_size_padded}
    )
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in given.items()]


# --- as published -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [pytest.param(Layout(), marks=SLOW), MAXTEXT], ids=["jax", "maxtext"])
@pytest.mark.parametrize("quantized", [True, pytest.param(False, marks=SLOW)])
@pytest.mark.parametrize("d", [OSS_20B, pytest.param(OSS_120B, marks=SLOW)], ids=["20b", "120b"])
def test_published_models_need_no_sizes(d: GptOss, quantized: bool, layout: Layout) -> None:
    """Both are published with MXFP4 experts; DST has bfloat16."""
    source, config = dtypes(hf_shapes(d, quantized)), hf_config(d, quantized)
    plan = planned(THERE, source, overrides=[f"layout={layout.layout}"], memory=FULL_WIDTH, config=config)
    assert shapes_of(plan) == jax_shapes(d, layout)
    assert {gone.leaf.key.text for gone in plan.dropped} == set()
    assert plan.warnings == ()
    again = planned(BACK, listed(shapes_of(plan)), memory=FULL_WIDTH, config=recorded_config(d, layout))
    assert shapes_of(again) == hf_shapes(d)
    assert (again.dropped, again.warnings) == ((), ())


@SLOW
@pytest.mark.parametrize("d", [OSS_20B, OSS_120B], ids=["20b", "120b"])
def test_names_and_shapes_are_those_of_the_library(d: GptOss) -> None:
    config = hf_config(d)
    del config["model_type"]
    with torch.device("meta"):
        model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**config))
    found = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert found == hf_shapes(d)


@SLOW
def test_without_a_config_the_plan_says_what_it_relied_on() -> None:
    source = dtypes(hf_shapes(OSS_20B, quantized=True))
    plan = planned(THERE, source, memory=FULL_WIDTH)
    assert plan.warnings == (
        "by default model_type=gpt_oss, num_layers=24, tied=false: there is no config.json",
    )
    assert shapes_of(plan) == jax_shapes(OSS_20B, Layout())


# --- narrow, with values ------------------------------------------------------------------------------

LAYOUTS = [
    Layout(),
    Layout(layer_axis=1, rope="interleaved", vocab_size_padded=40),
    MAXTEXT,
    pytest.param(Layout(scan=False, rope="interleaved"), marks=SLOW),
    pytest.param(Layout(scan=False, vocab_size_padded=33), marks=SLOW),
    pytest.param(Layout(layout="maxtext", scan=False, vocab_size_padded=40), marks=SLOW),
]


@DTYPES
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_values_are_those_of_a_conversion_in_numpy_and_come_back(layout: Layout, dtype: np.dtype) -> None:
    d = NARROW if layout == Layout() else SMALL
    hf = hf_arrays(d, dtype)
    found = converted(RECIPES / f"{THERE}.yaml", hf, params(d, layout))
    assert_same(found, jax_arrays(d, layout, hf))
    assert {key: array.shape for key, array in found.items()} == jax_shapes(d, layout)
    assert_same(converted(RECIPES / f"{BACK}.yaml", found, params(d, layout, back=True)), hf)


@pytest.mark.parametrize("layout", [Layout(), pytest.param(MAXTEXT, marks=SLOW)], ids=str)
def test_experts_in_mxfp4(layout: Layout) -> None:
    hf = hf_arrays(PACKED, BF16, quantized=True)
    plain = unpacked(hf, BF16)
    found = converted(RECIPES / f"{THERE}.yaml", hf, params(PACKED, layout))
    assert_same(found, jax_arrays(PACKED, layout, plain))
    assert_same(converted(RECIPES / f"{BACK}.yaml", found, params(PACKED, layout, back=True)), plain)


def test_experts_in_mxfp4_as_float32() -> None:
    hf = hf_arrays(PACKED, F32, quantized=True)
    found = converted(RECIPES / f"{THERE}.yaml", hf, [*params(PACKED, Layout()), "dtype=float32"])
    assert_same(found, jax_arrays(PACKED, Layout(), unpacked(hf, F32)))


@SLOW
def test_unpacked_experts_are_those_of_the_library() -> None:
    """The numbers that the tests take MXFP4 to mean."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    hf = hf_arrays(PACKED, BF16, quantized=True)
    plain = unpacked(hf, BF16)
    for name in ("gate_up_proj", "down_proj"):
        key = f"model.layers.1.mlp.experts.{name}"
        blocks, scales = torch.from_numpy(hf[f"{key}_blocks"]), torch.from_numpy(hf[f"{key}_scales"])
        theirs = convert_moe_packed_tensors(blocks, scales).float().numpy()
        np.testing.assert_array_equal(plain[key].astype(np.float32), theirs)


def test_tied_embeddings() -> None:
    hf = hf_arrays(SMALL, F32)
    config = hf_config(SMALL) | {"tie_word_embeddings": True}
    plan = planned(THERE, listed(hf_shapes(SMALL)), config=config)
    assert plan.dropped == ()  # the head is compared with the embedding
    del hf["lm_head.weight"]
    jax = converted(RECIPES / f"{THERE}.yaml", hf, [*params(SMALL, Layout()), "tied=true"])
    assert "params/decoder/logits_dense/kernel" not in jax
    given = [*params(SMALL, Layout(), back=True), "tied=true"]
    assert_same(converted(RECIPES / f"{BACK}.yaml", jax, given), hf)


def test_of_a_checkpoint_that_maxtext_wrote_the_state_is_left_out() -> None:
    shapes = jax_shapes(SMALL, MAXTEXT) | {"step": (), "opt_state/0/mu/params/decoder/x": (4, 4)}
    plan = planned(BACK, listed(shapes), overrides=params(SMALL, MAXTEXT, back=True))
    assert shapes_of(plan) == hf_shapes(SMALL)
    assert len(plan.dropped) == 2


@SLOW
@pytest.mark.parametrize("quantized", [False, True])
def test_of_the_inverse_that_invert_drafts(quantized: bool) -> None:
    """All but packed experts comes back, to the bit."""
    hf = hf_arrays(PACKED, BF16, quantized)
    recipe = (RECIPES / f"{THERE}.yaml").read_text()
    found, inversion = there_and_back(recipe, hf, overrides=params(PACKED, MAXTEXT))
    packed = {key for key in hf if key.endswith(("_blocks", "_scales"))}
    assert set(reasons(inversion)) == packed
    assert_same(found, {key: array for key, array in hf.items() if key not in packed})


# --- mistakes -----------------------------------------------------------------------------------------

GONE = "layers are missing, or num_layers is not theirs"
SCALES = "model.layers.1.mlp.experts.gate_up_proj_scales"
WRONG_THERE: list[tuple[list[str], Mapping[str, Any], str]] = [
    # what is set besides, what differs in the listing, what the message says
    (["num_layers=2"], {}, GONE),
    (["num_layers=6"], {}, GONE),
    (["num_layers=3"], {}, "num_layers is an even number"),
    (["num_heads=2"], {}, "there are 4 heads, which is not what is known of them and of their head_dim"),
    (["head_dim=12"], {}, "there are 4 heads, which is not what is known of them and of their head_dim"),
    (["num_kv_heads=4"], {}, "12 rows are not those of the heads of keys that are known"),
    (["num_experts=4"], {}, "there are 3 experts, which is not what is known of them"),
    (["layer_axis=2"], {}, "layer_axis is 0 or 1"),
    (["layout=tunix"], {}, "layout is jax or maxtext"),
    (["rope=halves"], {}, "table `rope_order` has no entry 'halves'; did you mean `half`?"),
    (["vocab_size_padded=32"], {}, "axis 0 of float32[33,10] is already longer than 32"),
    ([], {"lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
    ([], {"model.layers.3.self_attn.sinks": None}, GONE),
    ([], {"model.layers.1.mlp.experts.down_proj_bias": None}, GONE),
    ([], {"model.layers.1.mlp.experts.down_proj.bias": (3, 10)}, "no rule claims"),
    ([], {"model.layers.1.self_attn.v_proj.weight": (18, 10)}, "18 rows are not those of the heads of keys"),
    ([], {SCALES: (3, 28, 2)}, f"no rule claims `{SCALES}`"),
]


@pytest.mark.parametrize(("given", "edits", "message"), WRONG_THERE)
def test_mistakes_on_the_way_there(given: list[str], edits: Mapping[str, Any], message: str) -> None:
    shapes = without(hf_shapes(SMALL), *(k for k, v in edits.items() if v is None))
    shapes |= {k: v for k, v in edits.items() if v is not None}
    told = {key: f"float32[{','.join(map(str, shape))}]" for key, shape in shapes.items()}
    with pytest.raises(PlanError) as caught:
        planned(THERE, told, overrides=[*params(SMALL, Layout()), *given])
    assert message in str(caught.value)


def test_scales_that_are_missing() -> None:
    shapes = without(hf_shapes(PACKED, quantized=True), SCALES)
    with pytest.raises(PlanError) as caught:
        planned(THERE, dtypes(shapes), config=hf_config(PACKED, quantized=True))
    assert SCALES in str(caught.value)


WRONG_BACK = [
    (Layout(), "num_layers=6", "the stack is not half of num_layers long along layer_axis"),
    (Layout(), "num_layers=3", "num_layers is an even number"),
    (Layout(layer_axis=1), "layer_axis=0", "the stack is not half of num_layers long along layer_axis"),
    (Layout(), "layer_axis=2", "layer_axis is 0 or 1"),
    (Layout(scan=False), "num_layers=6", GONE),
    (Layout(), "layout=maxtext", "the stack is not half of num_layers long"),
    (Layout(), "num_heads=8", "there are 4 heads, which is not what is known of them"),
    (Layout(), "head_dim=3", "a head has 6, which is not what is known of it"),
    (Layout(), "num_kv_heads=4", "there are 2 heads of keys, which is not what is known of them"),
    (Layout(), "num_experts=4", "there are 3 experts, which is not what is known of them"),
    (Layout(), "vocab_size=34", "slice :34 is out of bounds for axis"),
    (Layout(), "tied=true", "no rule claims `params/decoder/logits_dense/kernel`"),
    (Layout(), "model_type=mixtral", "the model is mixtral, and this recipe is for gpt_oss"),
]


@pytest.mark.parametrize(("layout", "given", "message"), WRONG_BACK)
def test_mistakes_on_the_way_back(layout: Layout, given: str, message: str) -> None:
    shapes = jax_shapes(SMALL, layout)
    with pytest.raises(PlanError) as caught:
        planned(BACK, listed(shapes), overrides=[*params(SMALL, layout, back=True), given])
    assert message in str(caught.value)


@pytest.mark.parametrize("missing", ["GptOssMlp/wi_1", "GptOssMlp/wi_1_bias", "GptOssAttention/out/bias"])
def test_no_leaf_may_be_missing_on_the_way_back(missing: str) -> None:
    shapes = without(jax_shapes(SMALL, Layout(scan=False)), f"params/decoder/layers_3/{missing}")
    with pytest.raises(PlanError, match=f"{GONE}|{missing}"):
        planned(BACK, listed(shapes), config=recorded_config(SMALL, Layout(scan=False)))


OTHER_MODELS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mixtral"}, "the model is mixtral, and this recipe is for gpt_oss"),
    ({"hidden_act": "gelu"}, "the activation is not that of gpt-oss"),
    ({"attention_bias": False}, "attention has no biases"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "local first"),
    ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantized, and not as MXFP4: dequantize"),
    ({"num_attention_heads": 2}, "there are 4 heads, which is not what is known of them"),
    ({"head_dim": 12}, "there are 4 heads, which is not what is known of them and of their head_dim"),
    ({"num_key_value_heads": 1}, "12 rows are not those of the heads of keys that are known"),
    ({"num_local_experts": 4}, "there are 3 experts, which is not what is known of them"),
]


@pytest.mark.parametrize(("said", "message"), OTHER_MODELS, ids=str)
def test_what_the_config_says_of_another_model_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(THERE, listed(hf_shapes(SMALL)), config=hf_config(SMALL) | said)
    assert message in str(caught.value)


SET = ["num_layers=6", "num_heads=2", "num_kv_heads=1", "head_dim=12", "num_experts=9", "tied=true"]


@pytest.mark.parametrize("given", SET)
@pytest.mark.parametrize("back", [False, pytest.param(True, marks=SLOW)])
def test_what_is_set_against_the_config_is_refused(given: str, back: bool) -> None:
    layout = Layout(scan=False)
    name, shapes = (BACK, jax_shapes(SMALL, layout)) if back else (THERE, hf_shapes(SMALL))
    with pytest.raises(PlanError, match="what was set is not what the config"):
        planned(name, listed(shapes), overrides=[given], config=recorded_config(SMALL, layout))


@pytest.mark.parametrize("back", [False, True])
def test_layers_that_are_numbered_wrongly(back: bool) -> None:
    layout = Layout(scan=False)
    shapes = jax_shapes(SMALL, layout) if back else hf_shapes(SMALL)
    name = "layers_{}/" if back else "layers.{}."
    moved = {key.replace(name.format(3), name.format(4)): shape for key, shape in shapes.items()}
    assert moved != shapes
    with pytest.raises(PlanError, match=GONE):
        planned(BACK if back else THERE, listed(moved), overrides=params(SMALL, layout, back))


def test_fewer_experts_in_one_layer() -> None:
    shapes = hf_shapes(replace(SMALL, experts=3)) | {"model.layers.2.mlp.experts.down_proj": (2, 14, 10)}
    with pytest.raises(PlanError) as caught:
        planned(THERE, listed(shapes), config=hf_config(SMALL))
    assert "GptOssMlp/wo" in str(caught.value)
