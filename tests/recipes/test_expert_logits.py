"""DeepSeek and Llama 4 converted are the same models: the logits of Hugging Face's library and of NumPy.

Tiny models with random weights, float32, saved by Hugging Face's library with the config beside them.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ckpt_surgery.api import applying
from tests.recipes import deepseek_layouts as deepseek
from tests.recipes import deepseek_model, llama4_model
from tests.recipes import llama4_layouts as llama4
from tests.recipes.families import FAMILIES
from tests.recipes.leaves import said
from tests.recipes.logits import TOKENS, Saved, hf_logits, restored, saved_models
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same
from tests.support.slow import slow

COMMON: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 40,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
}
DEEPSEEK: dict[str, Any] = COMMON | {
    "intermediate_size": 56,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 2,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 22,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "attn_implementation": "eager",
}
V3 = {"q_lora_rank": 18, "first_k_dense_replace": 2, "n_group": 4, "topk_group": 2}
V2 = {
    "q_lora_rank": None,
    "first_k_dense_replace": 1,
    "topk_method": "greedy",
    "routed_scaling_factor": 1.5,
}
LLAMA4: dict[str, Any] = COMMON | {
    "intermediate_size": 24,
    "intermediate_size_mlp": 56,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "num_local_experts": 5,
    "attention_chunk_size": 5,
    "floor_scale": 4,
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
OF_DEEPSEEK = deepseek.DeepSeek("deepseek_v3", 4, 2, 4, 14, 8, 10, 18, 22, 40, 56, 24, 48, 12, 97)
OF_LLAMA = llama4.Llama4(4, 1, 4, 2, 10, 40, 24, 56, 5, 97, images=False)
V3_MODEL = deepseek_model.Model(OF_DEEPSEEK, "", 3, groups=4, top_groups=2, routed_scale=2.5, normalized=True)
MODELS: dict[str, Any] = {
    "deepseek_v3": V3_MODEL,
    "deepseek_v2": deepseek_model.Model(replace(OF_DEEPSEEK, dense=1), "", top=3, routed_scale=1.5),
    "scout": llama4_model.Model(OF_LLAMA, qk_norm=True, chunk=5, floor_scale=4, attn_scale=0.1),
    "maverick": llama4_model.Model(
        replace(OF_LLAMA, layers=8, moe_step=2, images=True), False, 5, floor_scale=4, attn_scale=0.1
    ),
}


def made_model(name: str) -> Any:
    """Scout as the text model alone, Maverick as the model with images."""
    import transformers

    if name == "deepseek_v3":
        return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**DEEPSEEK, **V3))
    if name == "deepseek_v2":
        return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**DEEPSEEK, **V2))
    m, eager = MODELS[name], {"attn_implementation": "eager"}
    text = LLAMA4 | {
        "num_hidden_layers": m.d.layers,
        "interleave_moe_layer_step": m.d.moe_step,
        "use_qk_norm": m.qk_norm,
    }
    if not m.d.images:
        return transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**text, **eager))
    config = transformers.Llama4Config(text_config=text, vision_config=VISION, **eager)
    return transformers.Llama4ForConditionalGeneration(config)


def model(name: str) -> Any:
    """With every weight random: norms of ones would hide where they went."""
    import torch

    torch.manual_seed(0)
    made = made_model(name).eval()
    with torch.no_grad():
        for key, one in [*made.named_parameters(), *made.named_buffers()]:
            if "norm" in key:
                one.uniform_(0.5, 1.5)
            elif "e_score_correction_bias" in key:
                one.uniform_(-0.3, 0.3)
            elif "experts" in key and "shared" not in key and name in ("scout", "maverick"):
                one.normal_(std=0.2)
    return made


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return saved_models(tmp_path_factory.mktemp, model)


def logits_of(name: str, layout: Any, tree: Any) -> np.ndarray:
    model = MODELS[name]
    if name.startswith("deepseek"):
        return deepseek_model.jax_logits(replace(model, rope=layout.rope), layout, tree, TOKENS)
    return llama4_model.jax_logits(model, layout, tree, TOKENS)


@pytest.mark.slow("runs models of transformers")
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("deepseek_v3", deepseek.Layout()),
        slow(("deepseek_v3", deepseek.Layout(scan=False, rope="half"))),
        slow(("deepseek_v3", deepseek.Layout("maxtext", vocab_size_padded=128))),
        ("deepseek_v2", deepseek.Layout("maxtext")),
        ("scout", llama4.Layout()),
        slow(("scout", llama4.Layout(scan=False, rope="half"))),
        ("maverick", llama4.Layout("maxtext", vocab_size_padded=128)),
        slow(("maverick", llama4.Layout(rope="half", layer_axis=1))),
    ],
    ids=str,
)
def test_logits_are_the_same_and_the_model_comes_back(
    saved: Saved, tmp_path: Path, name: str, layout: Any
) -> None:
    """Without a word of sizes, nor on the way back of how the weights were laid out."""
    source, made = saved(name)
    there, back = FAMILIES["deepseek_v3" if name.startswith("deepseek") else "llama4"].recipes
    given = [*said(asdict(layout)), *(["vision=drop"] if name == "maverick" else [])]
    assert applying.apply(f"@{there}", source, dst=tmp_path / "jax", set=given).plan.warnings == ()
    wanted = hf_logits(made)
    tree = restored(tmp_path / "jax")["params"]
    assert np.abs(wanted).max() > 1
    assert np.abs(logits_of(name, layout, tree) - wanted).max() <= 1e-4
    applying.apply(f"@{back}", tmp_path / "jax", dst=tmp_path / "hf")
    decoder = {
        key: w
        for key, w in load_file(source / "model.safetensors").items()
        if not key.startswith(("vision_model", "multi_modal_projector"))
    }
    assert_same(load_file(tmp_path / "hf/model.safetensors"), decoder)
    as_text = ["model_type=llama4_text"] if name in ("scout", "maverick") else []
    applying.apply(f"@{back}", tmp_path / "jax", dst=tmp_path / "text", set=as_text)
    kind: Any = type(made)
    if name == "maverick":
        import transformers

        kind = transformers.Llama4ForCausalLM
    with quiet():
        made.config.get_text_config().save_pretrained(tmp_path / "text")
        again = kind.from_pretrained(tmp_path / "text", attn_implementation="eager").eval()
    np.testing.assert_array_equal(hf_logits(again), wanted)
