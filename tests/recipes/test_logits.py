"""Converted weights are the same model: the logits of Hugging Face's implementation and of one in JAX.

Tiny models with random weights, float32, saved by Hugging Face's library with the config beside them.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ckpt_surgery.api import applying
from tests.recipes.decoder_models import TOKENS, Model, Rotation, jax_logits
from tests.recipes.gpt_oss_layout import GptOss, hf_arrays, hf_config, unpacked
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same
from tests.support.heavy import ocp
from tests.support.slow import slow

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
EAGER: dict[str, Any] = {"attn_implementation": "eager"}
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3": ("Llama", {"tie_word_embeddings": False}),
    "mistral": ("Mistral", {"tie_word_embeddings": False}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "gemma2": ("Gemma2", {"query_pre_attn_scalar": 10, "sliding_window": 5}),
    "mixtral": ("Mixtral", {"num_local_experts": 3, "sliding_window": None}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24}),
}
GEMMA3: dict[str, Any] = SIZES | {
    "hidden_size": 36,  # its root is 6, which bfloat16 has too
    "intermediate_size": 56,
    "num_hidden_layers": 8,
    "head_dim": 10,
    "query_pre_attn_scalar": 7,
    "sliding_window": 5,
    "rope_theta": 700.0,
    "rope_local_base_freq": 90.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 28,
    "patch_size": 14,
}
OSS = GptOss(layers=4, heads=4, kv_heads=2, head_dim=10, embed=36, mlp=44, vocab=97, experts=5)
OF_OSS: dict[str, Any] = {
    "num_experts_per_tok": 3,
    "sliding_window": 5,
    "swiglu_limit": 1.5,  # clips what a model of this size computes, where the published 7.0 would not
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 20.0,
        "factor": 4.0,
        "beta_fast": 3.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
    "initializer_range": 0.2,
    "max_position_embeddings": 256,
}
RECIPES = {
    "mistral": "llama3",
    "mixtral": "moe",
    "qwen3_moe": "moe",
    "gemma3 images": "gemma3",
    "gpt_oss": "gpt-oss",
}
"""Names of recipes that are not those of the family."""


def oss_config(d: GptOss) -> Any:
    import transformers

    config = {k: v for k, v in hf_config(d).items() if k != "model_type"}
    return transformers.GptOssConfig(**config, **OF_OSS)


def untrained(family: str) -> Any:
    import transformers

    if family == "gpt_oss":
        return transformers.GptOssForCausalLM(oss_config(OSS))
    if family.startswith("gemma3"):
        text = transformers.Gemma3TextConfig(**GEMMA3)
        if family == "gemma3":
            return transformers.Gemma3ForCausalLM(text)
        config = transformers.Gemma3Config(
            text_config=text.to_dict(), vision_config=VISION, mm_tokens_per_image=4
        )
        return transformers.Gemma3ForConditionalGeneration(config)
    name, more = CLASSES[family]
    sizes = {k: v for k, v in SIZES.items() if k != "head_dim" or family != "qwen2"}
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    return getattr(transformers, f"{name}ForCausalLM")(config)


def model(family: str) -> Any:
    """With every weight random: norms of ones would hide where they went."""
    import torch

    torch.manual_seed(0)
    made = untrained(family).eval()
    made.set_attn_implementation("eager")
    around = 0.0 if family.startswith(("gemma2", "gemma3")) else 1.0
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(-0.5, 0.5).add_(around)
            elif "bias" in name or "sinks" in name:
                parameter.uniform_(-0.5, 0.5)
    return made


Saved = Callable[[str], tuple[Path, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """By family: the directory of a model as Hugging Face's library saves it, and the model."""

    @cache
    def saved_model(family: str) -> tuple[Path, Any]:
        path, made = tmp_path_factory.mktemp(family.replace(" ", "-")) / "hf", model(family)
        with quiet():
            made.save_pretrained(path)
        return path, made

    return saved_model


def hf_logits(made: Any) -> np.ndarray:
    """Of a model of transformers: (2, 12, vocab), float32."""
    import torch

    with torch.no_grad():
        return np.asarray(made(torch.from_numpy(TOKENS)).logits)


def hf_weights(path: Path) -> dict[str, np.ndarray]:
    """As they lie in files: a tied weight once, experts one by one."""
    return load_file(path / "model.safetensors")


def restored(path: Path) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


GEMMA = Model(
    gelu=True, cap_scores=50.0, cap_logits=30.0, window=5, query_scale=10**-0.5, embedding_scale=8.0
)
OF_GEMMA3 = Model(
    gelu=True,
    window=5,
    query_scale=7**-0.5,
    embedding_scale=6.0,
    local=Rotation(90.0),
    everywhere=Rotation(700.0, 8.0),
)
YARN = Rotation(20.0, 4.0, yarn=True)
OSS_MODEL = Model(query_scale=10**-0.5, eps=1e-5, window=5, top=3, limit=1.5, local=YARN, everywhere=YARN)
UNSCANNED = ("scan=false", "rope=interleaved")
CASES = [
    ("llama3", (), Model()),
    ("llama3", UNSCANNED, Model(interleaved=True)),
    ("llama3", ("rope=interleaved", "fold_query_scale=true"), Model(interleaved=True, query_scale=1.0)),
    ("mistral", (), Model()),
    ("qwen2", (), Model()),
    ("qwen2", UNSCANNED, Model(interleaved=True)),
    ("qwen3", (), Model()),
    ("qwen3", ("rope=interleaved",), Model(interleaved=True)),
    ("gemma2", (), GEMMA),
    (
        *("gemma2", ("fold_query_scale=true", "scale_embedding=true")),
        replace(GEMMA, query_scale=1.0, embedding_scale=1.0, logits_scale=1 / 8),
    ),
    ("gemma3", (), OF_GEMMA3),
    slow(("gemma3", UNSCANNED, replace(OF_GEMMA3, interleaved=True))),
    slow(
        (
            *("gemma3 images", ("vision=drop", "layout=maxtext")),
            replace(OF_GEMMA3, axis=1, embedding_scale=1.0, logits_scale=1 / 6),
        )
    ),
    ("gpt_oss", (), OSS_MODEL),
    slow(("gpt_oss", UNSCANNED, replace(OSS_MODEL, interleaved=True))),
    slow(("gpt_oss", ("layout=maxtext",), replace(OSS_MODEL, axis=1))),
]


def recipes(family: str) -> tuple[str, str]:
    name = RECIPES.get(family, family)
    return f"@hf-{name}-to-jax", f"@jax-to-hf-{name}"


@pytest.mark.parametrize(("family", "given", "jax_model"), CASES)
def test_logits_are_the_same(
    saved: Saved, tmp_path: Path, family: str, given: tuple[str, ...], jax_model: Model
) -> None:
    source, made = saved(family)
    applying.apply(recipes(family)[0], source, dst=tmp_path / "jax", set=given)
    wanted = hf_logits(made)
    found = jax_logits(jax_model, restored(tmp_path / "jax")["params"])
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() <= 1e-4


FAMILIES = ["llama3", "mistral", "qwen2", "qwen3", "gemma2", "mixtral", "qwen3_moe", "gemma3", "gpt_oss"]
LAYOUTS: list[Any] = [(), slow((UNSCANNED,)), slow((("layer_axis=1", "vocab_size_padded=128"),))]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("given", LAYOUTS, ids=" ".join)
def test_there_and_back(saved: Saved, tmp_path: Path, family: str, given: tuple[str, ...]) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved(family)
    exact = [*given, "norm_plus_one=false"] if family.startswith("gemma") else [*given]
    there = applying.apply(recipes(family)[0], source, dst=tmp_path / "jax", set=exact)
    assert there.plan.warnings == ()
    back = applying.apply(recipes(family)[1], tmp_path / "jax", dst=tmp_path / "hf")
    assert [warning for warning in back.plan.warnings if "are used by no output" not in warning] == []
    assert_same(hf_weights(tmp_path / "hf"), hf_weights(source))
    (tmp_path / "hf" / "config.json").write_bytes((source / "config.json").read_bytes())
    with quiet():
        again = type(made).from_pretrained(tmp_path / "hf", **EAGER).eval()
    np.testing.assert_array_equal(hf_logits(again), hf_logits(made))


def test_the_way_back_finds_the_config_after_other_conversions(saved: Saved, tmp_path: Path) -> None:
    source, _ = saved("llama3")
    applying.apply("@hf-llama3-to-jax", source, dst=tmp_path / "jax", set=["rope=interleaved"])
    applying.apply("@cast", tmp_path / "jax", dst=tmp_path / "wide", set=["dtype=float64"])
    applying.convert(tmp_path / "wide", tmp_path / "copy.npz")
    applying.apply("@cast", tmp_path / "copy.npz", dst=tmp_path / "cast", set=["dtype=float32"])
    plan = applying.apply("@jax-to-hf-llama3", tmp_path / "cast", dst=tmp_path / "hf").plan
    assert plan.warnings == ()
    assert_same(hf_weights(tmp_path / "hf"), hf_weights(source))


def test_safetensors_unless_told_otherwise(saved: Saved, tmp_path: Path) -> None:
    applying.apply("@hf-llama3-to-jax", saved("llama3")[0], dst=tmp_path / "jax")
    applying.apply("@jax-to-hf-llama3", tmp_path / "jax", dst=tmp_path / "hf")
    beside = ["config.json", "generation_config.json", "model.safetensors"]
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == beside
    with safe_open(tmp_path / "hf" / "model.safetensors", "np") as file:
        assert file.metadata()["format"] == "pt"
    applying.apply("@jax-to-hf-llama3", tmp_path / "jax", dst=tmp_path / "orbax", format="orbax")
    assert sorted(restored(tmp_path / "orbax")) == sorted(hf_weights(tmp_path / "hf"))


@pytest.mark.slow("runs models of transformers")
def test_a_model_that_sees_images_comes_back_as_a_text_model_that_the_library_loads(
    saved: Saved, tmp_path: Path
) -> None:
    import transformers

    source, made = saved("gemma3 images")
    given = ["vision=drop", "norm_plus_one=false"]
    applying.apply("@hf-gemma3-to-jax", source, dst=tmp_path / "jax", set=given)
    applying.apply("@jax-to-hf-gemma3", tmp_path / "jax", dst=tmp_path / "hf", set=["model_type=gemma3_text"])
    made.config.get_text_config().save_pretrained(tmp_path / "hf")
    with quiet():
        again = transformers.Gemma3ForCausalLM.from_pretrained(tmp_path / "hf", **EAGER)
    np.testing.assert_array_equal(hf_logits(again.eval()), hf_logits(made))


# The values have a quick test, in test_layouts.py; here the library loads them.
@pytest.mark.slow("runs models of transformers")
def test_a_model_in_mxfp4_comes_back_as_one_that_the_library_loads(tmp_path: Path) -> None:
    """Its config is that of the source without `quantization_config`."""
    import transformers

    d = replace(OSS, layers=2, embed=32, mlp=64)
    hf, config = hf_arrays(d, np.dtype(np.float32), quantized=True), oss_config(d).to_dict()
    (tmp_path / "hf").mkdir()
    save_file(hf, tmp_path / "hf" / "model.safetensors")
    told = config | {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(told))
    applying.apply("@hf-gpt-oss-to-jax", tmp_path / "hf", dst=tmp_path / "jax", set=["dtype=float32"])
    back = applying.apply("@jax-to-hf-gpt-oss", tmp_path / "jax", dst=tmp_path / "back")
    (warning,) = back.plan.warnings
    assert warning.startswith("`quantization_config` in config.json does not hold any more")
    (tmp_path / "back" / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    with quiet():
        made = transformers.GptOssForCausalLM.from_pretrained(tmp_path / "back", **EAGER)
    found = {name: np.asarray(parameter.detach()) for name, parameter in made.named_parameters()}
    assert_same(found, unpacked(hf, np.dtype(np.float32)))
