"""The recipes between Hugging Face's Llama 4 and the layout of JAX decoders.

Planned at full size from the sizes of published models; run at a narrow width against a conversion in NumPy
that is written in `llama4_layouts`, and against the logits of Hugging Face's implementation.
"""

import functools
from collections.abc import Callable
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
from tests.inference.going_back import reasons, there_and_back
from tests.recipes.llama4_layouts import (
    IMAGES,
    MAVERICK,
    NARROW,
    NARROW_SCOUT,
    SCOUT,
    Layout,
    Llama4,
    Shapes,
    hf_arrays,
    hf_config,
    hf_shapes,
    jax_arrays,
    jax_shapes,
    listed,
    params,
    recorded,
)
from tests.recipes.llama4_model import Model, jax_logits
from tests.recipes.running import RECIPES, planned
from tests.recipes.test_layouts import converted
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same

THERE, BACK = "hf-llama4-to-jax", "jax-to-hf-llama4"
BF16 = np.dtype(ml_dtypes.bfloat16)
FULL_WIDTH = 1 << 36
MAXTEXT = Layout("maxtext", vocab_size_padded=48)
LAYOUTS = [Layout(), Layout(scan=False, rope="half"), Layout(layer_axis=1, rope="half"), MAXTEXT]
LAYOUTS += [Layout("maxtext", scan=False, vocab_size_padded=33)]


def shapes_of(plan: Any) -> Shapes:
    assert {step.leaf.spec.dtype for step in plan.steps} == {BF16}
    return {step.leaf.key.text: step.leaf.spec.shape for step in plan.steps}


# --- full size ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "layout"),
    [
        (SCOUT, Layout("maxtext")),
        (MAVERICK, Layout(layer_axis=1, cycle=12)),
        pytest.param(
            SCOUT, Layout(scan=False, rope="half", vocab_size_padded=202240), marks=pytest.mark.slow
        ),
        pytest.param(MAVERICK, Layout("maxtext"), marks=pytest.mark.slow),
        pytest.param(replace(MAVERICK, images=False), Layout(scan=False), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_published_models_with_their_config(d: Llama4, layout: Layout) -> None:
    """Nothing has to be set but what is wanted; and on the way back not even that."""
    config = hf_config(d)
    images = IMAGES if d.images else {}
    given = [f"{k}={str(v).lower()}" for k, v in asdict(layout).items()] + ["vision=drop"]
    plan = planned(THERE, listed(hf_shapes(d) | images), overrides=given, memory=FULL_WIDTH, config=config)
    assert shapes_of(plan) == jax_shapes(d, layout)
    assert {one.leaf.key.text for one in plan.dropped} == set(images)
    assert plan.warnings == ()
    again = planned(BACK, listed(shapes_of(plan)), memory=FULL_WIDTH, config=recorded(config, layout))
    assert shapes_of(again) == hf_shapes(d)
    assert [warning for warning in again.warnings if "are used by no output" not in warning] == []


def test_the_defaults_are_those_of_scout() -> None:
    plan = planned(THERE, listed(hf_shapes(SCOUT)), memory=FULL_WIDTH)
    assert shapes_of(plan) == jax_shapes(SCOUT, Layout())
    assert plan.warnings == (
        "by default model_type=llama4, num_layers=48, num_heads=40, num_kv_heads=8, num_experts=16, "
        "moe_step=1, tied=false: there is no config.json",
    )


# --- narrow, with values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "layout"),
    [
        *((NARROW, layout) for layout in LAYOUTS),
        *(pytest.param(NARROW_SCOUT, layout, marks=pytest.mark.slow) for layout in LAYOUTS),
    ],
    ids=str,
)
def test_values_are_those_of_a_conversion_in_numpy_and_come_back(d: Llama4, layout: Layout) -> None:
    hf = hf_arrays(d, BF16)
    wanted = jax_arrays(d, layout, hf)
    assert {key: array.shape for key, array in wanted.items()} == jax_shapes(d, layout)
    assert_same(converted(RECIPES / f"{THERE}.yaml", hf, params(d, layout, False)), wanted)
    assert_same(converted(RECIPES / f"{BACK}.yaml", wanted, params(d, layout, True)), hf)


@pytest.mark.parametrize("layout", [Layout(), Layout(scan=False, rope="half")], ids=str)
def test_the_inverse_that_is_found_does_what_the_packaged_one_does(layout: Layout) -> None:
    d = replace(NARROW, layers=8)
    hf = hf_arrays(d, BF16)
    text = (RECIPES / f"{THERE}.yaml").read_text()
    found, inversion = there_and_back(text, hf, overrides=params(d, layout, False))
    assert reasons(inversion) == {}
    assert_same(found, hf)


# --- the model ----------------------------------------------------------------------------------------

TOKENS = np.random.default_rng(1).integers(0, 97, (2, 12))
TEXT: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 40,
    "intermediate_size": 24,
    "intermediate_size_mlp": 56,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "num_local_experts": 5,
    "attention_chunk_size": 5,
    "floor_scale": 4,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 28,
    "projector_input_dim": 16,
    "projector_output_dim": 16,
    "vision_output_dim": 16,
}
SIZES = Llama4(4, 1, 4, 2, 10, 40, 24, 56, 5, 97, images=False)
MODELS = {
    "scout": Model(SIZES, qk_norm=True, chunk=5, floor_scale=4, attn_scale=0.1),
    "maverick": Model(
        replace(SIZES, layers=8, moe_step=2, images=True),
        qk_norm=False,
        chunk=5,
        floor_scale=4,
        attn_scale=0.1,
    ),
}


def hf_logits(made: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(made(torch.from_numpy(TOKENS)).logits)


def restored(path: Path) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def made_model(name: str) -> Any:
    """Scout as the text model alone, Maverick as the model with images."""
    m = MODELS[name]
    text = TEXT | {
        "num_hidden_layers": m.d.layers,
        "interleave_moe_layer_step": m.d.moe_step,
        "use_qk_norm": m.qk_norm,
    }
    if not m.d.images:
        return transformers.Llama4ForCausalLM(
            transformers.Llama4TextConfig(**text, attn_implementation="eager")
        )
    config = transformers.Llama4Config(text_config=text, vision_config=VISION, attn_implementation="eager")
    return transformers.Llama4ForConditionalGeneration(config)


Saved = Callable[[str], tuple[Path, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """By name: the directory of a model as Hugging Face's library saves it, and the model."""

    @functools.cache
    def saved_model(name: str) -> tuple[Path, Any]:
        torch.manual_seed(0)
        path, made = tmp_path_factory.mktemp(name) / "hf", made_model(name).eval()
        with torch.no_grad():
            for key, one in made.named_parameters():
                if "norm" in key:  # norms of ones would hide where they went
                    one.uniform_(0.5, 1.5)
                elif "experts" in key and "shared" not in key:
                    one.normal_(std=0.2)
        with quiet():
            made.save_pretrained(path)
        return path, made

    return saved_model


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("scout", Layout()),
        pytest.param("scout", Layout(scan=False, rope="half"), marks=pytest.mark.slow),
        ("maverick", replace(MAXTEXT, vocab_size_padded=128)),
        pytest.param("maverick", Layout(rope="half", layer_axis=1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_logits_are_the_same_and_the_model_comes_back(
    saved: Saved, tmp_path: Path, name: str, layout: Layout
) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved(name)
    given = [f"{k}={str(v).lower()}" for k, v in asdict(layout).items()]
    given += ["vision=drop"] if name == "maverick" else []
    assert applying.apply(f"@{THERE}", source, dst=tmp_path / "jax", set=given).plan.warnings == ()
    wanted = hf_logits(made)
    tree = restored(tmp_path / "jax")["params"]
    assert np.abs(wanted).max() > 1
    assert np.abs(jax_logits(MODELS[name], layout, tree, TOKENS) - wanted).max() <= 1e-4
    applying.apply(f"@{BACK}", tmp_path / "jax", dst=tmp_path / "hf")
    decoder = {
        key: w
        for key, w in load_file(source / "model.safetensors").items()
        if not key.startswith(("vision_model", "multi_modal_projector"))
    }
    assert_same(load_file(tmp_path / "hf/model.safetensors"), decoder)
    applying.apply(f"@{BACK}", tmp_path / "jax", dst=tmp_path / "text", set=["model_type=llama4_text"])
    text = made.config.get_text_config()
    with quiet():
        text.save_pretrained(tmp_path / "text")
        again = transformers.Llama4ForCausalLM.from_pretrained(
            tmp_path / "text", attn_implementation="eager"
        ).eval()
    np.testing.assert_array_equal(hf_logits(again), wanted)
