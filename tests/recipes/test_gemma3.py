"""The recipes between Hugging Face's Gemma 3 and JAX: names, shapes, values and what they refuse."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ckpt_surgery.core.errors import PlanError
from tests.inference.going_back import reasons, there_and_back
from tests.recipes.decoder_layouts import Shapes, computed
from tests.recipes.gemma3_layout import (
    GEMMA_1B,
    GEMMA_4B,
    GEMMA_12B,
    GEMMA_27B,
    GEMMA_270M,
    NARROW,
    NORMS,
    Gemma3,
    Layout,
    embedding_root,
    hf_arrays,
    hf_config,
    jax_arrays,
    jax_shapes,
    published_config,
    recorded_config,
    text_shapes,
    tunix_arrays,
    vision_shapes,
)
from tests.recipes.running import RECIPES, planned
from tests.recipes.test_layouts import BF16, F32, FULL_WIDTH, converted, listed, shapes_of, without
from tests.support.comparing import assert_same

SMALL = replace(NARROW, layers=7)
THERE, BACK = "hf-gemma3-to-jax", "jax-to-hf-gemma3"
MAXTEXT = Layout(layout="maxtext")


SLOW = pytest.mark.slow
DTYPES = pytest.mark.parametrize("dtype", [BF16, pytest.param(F32, marks=SLOW)], ids=str)


def params(d: Gemma3, layout: Layout, back: bool = False) -> list[str]:
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


def told(warnings: tuple[str, ...]) -> list[str]:
    """All warnings but those about rows that no output uses."""
    return [warning for warning in warnings if "are used by no output" not in warning]


@pytest.mark.parametrize(
    ("d", "layout"),
    [
        (GEMMA_4B, MAXTEXT),
        pytest.param(GEMMA_1B, Layout(), marks=SLOW),
        pytest.param(GEMMA_270M, MAXTEXT, marks=SLOW),
        pytest.param(GEMMA_1B, MAXTEXT, marks=SLOW),
        pytest.param(GEMMA_4B, Layout(), marks=SLOW),
        *(pytest.param(d, one, marks=SLOW) for d in (GEMMA_12B, GEMMA_27B) for one in (Layout(), MAXTEXT)),
    ],
    ids=lambda v: getattr(v, "layers", getattr(v, "layout", None)),
)
def test_published_models_need_no_sizes(d: Gemma3, layout: Layout) -> None:
    """1B, 4B and 27B have layers after the last block, 12B has none."""
    images = ["vision=drop"] if d.images else []
    given = [f"layout={layout.layout}", *images]
    shapes = text_shapes(d) | vision_shapes(d)
    config = published_config(d) if d == GEMMA_4B else hf_config(d)
    plan = planned(THERE, listed(shapes), overrides=given, memory=FULL_WIDTH, config=config)
    assert shapes_of(plan) == jax_shapes(d, layout)
    assert {gone.leaf.key.text for gone in plan.dropped} == set(vision_shapes(d))
    assert told(plan.warnings) == []
    config = recorded_config(d, layout)
    again = planned(BACK, listed(shapes_of(plan)), memory=FULL_WIDTH, config=config)
    assert shapes_of(again) == text_shapes(d)
    assert again.dropped == ()
    assert told(again.warnings) == []


@SLOW
@pytest.mark.parametrize("d", [GEMMA_1B, replace(GEMMA_27B, root="model")], ids=["1b", "27b"])
def test_names_and_shapes_are_those_of_the_library(d: Gemma3) -> None:
    config = hf_config(d)
    del config["model_type"]
    with torch.device("meta"):
        model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**config))
    found = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert found == text_shapes(d)


# --- narrow, with values ------------------------------------------------------------------------------

EXACT = [
    Layout(norm_plus_one=False),
    Layout(norm_plus_one=False, layer_axis=1, rope="interleaved", vocab_size_padded=40),
    pytest.param(Layout(norm_plus_one=False, scan=False, rope="interleaved"), marks=SLOW),
    pytest.param(Layout(norm_plus_one=False, scan=False, vocab_size_padded=33), marks=SLOW),
]
"""Layouts without arithmetic."""

ROUNDED = [
    Layout(scan=False, rope="interleaved", scale_embedding=True, vocab_size_padded=40),
    MAXTEXT,
    pytest.param(Layout(), marks=SLOW),
    pytest.param(Layout(layout="maxtext", scan=False, vocab_size_padded=40), marks=SLOW),
]
"""Layouts whose values are computed: from float32, rounded once."""


@DTYPES
@pytest.mark.parametrize("layout", [*EXACT, *ROUNDED], ids=str)
def test_values_are_those_of_a_conversion_in_numpy(layout: Layout, dtype: np.dtype) -> None:
    """What is exact comes back to the bit."""
    hf = hf_arrays(NARROW, dtype)
    found = converted(RECIPES / f"{THERE}.yaml", hf, params(NARROW, layout))
    assert_same(found, jax_arrays(NARROW, layout, hf))
    assert {key: array.shape for key, array in found.items()} == jax_shapes(NARROW, layout)
    if not layout.norm_plus_one:
        back = converted(RECIPES / f"{BACK}.yaml", found, params(NARROW, layout, back=True))
        assert_same(back, hf)


@pytest.mark.parametrize("layers", [pytest.param(6, marks=SLOW), pytest.param(11, marks=SLOW), 12])
def test_blocks_with_and_without_layers_after_them(layers: int) -> None:
    d, layout = replace(NARROW, layers=layers), Layout(norm_plus_one=False)
    hf = hf_arrays(d, BF16)
    jax = converted(RECIPES / f"{THERE}.yaml", hf, params(d, layout))
    assert_same(jax, jax_arrays(d, layout, hf))
    assert_same(converted(RECIPES / f"{BACK}.yaml", jax, params(d, layout, back=True)), hf)


def test_the_layout_that_tunix_loads_and_back() -> None:
    hf, given = hf_arrays(SMALL, BF16), ["layout=tunix", f"num_layers={SMALL.layers}"]
    found = converted(RECIPES / f"{THERE}.yaml", hf, given)
    assert_same(found, tunix_arrays(SMALL, hf))
    assert_same(converted(RECIPES / f"{BACK}.yaml", found, given), hf)


def test_tunix_joins_heads_where_there_are_as_many_of_each() -> None:
    d = replace(SMALL, kv_heads=SMALL.heads)
    with pytest.raises(PlanError, match="tunix joins queries, keys and values"):
        planned(THERE, listed(text_shapes(d)), overrides=["layout=tunix"], config=hf_config(d))


@DTYPES
def test_what_is_computed_is_undone_by_computing(dtype: np.dtype) -> None:
    """Not to the bit: what is left is what NumPy has left."""
    hf = hf_arrays(NARROW, dtype)
    found = converted(
        RECIPES / f"{BACK}.yaml", jax_arrays(NARROW, MAXTEXT, hf), params(NARROW, MAXTEXT, back=True)
    )
    one, root = np.float32(1), embedding_root(NARROW)
    wanted = {}
    for key, w in hf.items():
        if "norm" in key:
            wanted[key] = computed(computed(w, lambda wide: wide + one), lambda wide: wide - one)
        elif "embed" in key:
            wanted[key] = computed(computed(w, lambda wide: wide * root), lambda wide: wide / root)
        else:
            wanted[key] = w
    assert_same(found, wanted)
    assert any(found[key].tobytes() != hf[key].tobytes() for key in hf)


def test_the_root_is_that_of_maxtext() -> None:
    """In its conversion, bfloat16 of the root: of 5376, 73.5 in place of 73.32."""
    assert [embedding_root(d) for d in (GEMMA_1B, GEMMA_4B, GEMMA_12B, GEMMA_27B)] == [34, 50.5, 62, 73.5]


@pytest.mark.parametrize("root", ["language_model.model", pytest.param("model.language_model", marks=SLOW)])
def test_names_of_models_that_see_images(root: str) -> None:
    d, layout = replace(NARROW, root=root), Layout(norm_plus_one=False)
    hf = hf_arrays(d, F32)
    table = hf[f"{root}.embed_tokens.weight"]
    extra = {"lm_head.weight": table, "model.vision_tower.a": table, "multi_modal_projector.b": table}
    found = converted(RECIPES / f"{THERE}.yaml", hf | extra, [*params(d, layout), "vision=drop"])
    assert_same(found, jax_arrays(d, layout, hf))
    given = [*params(d, layout, back=True), "model_type=gemma3"]
    published = replace(d, root="language_model.model")
    assert_same(converted(RECIPES / f"{BACK}.yaml", found, given), hf_arrays(published, F32))


def test_rows_for_the_tokens_of_images_that_maxtext_has_not() -> None:
    d = replace(NARROW, layers=6, vocab=262208, embed=2, root="language_model.model")
    hf = hf_arrays(d, F32)
    jax = converted(RECIPES / f"{THERE}.yaml", hf, params(d, MAXTEXT))
    assert_same(jax, jax_arrays(d, MAXTEXT, hf))
    assert jax["params/params/token_embedder/embedding"].shape == (262144, 2)
    given = [*params(d, MAXTEXT, back=True), "model_type=gemma3"]
    table = converted(RECIPES / f"{BACK}.yaml", jax, given)["language_model.model.embed_tokens.weight"]
    assert table.shape == (262208, 2)
    np.testing.assert_allclose(table[:262144], hf["language_model.model.embed_tokens.weight"][:262144], 2e-7)
    assert not table[262144:].any()
    kept = converted(RECIPES / f"{THERE}.yaml", hf, [*params(d, MAXTEXT), "vocab_size_padded=262208"])
    table = kept["params/params/token_embedder/embedding"]
    assert table.shape == (262208, 2)
    assert table[262144:].all()


def test_of_a_checkpoint_that_maxtext_wrote_the_state_is_left_out() -> None:
    shapes = jax_shapes(SMALL, MAXTEXT) | {"step": (), "opt_state/0/mu/params/decoder/x": (4, 4)}
    given = params(SMALL, MAXTEXT, back=True)
    plan = planned(BACK, listed(shapes), overrides=given)
    assert shapes_of(plan) == text_shapes(SMALL)
    assert len(plan.dropped) == 2
    shapes |= {"params/params/vision_encoder/x": (4, 4)}
    with pytest.raises(PlanError, match="the model sees images"):
        planned(BACK, listed(shapes), overrides=given)
    assert len(planned(BACK, listed(shapes), overrides=[*given, "vision=drop"]).dropped) == 3


@SLOW
@pytest.mark.parametrize(
    "layout", [Layout(), MAXTEXT, Layout(norm_plus_one=False, rope="interleaved")], ids=str
)
def test_of_the_inverse_that_invert_drafts(layout: Layout) -> None:
    """All that is not computed comes back, to the bit."""
    hf = hf_arrays(SMALL, BF16)
    recipe = (RECIPES / f"{THERE}.yaml").read_text()
    found, inversion = there_and_back(recipe, hf, overrides=params(SMALL, layout))
    norms = {key for key in hf if "norm" in key} if layout.norm_plus_one else set()
    embedding = {"model.embed_tokens.weight"} if layout == MAXTEXT else set()
    assert set(reasons(inversion)) == norms | embedding
    assert_same(found, {key: array for key, array in hf.items() if key not in norms | embedding})


# --- mistakes -----------------------------------------------------------------------------------------

GONE = "layers are missing, or num_layers is not theirs"
WRONG_THERE: list[tuple[list[str], Mapping[str, Any], str]] = [
    # what is set besides, what differs in the listing, what the message says
    (["num_layers=6"], {}, GONE),
    (["num_layers=8"], {}, GONE),
    (["num_heads=2"], {}, "24 rows are not those of the heads and the head_dim that are known"),
    (["head_dim=12"], {}, "24 rows are not those of the heads and the head_dim that are known"),
    (["num_kv_heads=4"], {}, "12 rows are not those of the heads of keys that are known"),
    (["layer_axis=2"], {}, "layer_axis is 0 or 1"),
    (["layout=max"], {}, "layout is jax, maxtext or tunix"),
    (["vision=keep"], {}, "vision is drop or error"),
    (["layout=tunix", "rope=interleaved"], {}, "tunix has its own: leave out rope and scale_embedding"),
    (["rope=halves"], {}, "table `rope_order` has no entry 'halves'; did you mean `half`?"),
    (["vocab_size_padded=32"], {}, "axis 0 of float32[33,10] is already longer than 32"),
    ([], {"model.layers.6.input_layernorm.weight": None}, GONE),
    ([], {"model.layers.3.mlp.up_proj.weight": None}, GONE),
    ([], {"model.layers.3.mlp.up_proj.bias": (14,)}, "no rule claims"),
    ([], {"model.layers.3.self_attn.v_proj.weight": (18, 10)}, "18"),
    ([], {"vision_tower.vision_model.post_layernorm.weight": (9,)}, "--set vision=drop leaves it out"),
    ([], {"language_model.model.norm.weight": (10,)}, "model.norm.weight"),
]


@pytest.mark.parametrize(("given", "edits", "message"), WRONG_THERE)
def test_mistakes_on_the_way_there(given: list[str], edits: Mapping[str, Any], message: str) -> None:
    shapes = without(text_shapes(SMALL), *(k for k, v in edits.items() if v is None))
    shapes |= {k: v for k, v in edits.items() if v is not None}
    told = {key: f"float32[{','.join(map(str, shape))}]" for key, shape in shapes.items()}
    with pytest.raises(PlanError) as caught:
        planned(THERE, told, overrides=[*params(SMALL, Layout()), *given])
    assert message in str(caught.value)


def test_fewer_layers_than_a_block_are_not_scanned() -> None:
    d = replace(SMALL, layers=5)
    with pytest.raises(PlanError, match="six layers are a block, and there are fewer: --set scan=false"):
        planned(THERE, listed(text_shapes(d)), config=hf_config(d))
    plan = planned(THERE, listed(text_shapes(d)), config=hf_config(d), overrides=["scan=false"])
    assert shapes_of(plan) == jax_shapes(d, Layout(scan=False))


WRONG_BACK = [
    (Layout(), "num_layers=13", "the stack is not a sixth of num_layers long along layer_axis"),
    (Layout(), "num_layers=6", GONE),
    (Layout(layer_axis=1), "layer_axis=0", "the stack is not a sixth of num_layers long along layer_axis"),
    (Layout(), "layer_axis=2", "layer_axis is 0 or 1"),
    (Layout(scan=False), "num_layers=8", GONE),
    (Layout(), "layout=maxtext", "the stack is not a sixth of num_layers long"),
    (Layout(), "layout=max", "layout is jax, maxtext or tunix"),
    (Layout(), "num_heads=8", "there are 4 heads of 6, which is not what is known of them"),
    (Layout(), "num_kv_heads=4", "there are 2 heads of keys, which is not what is known of them"),
    (Layout(), "vocab_size=34", "slice :34 is out of bounds for axis 0 of length 33"),
    (Layout(), "model_type=gemma2", "the model is gemma2, and this recipe is for gemma3 and gemma3_text"),
]


@pytest.mark.parametrize(("layout", "given", "message"), WRONG_BACK)
def test_mistakes_on_the_way_back(layout: Layout, given: str, message: str) -> None:
    shapes = jax_shapes(SMALL, layout)
    with pytest.raises(PlanError) as caught:
        planned(BACK, listed(shapes), overrides=[*params(SMALL, layout, back=True), given])
    assert message in str(caught.value)


@pytest.mark.parametrize("missing", [*(f"{norm}/scale" for norm in NORMS.values()), "mlp/wi_0/kernel"])
def test_no_leaf_may_be_missing_on_the_way_back(missing: str) -> None:
    shapes = without(jax_shapes(SMALL, Layout()), f"params/decoder/layers_remainder/layers_0/{missing}")
    with pytest.raises(PlanError, match=GONE):
        planned(BACK, listed(shapes), config=recorded_config(SMALL, Layout()))


@pytest.mark.parametrize("back", [False, True])
def test_layers_that_are_numbered_wrongly(back: bool) -> None:
    layout = Layout(scan=False)
    shapes: Shapes = jax_shapes(SMALL, layout) if back else text_shapes(SMALL)
    name = "layers_{}/" if back else "layers.{}."
    moved = {key.replace(name.format(6), name.format(7)): shape for key, shape in shapes.items()}
    assert moved != shapes
    with pytest.raises(PlanError, match=GONE):
        planned(BACK if back else THERE, listed(moved), overrides=params(SMALL, layout, back))


LOCAL = ["sliding_attention"] * 5
OTHER_MODELS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "gemma2"}, "the model is gemma2, and this recipe is for gemma3 and gemma3_text"),
    ({"model_type": "gemma3n_text"}, "the model is gemma3n_text"),
    ({"hidden_activation": "silu"}, "the activation is not that of Gemma 3"),
    ({"attention_bias": True}, "the layers have biases"),
    ({"use_bidirectional_attention": True}, "attention looks ahead"),
    ({"tie_word_embeddings": False}, "embeddings are not tied"),
    ({"sliding_window_pattern": 4}, "local attention five times and then global attention once"),
    ({"layer_types": [*LOCAL, "sliding_attention"]}, "local attention five times"),
    ({"layer_types": [*LOCAL[:4], "full_attention", "full_attention"]}, "local attention five times"),
    ({"num_attention_heads": 2}, "24 rows are not those of the heads and the head_dim that are known"),
    ({"num_key_value_heads": 1}, "12 rows are not those of the heads of keys that are known"),
]


@pytest.mark.parametrize("images", [False, pytest.param(True, marks=SLOW)])
@pytest.mark.parametrize(("said", "message"), OTHER_MODELS, ids=str)
def test_what_the_config_says_of_another_model_is_refused(
    said: dict[str, Any], message: str, images: bool
) -> None:
    d = replace(SMALL, root="language_model.model" if images else "model")
    config = hf_config(d)
    changed = {"text_config": config["text_config"] | said} if images else said
    if images and "model_type" in said:
        message = "the text model is not that of Gemma 3"
    with pytest.raises(PlanError) as caught:
        planned(THERE, listed(text_shapes(d)), config=config | changed)
    assert message in str(caught.value)


def test_layers_that_the_config_lists() -> None:
    """As older versions of the library write the config, and as newer ones do."""
    for said in ({"sliding_window_pattern": 6}, {"layer_types": [*LOCAL, "full_attention", *LOCAL[:1]]}):
        plan = planned(THERE, listed(text_shapes(SMALL)), config=hf_config(SMALL) | said)
        assert shapes_of(plan) == jax_shapes(SMALL, Layout())


def test_quantized_weights_are_refused() -> None:
    config = hf_config(SMALL) | {"quantization_config": {"quant_method": "bitsandbytes"}}
    with pytest.raises(PlanError, match="the weights are quantized: dequantize them first"):
        planned(THERE, listed(text_shapes(SMALL)), config=config)


@pytest.mark.parametrize("given", ["num_layers=13", "num_heads=2", "num_kv_heads=1", "head_dim=12"])
@pytest.mark.parametrize("back", [False, pytest.param(True, marks=SLOW)])
@pytest.mark.parametrize("root", [pytest.param("model", marks=SLOW), "language_model.model"])
def test_what_is_set_against_the_config_is_refused(given: str, back: bool, root: str) -> None:
    d, layout = replace(SMALL, root=root), Layout(scan=False)
    name, shapes = (BACK, jax_shapes(d, layout)) if back else (THERE, text_shapes(d))
    config = recorded_config(d, layout)
    planned(name, listed(shapes), config=config)
    with pytest.raises(PlanError, match="what was set is not what the config"):
        planned(name, listed(shapes), overrides=[given], config=config)
