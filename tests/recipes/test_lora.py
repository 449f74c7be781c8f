"""Adapters merged into their weights: PEFT's `merge_and_unload` is what it has to give."""

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from ckpt_surgery.api import applying
from tests.recipes.running import Run, Save, fails, planned
from tests.support.comparing import assert_same

BF16 = np.dtype(ml_dtypes.bfloat16)


# --- PEFT -----------------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"vocab_size": 31, "bos_token_id": 0, "eos_token_id": 0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}),
    "llama": (
        "LlamaForCausalLM",
        {
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "tie_word_embeddings": False,
        },
    ),
}


@dataclass(frozen=True)
class Merged:
    """A model and an adapter in directories, and what PEFT makes of them."""

    base: Path
    adapter: Path
    wanted: Mapping[str, np.ndarray]


def merged(directory: Path, model: str, **options: Any) -> Merged:
    """Every number is random, those that PEFT begins with zeros too."""
    import peft
    import torch
    import transformers

    torch.manual_seed(0)
    kind, sizes = MODELS[model]
    made_of = getattr(transformers, kind)
    made = made_of(made_of.config_class(**SIZES, **sizes))
    made.save_pretrained(directory / "base")
    settings = peft.LoraConfig(**{"r": 3, "lora_alpha": 5, "init_lora_weights": False, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what its dependencies will remove
        adapted = peft.get_peft_model(made, settings)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "magnitude" in name:
                    parameter.uniform_(0.5, 1.5)
        adapted.save_pretrained(directory / "adapter")
        adapted.merge_and_unload().save_pretrained(directory / "wanted")
    return Merged(
        directory / "base" / "model.safetensors",
        directory / "adapter",
        load_file(directory / "wanted" / "model.safetensors"),
    )


ATTENTION = ["q_proj", "v_proj", "down_proj"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    return merged(tmp_path_factory.mktemp("llama"), "llama", target_modules=ATTENTION)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama", {"target_modules": ATTENTION}),
        ("llama", {"target_modules": ATTENTION, "use_rslora": True}),
        ("llama", {"target_modules": ATTENTION, "rank_pattern": {"down_proj": 2, "0.self_attn.q_proj": 4}}),
        ("llama", {"target_modules": [*ATTENTION, "embed_tokens"]}),
        ("llama", {"target_modules": ATTENTION, "use_dora": True}),
        ("llama", {"target_modules": ATTENTION, "modules_to_save": ["lm_head"]}),
        (
            "gpt2",
            {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True},
        ),  # c_proj is square
        ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "use_dora": True}),
        ("gpt2", {"target_modules": ["c_proj", "wte"], "fan_in_fan_out": True, "use_rslora": True}),
    ],
    ids=str,
)
def test_the_same_as_peft(model: str, options: Mapping[str, Any], tmp_path: Path) -> None:
    given = merged(tmp_path, model, **options)
    applying.apply("@lora-merge", given.base, given.adapter, dst=tmp_path / "new.safetensors")
    found = load_file(tmp_path / "new.safetensors")
    assert found.keys() == given.wanted.keys()
    before = load_file(given.base)
    assert any(not np.array_equal(found[key], before[key]) for key in found)
    for key, wanted in given.wanted.items():
        np.testing.assert_allclose(found[key], wanted, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"peft_type": "LOHA"}, "the adapter is of the type LOHA, which is not LoRA"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4 changed the base weights"),
        ({"layer_replication": [[0, 1], [0, 1]]}, "layer_replication"),
        ({"use_qalora": True}, "use_qalora"),
        ({"lora_bias": True}, "lora_bias"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"target_parameters": ["experts"]}, "target_parameters"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"alpha_pattern": {"v_proj": 7}}, "another alpha (alpha_pattern)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_the_config_says_is_refused_by_name(
    llama: Merged, changes: Mapping[str, Any], says: str, tmp_path: Path
) -> None:
    about = shutil.copytree(llama.adapter, tmp_path / "adapter") / "adapter_config.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | changes))
    fails(says, lambda: applying.plan("@lora-merge", llama.base, about.parent))


def test_a_param_wins_over_the_config(llama: Merged, tmp_path: Path) -> None:
    applying.apply("@lora-merge", llama.base, llama.adapter, dst=tmp_path / "a.safetensors", set=["alpha=10"])
    key = "model.layers.0.self_attn.q_proj.weight"
    before, once = load_file(llama.base)[key], llama.wanted[key]
    np.testing.assert_allclose(
        load_file(tmp_path / "a.safetensors")[key], before + 2 * (once - before), rtol=1e-5, atol=1e-6
    )


# --- files without a config -----------------------------------------------------------------------


def whole_numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Small integers as float32: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def test_a_peft_adapter_is_merged(save: Save, run: Run) -> None:
    q, k = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj"
    base = {
        f"{q}.weight": whole_numbers((6, 8), 0).astype(BF16),
        f"{k}.weight": whole_numbers((4, 8), 1),
        f"{k}.bias": whole_numbers((4,), 2),
        "lm_head.weight": whole_numbers((5, 8), 3),
        "model.norm.weight": whole_numbers((8,), 4),
    }
    prefix = "base_model.model."
    adapter = {
        f"{prefix}{q}.lora_A.weight": whole_numbers((2, 8), 5),
        f"{prefix}{q}.lora_B.weight": whole_numbers((6, 2), 6),
        f"{prefix}{k}.bias": whole_numbers((4,), 7),
        f"{prefix}lm_head.weight": whole_numbers((5, 8), 8),
    }
    delta = adapter[f"{prefix}{q}.lora_B.weight"] @ adapter[f"{prefix}{q}.lora_A.weight"]
    wanted = base | {
        f"{q}.weight": (base[f"{q}.weight"].astype(np.float32) + delta * np.float32(8 / 2)).astype(BF16),
        f"{k}.bias": adapter[f"{prefix}{k}.bias"],
        "lm_head.weight": adapter[f"{prefix}lm_head.weight"],
    }
    assert_same(run("@lora-merge", save("base", base), save("adapter", adapter), set=["alpha=8"]), wanted)


def test_a_flax_adapter_is_merged_with_the_factor_of_rslora(save: Save, run: Run) -> None:
    base = {"dense": {"kernel": whole_numbers((8, 6), 0), "bias": whole_numbers((6,), 1)}}
    adapter = {"dense": {"lora": {"lora_a": whole_numbers((8, 4), 2), "lora_b": whole_numbers((4, 6), 3)}}}
    options = ["alpha=3", "rank_stabilized=true", "a=lora/lora_a", "b=lora/lora_b"]
    found = run("@lora-merge", save("base", base), save("adapter", adapter), set=options)
    lora = adapter["dense"]["lora"]
    wanted = base["dense"]["kernel"] + lora["lora_a"] @ lora["lora_b"] * np.float32(3 / 4**0.5)
    assert_same(found, {"dense/kernel": wanted, "dense/bias": base["dense"]["bias"]})


A, B = "base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"


Q = {"q.weight": "float32[6,8]"}
OTHER_PRODUCT = "the weight and the product of its factors have different shapes"


@pytest.mark.each
@pytest.mark.parametrize(
    ("base", "lora", "says"),
    [
        (Q, {A: "float32[2,8]"}, f"`lora` has no leaf '{B}'; did you mean `{A}`? (at `q.weight`)"),
        (Q, {B: "float32[6,2]"}, f"no rule claims `{B}` (1 in all)"),
        (Q, {A: "float32[2,8]", B: "float32[6,3]"}, "(at `q.weight`)"),
        (
            Q,
            {A: "float32[2,8]", B: "float32[6,2]", "base_model.model.v.lora_A.weight": "float32[2,8]"},
            "no rule claims `base_model.model.v.lora_A.weight` (1 in all)",
        ),
        ({"q.weight": "float32[1,8]"}, {A: "float32[2,8]", B: "float32[6,2]"}, OTHER_PRODUCT),
        (Q, {A: "float32[2,1]", B: "float32[6,2]"}, OTHER_PRODUCT),
        (
            {"d/kernel": "float32[1,4]"},
            {"d/lora_a": "float32[6,2]", "d/lora_b": "float32[2,4]"},
            OTHER_PRODUCT,
        ),
        (
            {"q.weight": "float32[4,4]"},
            {"base_model.model.q.weight": "float32[3,3]"},
            "the tensor has another shape in the adapter (at `q.weight`)",
        ),
    ],
)
def test_what_merging_refuses(base: Mapping[str, str], lora: Mapping[str, str], says: str) -> None:
    fails(says, lambda: planned("lora-merge", base, lora, overrides=["alpha=8"]))


def test_an_adapter_without_its_alpha() -> None:
    fails(
        "say which alpha the adapter has: --set alpha=N",
        lambda: planned("lora-merge", Q, {A: "float32[2,8]", B: "float32[6,2]"}),
    )
