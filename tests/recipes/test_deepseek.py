"""The recipes between Hugging Face's DeepSeek-V3 and the layout of JAX decoders.

Planned at full width from the sizes of published models; run at a narrow width against a conversion in NumPy
that is written in `deepseek_layouts`, and against the logits of Hugging Face's implementation.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from ckpt_surgery.api import applying
from tests.inference.cases import deepseek as listed_elsewhere
from tests.inference.going_back import reasons, there_and_back
from tests.recipes.deepseek_layouts import (
    FP8,
    KIMI_K2,
    NARROW,
    NARROW_V2,
    V2_LITE,
    V3,
    Arrays,
    DeepSeek,
    Layout,
    Shapes,
    as_float8,
    dequantized,
    further_layer,
    hf_arrays,
    hf_config,
    hf_shapes,
    jax_arrays,
    jax_shapes,
    listed,
    params,
    recorded,
    scales,
)
from tests.recipes.deepseek_model import Model, jax_logits
from tests.recipes.running import RECIPES, planned
from tests.recipes.test_layouts import converted
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same

THERE, BACK = "hf-deepseek-v3-to-jax", "jax-to-hf-deepseek-v3"
BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
FULL_WIDTH = 1 << 36
MAXTEXT = Layout("maxtext", vocab_size_padded=48)
LAYOUTS = [Layout(scan=False, rope="half"), MAXTEXT]
MORE_LAYOUTS = [
    Layout(),
    Layout(layer_axis=1, rope="half"),
    Layout("maxtext", scan=False, vocab_size_padded=33),
]


def shapes_of(plan: Any) -> Shapes:
    assert {step.leaf.spec.dtype for step in plan.steps} == {BF16}
    return {step.leaf.key.text: step.leaf.spec.shape for step in plan.steps}


# --- full width ---------------------------------------------------------------------------------------


def test_the_names_of_deepseek_v3_are_those_that_other_tests_have() -> None:
    assert hf_shapes(V3) == listed_elsewhere.hugging_face()
    assert len(hf_shapes(V3)) == 45_395


def check_full_width(d: DeepSeek, layout: Layout, quantized: bool) -> None:
    """With a config nothing has to be set but what is wanted; and on the way back not even that."""
    config = hf_config(d) | ({"quantization_config": FP8} if quantized else {})
    shapes = hf_shapes(d)
    if quantized:
        shapes |= further_layer(d)
        shapes |= scales(shapes)
    given = [f"{k}={str(v).lower()}" for k, v in asdict(layout).items()]
    plan = planned(THERE, listed(shapes, quantized), overrides=given, memory=FULL_WIDTH, config=config)
    assert shapes_of(plan) == jax_shapes(d, layout)
    assert plan.warnings == ()
    # Scales are not among them: what they scale depends on them.
    assert {one.leaf.key.text for one in plan.dropped} == {
        key for key in shapes if key.startswith(f"model.layers.{d.layers}.")
    }
    again = planned(BACK, listed(shapes_of(plan)), memory=FULL_WIDTH, config=recorded(config, layout))
    assert shapes_of(again) == hf_shapes(d)
    assert [warning for warning in again.warnings if "are used by no output" not in warning] == []


@pytest.mark.parametrize(
    ("d", "layout", "quantized"),
    [
        (replace(V3, layers=13, experts=5), Layout("maxtext"), True),
        (replace(V2_LITE, layers=12, experts=6), Layout(rope="half"), False),
    ],
)
def test_full_width_of_fewer_layers_and_experts(d: DeepSeek, layout: Layout, quantized: bool) -> None:
    check_full_width(d, layout, quantized)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "layout", "quantized"),
    [
        (V3, Layout("maxtext"), True),
        (V3, Layout(scan=False, vocab_size_padded=131072), False),
        (replace(KIMI_K2, layers=12), Layout("maxtext"), True),
        (V2_LITE, Layout(layer_axis=1), False),
    ],
)
def test_published_models(d: DeepSeek, layout: Layout, quantized: bool) -> None:
    check_full_width(d, layout, quantized)


def test_defaults_that_were_relied_on_are_told() -> None:
    d = replace(V3, layers=5, experts=2)
    given = ["num_layers=5", "num_experts=2"]
    plan = planned(THERE, listed(hf_shapes(d)), overrides=given, memory=FULL_WIDTH)
    assert shapes_of(plan) == jax_shapes(d, Layout())
    assert plan.warnings == (
        "by default model_type=deepseek_v3, first_dense=3, num_heads=128, qk_rope_head_dim=64, tied=false: "
        "there is no config.json",
    )


# --- narrow, with values ------------------------------------------------------------------------------


def there(d: DeepSeek, layout: Layout, hf: Mapping[str, np.ndarray], *more: str) -> Arrays:
    return converted(RECIPES / f"{THERE}.yaml", hf, [*params(d, layout, back=False), *more])


def back(d: DeepSeek, layout: Layout, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return converted(RECIPES / f"{BACK}.yaml", arrays, params(d, layout, back=True))


@pytest.mark.parametrize(
    ("d", "layout"),
    [
        *((NARROW, layout) for layout in LAYOUTS),
        *(pytest.param(NARROW, layout, marks=pytest.mark.slow) for layout in MORE_LAYOUTS),
        *((NARROW_V2, layout) for layout in MORE_LAYOUTS),
    ],
    ids=str,
)
def test_values_are_those_of_a_conversion_in_numpy_and_come_back(d: DeepSeek, layout: Layout) -> None:
    hf = hf_arrays(d, BF16)
    wanted = jax_arrays(d, layout, hf)
    assert {key: array.shape for key, array in wanted.items()} == jax_shapes(d, layout)
    assert_same(there(d, layout, hf), wanted)
    assert_same(back(d, layout, wanted), hf)


@pytest.mark.parametrize("layout", [Layout(), Layout("maxtext", scan=False)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_float8_weights_are_multiplied_by_the_scales_of_their_blocks(layout: Layout, dtype: np.dtype) -> None:
    """Matrices of more than one block each way, the last of them cut; and a layer that goes."""
    d = replace(NARROW, layers=3, experts=2, embed=130, mlp=257, q_rank=140)
    further = {key: np.ones(shape, F32) for key, shape in further_layer(d).items()}
    quantized = as_float8(hf_arrays(d, F32) | further)
    hf = {key: w for key, w in dequantized(quantized, dtype).items() if key not in further}
    assert hf["model.layers.0.mlp.gate_proj.weight"].dtype == dtype
    assert quantized["model.layers.0.mlp.down_proj.weight_scale_inv"].shape == (2, 3)
    found = there(d, layout, quantized, f"dtype={dtype}")
    assert_same(found, jax_arrays(d, layout, hf))
    assert_same(back(d, layout, found), hf)


@pytest.mark.parametrize("layout", [Layout(), Layout(scan=False, rope="half")], ids=str)
def test_the_inverse_that_is_found_does_what_the_packaged_one_does(layout: Layout) -> None:
    d = replace(NARROW, layers=4, experts=3)
    hf = hf_arrays(d, BF16)
    text = (RECIPES / f"{THERE}.yaml").read_text()
    found, inversion = there_and_back(text, hf, overrides=params(d, layout, False))
    assert reasons(inversion) == {}
    assert_same(found, hf)


# --- the model ----------------------------------------------------------------------------------------

TOKENS = np.random.default_rng(1).integers(0, 97, (2, 12))
COMMON: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 40,
    "intermediate_size": 56,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 2,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 22,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
SIZES = DeepSeek("deepseek_v3", 4, 2, 4, 14, 8, 10, 18, 22, 40, 56, 24, 48, 12, 97)
MODELS: dict[str, tuple[Callable[[], Any], Model]] = {
    "deepseek_v3": (
        lambda: transformers.DeepseekV3ForCausalLM(
            transformers.DeepseekV3Config(
                **COMMON, q_lora_rank=18, first_k_dense_replace=2, n_group=4, topk_group=2
            )
        ),
        Model(SIZES, "", top=3, groups=4, top_groups=2, routed_scale=2.5, normalized=True),
    ),
    "deepseek_v2": (
        lambda: transformers.DeepseekV2ForCausalLM(
            transformers.DeepseekV2Config(
                **COMMON,
                q_lora_rank=None,
                first_k_dense_replace=1,
                topk_method="greedy",
                routed_scaling_factor=1.5,
            )
        ),
        Model(replace(SIZES, dense=1), "", top=3, routed_scale=1.5),
    ),
}


def restored(path: Path) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def hf_logits(made: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(made(torch.from_numpy(TOKENS)).logits)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """By model_type: the directory of a model as Hugging Face's library saves it, and the model."""

    @functools.cache
    def saved_model(family: str) -> tuple[Path, Any]:
        torch.manual_seed(0)
        path, made = tmp_path_factory.mktemp(family) / "hf", MODELS[family][0]().eval()
        with torch.no_grad():
            for name, one in [*made.named_parameters(), *made.named_buffers()]:
                if "norm" in name:  # norms of ones would hide where they went
                    one.uniform_(0.5, 1.5)
                elif "e_score_correction_bias" in name:
                    one.uniform_(-0.3, 0.3)
        with quiet():
            made.save_pretrained(path)
        return path, made

    return saved_model


Saved = Callable[[str], tuple[Path, Any]]


@pytest.mark.parametrize(
    ("family", "layout"),
    [
        ("deepseek_v3", Layout()),
        pytest.param("deepseek_v3", Layout(scan=False, rope="half"), marks=pytest.mark.slow),
        pytest.param("deepseek_v3", replace(MAXTEXT, vocab_size_padded=128), marks=pytest.mark.slow),
        ("deepseek_v2", Layout("maxtext")),
    ],
    ids=str,
)
def test_logits_are_the_same_and_the_model_comes_back(
    saved: Saved, tmp_path: Path, family: str, layout: Layout
) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved(family)
    given = [f"{k}={str(v).lower()}" for k, v in asdict(layout).items()]
    assert applying.apply(f"@{THERE}", source, dst=tmp_path / "jax", set=given).plan.warnings == ()
    model = replace(MODELS[family][1], rope=layout.rope)
    wanted = hf_logits(made)
    tree = restored(tmp_path / "jax")["params"]
    assert np.abs(wanted).max() > 1
    assert np.abs(jax_logits(model, layout, tree, TOKENS) - wanted).max() <= 1e-4
    applying.apply(f"@{BACK}", tmp_path / "jax", dst=tmp_path / "hf")
    assert_same(load_file(tmp_path / "hf/model.safetensors"), load_file(source / "model.safetensors"))
    (tmp_path / "hf/config.json").write_bytes((source / "config.json").read_bytes())
    with quiet():
        again = type(made).from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    np.testing.assert_array_equal(hf_logits(again), wanted)
