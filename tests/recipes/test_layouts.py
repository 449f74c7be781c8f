"""The recipes between Hugging Face's layouts and those of JAX decoders with scanned layers.

Planned at full width from the names and shapes of published models; run at a narrow width against a
conversion in NumPy that is written in `decoder_layouts`.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.language.loading import load_recipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from tests.recipes.decoder_layouts import (
    GEMMA,
    LLAMA,
    MIXTRAL,
    NARROW,
    QWEN,
    QWEN2,
    QWEN_MOE,
    Arrays,
    Decoder,
    Layout,
    Shapes,
    computed,
    hf_arrays,
    hf_config,
    hf_shapes,
    jax_arrays,
    jax_shapes,
    keytable,
    recorded_config,
    within_layer,
)
from tests.support.comparing import assert_same
from tests.support.memory import MemorySink, MemorySource
from tests.support.plans import COMPUTED, plan_of

RECIPES = Path(__file__).parents[2] / "recipes"
FULL_WIDTH = 1 << 36
"""A budget for sources whose arrays are single chunks."""
BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def recipe_names(d: Decoder) -> tuple[Path, Path]:
    """There and back."""
    name = "moe" if d.experts else d.family
    return RECIPES / f"hf-{name}-to-jax.yaml", RECIPES / f"jax-to-hf-{name}.yaml"


def sizes(d: Decoder) -> dict[str, object]:
    """The params that say how large a model is; both directions take them."""
    given: dict[str, object] = {
        "num_layers": d.layers,
        "num_heads": d.heads,
        "num_kv_heads": d.kv_heads,
        "head_dim": d.head_dim,
    }
    if d.experts:
        given["num_experts"] = d.experts
    if d.family != "gemma2":
        given["tied"] = d.tied
    return given


def params(d: Decoder, layout: Layout, back: bool) -> list[str]:
    """`--set` for a model and a layout, of the recipe there or the one back."""
    given = sizes(d) | {
        "scan": layout.scan,
        "layer_axis": layout.layer_axis,
        "rope": layout.rope,
    }
    if d.family not in ("qwen2", "qwen3"):
        given["fold_query_scale"] = layout.fold_query_scale
    if d.family == "gemma2":
        given |= {"norm_plus_one": layout.norm_plus_one, "scale_embedding": layout.scale_embedding}
    if d.experts:
        given["moe_block"] = layout.moe_block
    if back:
        given["vocab_size"] = d.vocab if layout.vocab_size_padded else 0
        given |= {"family": d.family} if d.experts else {}
    else:
        given["vocab_size_padded"] = layout.vocab_size_padded
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in given.items()]


# --- full width ---------------------------------------------------------------------------------------


def listed(shapes: Shapes) -> dict[str, str]:
    return {key: f"bfloat16[{','.join(map(str, shape))}]" for key, shape in shapes.items()}


def shapes_of(plan: Plan) -> Shapes:
    assert {step.leaf.spec.dtype for step in plan.steps if step.leaf.spec} == {BF16}
    return {step.leaf.key.text: step.leaf.spec.shape for step in plan.steps if step.leaf.spec}


LLAMA_1B = replace(LLAMA, layers=16, head_dim=64, embed=2048, mlp=8192, tied=True)
QWEN_8B = replace(QWEN, layers=36, heads=32, embed=4096, mlp=12288, tied=False)


def shallow(d: Decoder) -> Decoder:
    """The same widths in twelve layers: more than ten, and even. FULL_SIZES has all that were published."""
    return replace(d, layers=12)


MAXTEXT = Layout(layer_axis=1, rope="interleaved", fold_query_scale=True)
FULL_SIZES = [
    # what, its published names and shapes, what has to be said where there is no config
    (LLAMA, keytable("llama3.1-8b"), []),
    (GEMMA, keytable("gemma2-2b"), []),
    (QWEN, keytable("qwen3-0.6b"), ["tied=true"]),
    (QWEN2, hf_shapes(QWEN2), []),
    (MIXTRAL, hf_shapes(MIXTRAL), []),
]


@pytest.mark.parametrize(("d", "table", "given"), FULL_SIZES, ids=lambda v: getattr(v, "family", None))
def test_the_defaults_are_those_of_a_published_model(d: Decoder, table: Shapes, given: list[str]) -> None:
    """Where there is no config, the plan says which of them it relied on."""
    there, back = recipe_names(d)
    plan = plan_of(there.read_text(), listed(table), overrides=given, memory=FULL_WIDTH)
    assert shapes_of(plan) == jax_shapes(d, Layout())
    assert plan.dropped == ()
    (warning,) = plan.warnings
    assert warning.startswith("by default ")
    assert warning.endswith(": there is no config.json")
    assert f"num_heads={d.heads}, num_kv_heads={d.kv_heads}" in warning
    again = plan_of(back.read_text(), listed(shapes_of(plan)), overrides=given, memory=FULL_WIDTH)
    assert shapes_of(again) == table
    assert again.dropped == ()
    (warning,) = again.warnings
    assert "layer_axis=0, rope=half" in warning


@pytest.mark.parametrize(
    "d",
    [
        *(shallow(d) for d in (LLAMA, GEMMA, QWEN, QWEN2, MIXTRAL, LLAMA_1B, QWEN_8B)),
        replace(QWEN_MOE, layers=3),  # of 128 experts each
    ],
    ids=lambda d: f"{d.family}-{d.embed}",
)
@pytest.mark.parametrize(
    "layout", [Layout(), Layout(scan=False), Layout(layer_axis=1, vocab_size_padded=256128)]
)
def test_with_a_config_nothing_has_to_be_set(d: Decoder, layout: Layout) -> None:
    """But what is wanted; and on the way back not even that."""
    there, back = recipe_names(d)
    config = {k: v for k, v in hf_config(d).items() if k != "head_dim" or d.family != "llama3"}
    wanted = {k: v for k, v in asdict(layout).items() if k in ("scan", "layer_axis", "vocab_size_padded")}
    given = [f"{k}={str(v).lower()}" for k, v in wanted.items()]
    plan = plan_of(there.read_text(), listed(hf_shapes(d)), overrides=given, memory=FULL_WIDTH, config=config)
    assert shapes_of(plan) == jax_shapes(d, layout)
    assert (plan.dropped, plan.warnings) == ((), ())
    again = plan_of(
        back.read_text(), listed(shapes_of(plan)), memory=FULL_WIDTH, config=recorded_config(d, layout)
    )
    assert shapes_of(again) == hf_shapes(d)
    assert again.dropped == ()
    assert not [warning for warning in again.warnings if "are used by no output" not in warning]


@pytest.mark.parametrize(
    ("d", "layout"),
    [
        (shallow(LLAMA), MAXTEXT),
        (shallow(LLAMA), Layout(scan=False, rope="interleaved")),
        (shallow(GEMMA), replace(MAXTEXT, rope="half", scale_embedding=True, vocab_size_padded=256128)),
        (shallow(GEMMA), Layout(scan=False, norm_plus_one=False)),
        (shallow(QWEN), Layout(layer_axis=1)),
        (shallow(QWEN), Layout(scan=False)),
        (shallow(MIXTRAL), Layout(scan=False)),
        (replace(shallow(QWEN_MOE), experts=6), Layout(layer_axis=1, moe_block="moe_block")),
    ],
    ids=lambda v: getattr(v, "family", None),
)
def test_full_width_in_other_layouts(d: Decoder, layout: Layout) -> None:
    there, back = recipe_names(d)
    plan = plan_of(
        there.read_text(), listed(hf_shapes(d)), overrides=params(d, layout, False), memory=FULL_WIDTH
    )
    assert shapes_of(plan) == jax_shapes(d, layout)
    again = plan_of(
        back.read_text(), listed(shapes_of(plan)), overrides=params(d, layout, True), memory=FULL_WIDTH
    )
    assert shapes_of(again) == hf_shapes(d)


@pytest.mark.parametrize(("d", "table", "given"), FULL_SIZES[:3], ids=lambda v: getattr(v, "family", None))
def test_the_names_that_the_tests_make_are_the_published_ones(
    d: Decoder, table: Shapes, given: list[str]
) -> None:
    assert hf_shapes(d) == table


# --- narrow, with values ------------------------------------------------------------------------------


def converted(recipe: Path, arrays: Mapping[str, np.ndarray], given: list[str]) -> Arrays:
    loaded = load_recipe(recipe, given)
    source = MemorySource(arrays)
    plan = make_plan(loaded, {"source": source.leaves()}, None, [], {}, COMPUTED, 1 << 26, 2)
    sink = MemorySink(outputs_of(plan))
    run(plan, {"source": source}, sink, Means(1 << 26, 2))
    assert all((count == 1).all() for count in sink.writes.values())
    return sink.arrays


EXACT = [
    ("llama3", Layout()),
    ("llama3", Layout(scan=False)),
    ("llama3", Layout(layer_axis=1, rope="interleaved", vocab_size_padded=40)),
    ("llama3", Layout(scan=False, rope="interleaved", vocab_size_padded=33)),
    ("gemma2", Layout(norm_plus_one=False)),
    ("gemma2", Layout(norm_plus_one=False, scan=False, rope="interleaved")),
    ("gemma2", Layout(norm_plus_one=False, layer_axis=1, vocab_size_padded=64)),
    ("qwen2", Layout()),
    ("qwen2", Layout(layer_axis=1, rope="interleaved", vocab_size_padded=40)),
    ("qwen2", Layout(scan=False)),
    ("qwen3", Layout()),
    ("qwen3", Layout(scan=False, vocab_size_padded=64)),
    ("qwen3", Layout(layer_axis=1, rope="interleaved")),
    ("mixtral", Layout()),
    ("mixtral", Layout(scan=False, rope="interleaved")),
    ("qwen3_moe", Layout(layer_axis=1, rope="interleaved", moe_block="moe_block", vocab_size_padded=48)),
    ("qwen3_moe", Layout(scan=False)),
]
"""Layouts without arithmetic."""

ROUNDED = [
    ("llama3", MAXTEXT),
    ("gemma2", Layout()),
    ("gemma2", Layout(scan=False, scale_embedding=True, fold_query_scale=True, vocab_size_padded=40)),
    ("mixtral", Layout(fold_query_scale=True)),
]
"""Layouts whose values are computed: from float32, rounded once."""


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize(("family", "layout"), [*EXACT, *ROUNDED])
def test_values_are_those_of_a_conversion_in_numpy(family: str, layout: Layout, dtype: np.dtype) -> None:
    d = NARROW[family]
    hf = hf_arrays(d, dtype)
    found = converted(recipe_names(d)[0], hf, params(d, layout, back=False))
    assert_same(found, jax_arrays(d, layout, hf))
    assert {key: array.shape for key, array in found.items()} == jax_shapes(d, layout)


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize(("family", "layout"), EXACT)
def test_there_and_back_is_exact_to_the_bit(family: str, layout: Layout, dtype: np.dtype) -> None:
    d = NARROW[family]
    hf = hf_arrays(d, dtype)
    assert_same(converted(recipe_names(d)[1], jax_arrays(d, layout, hf), params(d, layout, back=True)), hf)


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_what_is_computed_for_gemma_is_undone_by_computing(dtype: np.dtype) -> None:
    """Not to the bit: `1 + w` loses the last bits of a small `w`. What is left is what NumPy has left."""
    d, layout = NARROW["gemma2"], Layout(scale_embedding=True, fold_query_scale=True)
    hf = hf_arrays(d, dtype)
    found = converted(recipe_names(d)[1], jax_arrays(d, layout, hf), params(d, layout, back=True))
    there = lambda w, f, g: computed(computed(w, f), g)  # noqa: E731
    one, root, sixteen = np.float32(1), np.float32(d.embed**0.5), np.float32(16)
    wanted = {
        "model.norm.weight": there(hf["model.norm.weight"], lambda w: w + one, lambda w: w - one),
        "model.embed_tokens.weight": there(
            hf["model.embed_tokens.weight"], lambda w: w * root, lambda w: w / root
        ),
    }
    for i in range(d.layers):
        for name, w in within_layer(hf, i).items():
            norm = name.endswith("layernorm")
            wanted[f"model.layers.{i}.{name}.weight"] = (
                there(w, lambda w: w + one, lambda w: w - one) if norm else w
            )
    # 1/16 is a power of two, so folding it in is exact and comes undone exactly.
    assert sixteen == np.float32(256**0.5)
    assert_same(found, wanted)
    assert any(found[k].tobytes() != hf[k].tobytes() for k in hf)


def test_the_query_scale_is_undone_by_its_inverse() -> None:
    d, layout = NARROW["llama3"], Layout(fold_query_scale=True)
    hf = hf_arrays(d, F32)
    found = converted(recipe_names(d)[1], jax_arrays(d, layout, hf), params(d, layout, back=True))
    key = "model.layers.0.self_attn.q_proj.weight"
    np.testing.assert_allclose(found.pop(key), hf.pop(key), rtol=2e-7)
    rest = {k: v for k, v in hf.items() if "q_proj" not in k}
    assert_same({k: v for k, v in found.items() if "q_proj" not in k}, rest)


def test_tied_embeddings() -> None:
    d = replace(NARROW["llama3"], tied=True)
    hf = hf_arrays(d, F32)
    copied = hf | {"lm_head.weight": hf["model.embed_tokens.weight"]}
    given = params(d, Layout(), back=False)
    without, with_copy = (converted(recipe_names(d)[0], arrays, given) for arrays in (hf, copied))
    assert_same(without, jax_arrays(d, Layout(), hf))
    assert_same(with_copy, without)
    assert_same(converted(recipe_names(d)[1], without, params(d, Layout(), back=True)), hf)


def test_buffers_of_older_files_are_dropped() -> None:
    d = NARROW["llama3"]
    hf = hf_arrays(d, F32)
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(3) for i in range(d.layers)}
    found = converted(recipe_names(d)[0], hf | buffers, params(d, Layout(), back=False))
    assert_same(found, jax_arrays(d, Layout(), hf))


# --- mistakes -----------------------------------------------------------------------------------------


def without(shapes: Shapes, *keys: str) -> Shapes:
    assert all(key in shapes for key in keys)
    return {key: shape for key, shape in shapes.items() if key not in keys}


THERE = [
    # family, what differs, the listing, what the message says
    ("llama3", "num_heads=2", {}, "24 rows are not those of num_heads=2 with the head_dim that is known"),
    ("llama3", "num_kv_heads=4", {}, "an axis of 12 does not split into h=4"),
    ("llama3", "rope=halves", {}, "table `rope_order` has no entry 'halves'; did you mean `half`?"),
    ("llama3", "num_layers=10", {}, "`stack`: an array has the index 10, but `count` is 10"),
    ("llama3", "num_layers=12", {}, "`stack`: no array has the index 11 of 0 to 11"),
    ("gemma2", "num_layers=5", {}, "num_layers is an even number"),
    ("gemma2", "num_layers=6", {}, "layers are missing, or num_layers is not theirs"),
    ("llama3", "layer_axis=-1", {}, "layer_axis is 0 or 1"),
    ("gemma2", "layer_axis=-1", {}, "layer_axis is 0 or 1"),
    ("qwen3", "layer_axis=2", {}, "layer_axis is 0 or 1"),
    ("mixtral", "layer_axis=-1", {}, "layer_axis is 0 or 1"),
    ("llama3", "tied=false", {"lm_head.weight": None}, "there is no lm_head.weight: --set tied=true"),
    ("llama3", "vocab_size_padded=32", {}, "axis 0 of float32[33,10] is already longer than 32"),
    ("llama3", "tied=false", {"model.layers.3.mlp.up_proj.bias": (14,)}, "no rule claims"),
    ("llama3", "tied=false", {"model.layers.3.mlp.up_proj.weight": None}, "no leaf is at place 3"),
    ("llama3", "tied=false", {"model.embed_tokens.weight": None}, "the rule claims nothing: no key matches"),
    ("mixtral", "num_experts=4", {}, "`stack`: no array has the index 3 of 0 to 3"),
    (
        "qwen3_moe",
        "num_experts=11",
        {"model.layers.1.mlp.experts.7.down_proj.weight": None},
        "no leaf is at place 7",
    ),
    ("qwen3", "scan=false", {"model.layers.1.input_layernorm.weight": None}, "layers are missing"),
    ("mixtral", "scan=false", {"model.layers.1.input_layernorm.weight": None}, "layers are missing"),
]


@pytest.mark.parametrize(("family", "given", "edits", "message"), THERE)
def test_mistakes_on_the_way_there(
    family: str, given: str, edits: dict[str, tuple[int, ...] | None], message: str
) -> None:
    d = NARROW[family]
    layout = Layout(scan=given not in ("num_layers=6", "scan=false"))
    shapes = without(hf_shapes(d), *(k for k, v in edits.items() if v is None))
    shapes |= {k: v for k, v in edits.items() if v is not None}
    told = {key: f"float32[{','.join(map(str, shape))}]" for key, shape in shapes.items()}
    with pytest.raises(PlanError) as caught:
        plan_of(recipe_names(d)[0].read_text(), told, overrides=[*params(d, layout, False), given])
    assert message in str(caught.value)


BACK = [
    ("llama3", Layout(), "num_layers=10", "the stack is not num_layers long along layer_axis"),
    ("llama3", Layout(layer_axis=1), "layer_axis=0", "the stack is not num_layers long along layer_axis"),
    ("llama3", Layout(), "layer_axis=2", "layer_axis is 0 or 1"),
    ("gemma2", Layout(), "num_layers=6", "the stack is not half of num_layers long along layer_axis"),
    ("gemma2", Layout(scan=False), "num_layers=6", "layers are missing, or num_layers is not theirs"),
    ("gemma2", Layout(scan=False), "num_layers=5", "num_layers is an even number"),
    *(
        (family, Layout(), "layer_axis=-1", "layer_axis is 0 or 1")
        for family in ("gemma2", "qwen3", "mixtral")
    ),
    ("qwen3", Layout(scan=False), "num_layers=4", "layers are missing, or num_layers is not theirs"),
    ("llama3", Layout(), "num_heads=8", "there are 4 heads of 6, which is not what is known of them"),
    ("llama3", Layout(), "rope=pairs", "table `rope_order` has no entry 'pairs'"),
    ("llama3", Layout(), "vocab_size=34", "slice :34 is out of bounds for axis 0 of length 33"),
    ("qwen3", Layout(), "tied=false", "there is no logits kernel: --set tied=true"),
    ("llama3", Layout(), "tied=true", "no rule claims `params/decoder/logits_dense/kernel`"),
    ("mixtral", Layout(), "family=qwen2", "the model is qwen2: this recipe is for mixtral and qwen3_moe"),
    ("mixtral", Layout(), "num_experts=2", "there are 3 experts, which is not what is known of them"),
    ("mixtral", Layout(), "moe_block=moe_block", "`when` is false for"),
]


@pytest.mark.parametrize(("family", "layout", "given", "message"), BACK)
def test_mistakes_on_the_way_back(family: str, layout: Layout, given: str, message: str) -> None:
    d = NARROW[family]
    with pytest.raises(PlanError) as caught:
        plan_of(
            recipe_names(d)[1].read_text(),
            listed(jax_shapes(d, layout)),
            overrides=[*params(d, layout, True), given],
        )
    assert message in str(caught.value)


@pytest.mark.parametrize("family", ["llama3", "gemma2", "qwen3", "mixtral", "qwen3_moe"])
@pytest.mark.parametrize("back", [False, True])
def test_layers_that_are_numbered_wrongly(family: str, back: bool) -> None:
    """As many layers as there are to be, and one of them is not theirs."""
    d, layout = NARROW[family], Layout(scan=False)
    shapes = jax_shapes(d, layout) if back else hf_shapes(d)
    last = (d.layers // 2 if back and family == "gemma2" else d.layers) - 1
    name = "layers_{}/" if back else "layers.{}."
    moved = {k.replace(name.format(last), name.format(last + 1)): v for k, v in shapes.items()}
    assert len(moved) == len(shapes)
    assert moved != shapes
    with pytest.raises(PlanError) as caught:
        plan_of(recipe_names(d)[back].read_text(), listed(moved), overrides=params(d, layout, back))
    assert "layers are missing, or num_layers is not theirs" in str(caught.value)


OTHER_MODELS = [
    # family, what the config says, what the message says
    *(
        ("llama3", {"model_type": name}, f"the model is {name}, and this recipe is for llama")
        for name in ("gemma", "granite", "helium", "smollm3")
    ),
    ("qwen3", {"model_type": "qwen3_moe"}, "the model is qwen3_moe, and this recipe is for qwen3"),
    ("gemma2", {"model_type": "gemma"}, "the model is gemma, and this recipe is for gemma2"),
    ("mixtral", {"model_type": "phimoe"}, "for Mixtral and Qwen3-MoE, each by its own names"),
    ("mixtral", {"model_type": "qwen3_moe"}, "for Mixtral and Qwen3-MoE, each by its own names"),
    ("qwen3_moe", {"model_type": "mixtral"}, "for Mixtral and Qwen3-MoE, each by its own names"),
    ("llama3", {"hidden_act": "gelu"}, "the activation is not that of Llama"),
    ("gemma2", {"hidden_activation": "gelu"}, "the activation is not that of Gemma 2"),
    ("llama3", {"attention_bias": True}, "the layers have biases"),
    ("qwen3", {"attention_bias": True}, "the layers have biases"),
    ("llama3", {"mlp_bias": True}, "the layers have biases"),
    ("llama3", {"partial_rotary_factor": 0.5}, "only a part of each head is rotated"),
    ("llama3", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "only a part of each head is rotated"),
    ("llama3", {"residual_multiplier": 0.22}, "the model has multipliers"),
    ("llama3", {"no_rope_layers": [1, 0]}, "some layers do without rotary embeddings"),
    ("llama3", {"quantization_config": {"bits": 4}}, "the weights are quantized"),
    ("gemma2", {"tie_word_embeddings": False}, "embeddings are not tied"),
    ("gemma2", {"layer_types": ["full_attention", "sliding_attention"]}, "local first"),
    ("llama3", {"head_dim": 12}, "24 rows are not those of num_heads=4 with the head_dim that is known"),
    ("llama3", {"num_attention_heads": 2}, "an axis of 12 does not split into h=2 two=2 d=6"),
    ("qwen3", {"num_attention_heads": 2, "head_dim": None}, "24 rows are not those of num_heads=2"),
    (
        "llama3",
        {"tie_word_embeddings": False, "num_hidden_layers": 12},
        "no array has the index 11 of 0 to 11",
    ),
]


@pytest.mark.parametrize(
    ("family", "said", "message"), OTHER_MODELS, ids=[f"{f}-{s}"[:60] for f, s, _ in OTHER_MODELS]
)
def test_what_the_config_says_of_another_model_is_refused(
    family: str, said: dict[str, Any], message: str
) -> None:
    d = NARROW[family]
    config = hf_config(d)
    there = recipe_names(d)[0].read_text()
    plan_of(there, listed(hf_shapes(d)), config=config)
    with pytest.raises(PlanError) as caught:
        plan_of(there, listed(hf_shapes(d)), config=config | said)
    assert message in str(caught.value)


def test_another_name_of_the_same_model() -> None:
    d = NARROW["llama3"]
    config = hf_config(d) | {"model_type": "yi"}
    plan = plan_of(
        recipe_names(d)[0].read_text(), listed(hf_shapes(d)), overrides=["model_type=llama"], config=config
    )
    assert shapes_of(plan) == jax_shapes(d, Layout())


CONTRADICTIONS = {
    "llama3": ["num_layers=12", "num_heads=2", "num_kv_heads=1", "head_dim=12", "tied=true"],
    "qwen3": ["num_layers=12", "num_heads=2", "num_kv_heads=1", "head_dim=12", "tied=false"],
    "gemma2": ["num_layers=12", "num_heads=2", "num_kv_heads=1", "head_dim=12", "query_pre_attn_scalar=10"],
    "mixtral": [
        "num_layers=12",
        "num_heads=2",
        "num_kv_heads=1",
        "head_dim=12",
        "tied=true",
        "num_experts=9",
    ],
}


@pytest.mark.parametrize(("family", "given"), [(f, g) for f, all in CONTRADICTIONS.items() for g in all])
@pytest.mark.parametrize("back", [False, True])
def test_what_is_set_against_the_config_is_refused(family: str, given: str, back: bool) -> None:
    """The weights may not tell: 2 heads of 12 are as many rows as 4 of 6."""
    d, layout = NARROW[family], Layout(scan=False)
    shapes = listed(jax_shapes(d, layout) if back else hf_shapes(d))
    config = recorded_config(d, layout)
    plan_of(recipe_names(d)[back].read_text(), shapes, config=config)
    with pytest.raises(PlanError, match="what was set is not what the config"):
        plan_of(recipe_names(d)[back].read_text(), shapes, overrides=[given], config=config)


def test_heads_that_the_weights_do_not_tell_are_in_the_plan() -> None:
    """Without a config, 2 heads of 12 look like 4 of 6: the plan says what it relied on, set or not."""
    d = NARROW["llama3"]
    wrong = ["num_heads=2", "num_kv_heads=1", "num_layers=11"]
    plan = plan_of(recipe_names(d)[0].read_text(), listed(hf_shapes(d)), overrides=wrong)
    assert plan.warnings == ("by default model_type=llama, tied=false: there is no config.json",)
    told = {value.name: str(value.origin) for value in plan.params}
    assert (told["num_heads"], told["num_kv_heads"], told["model_type"]) == ("set", "set", "default")
    d = NARROW["qwen3"]  # the norms of queries have the length of a head
    with pytest.raises(PlanError, match="24 rows are not those of num_heads=2"):
        plan_of(recipe_names(d)[0].read_text(), listed(hf_shapes(d)), overrides=[*wrong[:2], "num_layers=3"])


@pytest.mark.parametrize("family", ["llama3", "qwen3", "mixtral", "qwen3_moe"])
def test_no_lm_head_is_dropped_unless_embeddings_are_said_to_be_tied(family: str) -> None:
    d = replace(NARROW[family], tied=False)
    there = recipe_names(d)[0].read_text()
    given = [text for text in params(d, Layout(), back=False) if not text.startswith("tied")]
    assert "params/decoder/logits_dense/kernel" in shapes_of(
        plan_of(there, listed(hf_shapes(d)), overrides=given)
    )
    plan = plan_of(there, listed(hf_shapes(d)), config=hf_config(d) | {"tie_word_embeddings": True})
    [table] = [step for step in plan.steps if step.leaf.key.text == "params/token_embedder/embedding"]
    assert {read.leaf.key.text for read in reads(table.value)} == {
        "model.embed_tokens.weight",
        "lm_head.weight",
    }
    assert plan.dropped == ()


@pytest.mark.parametrize(
    "missing", ["mlp/wi_0/kernel", "self_attention/out/kernel", "pre_self_attention_layer_norm/scale"]
)
@pytest.mark.parametrize("layout", [Layout(), Layout(scan=False)])
def test_no_kind_of_leaf_may_be_missing_on_the_way_back(missing: str, layout: Layout) -> None:
    d = NARROW["llama3"]
    shapes = {key: shape for key, shape in jax_shapes(d, layout).items() if not key.endswith(missing)}
    with pytest.raises(PlanError, match=r"the rule claims nothing|layers are missing"):
        plan_of(recipe_names(d)[1].read_text(), listed(shapes), config=recorded_config(d, layout))


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize(
    ("family", "given", "edit"),
    [
        ("mixtral", "family=qwen3_moe", ""),
        ("qwen3_moe", "family=mixtral", ""),
        ("qwen3_moe", "family=qwen3_moe", "key_norm"),
        ("qwen3_moe", "family=qwen3_moe", "layers_1/self_attention/query_norm"),
    ],
)
def test_experts_of_the_wrong_family(family: str, given: str, edit: str, scan: bool) -> None:
    d, layout = NARROW[family], Layout(scan=scan)
    shapes = {key: shape for key, shape in jax_shapes(d, layout).items() if not edit or edit not in key}
    if scan and edit.startswith("layers_1"):
        assert shapes == jax_shapes(d, layout)
        return
    with pytest.raises(PlanError, match="norms of queries and keys"):
        plan_of(
            recipe_names(d)[1].read_text(),
            listed(shapes),
            overrides=[*params(d, layout, back=True), given],
        )


def test_norms_of_qwen_are_not_left_out() -> None:
    d = NARROW["qwen3_moe"]
    shapes = without(hf_shapes(d), "model.layers.1.self_attn.k_norm.weight")
    with pytest.raises(PlanError, match="a norm of queries and one of keys in each layer"):
        plan_of(recipe_names(d)[0].read_text(), listed(shapes), config=hf_config(d))


def test_rows_that_are_cut_are_told() -> None:
    d, layout = NARROW["llama3"], Layout(vocab_size_padded=40)
    plan = plan_of(
        recipe_names(d)[1].read_text(),
        listed(jax_shapes(d, layout)),
        overrides=params(d, layout, True),
    )
    assert [warning for warning in sorted(plan.warnings) if "by default" not in warning] == [
        "70 of 400 elements of `params/decoder/logits_dense/kernel` are used by no output: [0:10, 33:40]",
        "70 of 400 elements of `params/token_embedder/embedding` are used by no output: [33:40, 0:10]",
    ]
