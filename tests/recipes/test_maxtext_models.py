"""DeepSeek and Llama 4 converted are the same models: MaxText computes of them what transformers computes.

What MaxText 0.2.5 expected and computed, when it loaded models that these recipes had converted, was stored
by `peers/maxtext_logits.py`, which runs MaxText itself.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.recipes.deepseek_layouts import DeepSeek
from tests.recipes.families import FAMILIES, converted
from tests.recipes.leaves import Arrays, jax_shapes
from tests.recipes.peers.models_for_maxtext import CASES, CHUNK, SIZES, TOKENS, TOP, Case, layouts, weights
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same

STORED = Path(__file__).parents[1] / "data" / "peers" / "maxtext-deepseek-llama4.npz"
LOADED = {
    "deepseek3-671b-scanned": "226605dcb27ec068",
    "deepseek3-671b-unscanned": "51377513fe2caa1f",
    "deepseek2-16b-scanned": "d269ccde8b681759",
    "deepseek2-16b-unscanned": "9f8854bdbe665cd1",
    "llama4-17b-16e-scanned": "c11828ef9422dced",
    "llama4-17b-16e-unscanned": "526703d5da90fc32",
    "llama4-17b-128e-scanned": "b48711197c6e0e13",
    "llama4-17b-128e-unscanned": "bc40591dcc0a71a7",
}
"""Digests of the weights that MaxText loaded, by keys."""


def digest(arrays: Arrays) -> str:
    state = hashlib.sha256()
    for key in sorted(arrays):
        state.update(f"{key} {arrays[key].dtype} {arrays[key].shape} ".encode())
        state.update(arrays[key].tobytes())
    return state.hexdigest()[:16]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_recipe_makes_the_weights_that_maxtext_loaded(case: Case) -> None:
    d, hf = SIZES[case.model], weights(case.model)
    f = FAMILIES["deepseek_v3" if isinstance(d, DeepSeek) else "llama4"]
    layout = layouts(case.model).Layout("maxtext", scan=case.scan)
    made = converted(f.recipes[0], hf, f.params(layout, False, d))
    assert digest(made) == LOADED[case.name]
    assert_same(converted(f.recipes[1], made, f.params(layout, True, d)), hf)
    with np.load(STORED) as stored:
        shapes = json.loads(str(stored[f"{case.name}/shapes"]))
    assert {key: tuple(shape) for key, shape in shapes.items()} == jax_shapes(d, layout)


def config_of(model: str) -> Any:
    """The text model alone, with MaxText's way to choose experts."""
    import transformers

    d = SIZES[model]
    # The library wants a width that the heads divide, and computes without.
    sizes = {"num_attention_heads": d.heads, "hidden_size": 4 * d.heads, "vocab_size": d.vocab}
    sizes |= {"num_hidden_layers": d.layers}
    if isinstance(d, DeepSeek):
        v3 = d.family == "deepseek_v3"
        kind = transformers.DeepseekV3Config if v3 else transformers.DeepseekV2Config
        config = kind(
            **sizes,
            **({"n_group": 1, "topk_group": 1} if v3 else {"topk_method": "greedy"}),
            first_k_dense_replace=d.dense,
            intermediate_size=d.mlp,
            moe_intermediate_size=d.expert_mlp,
            n_shared_experts=d.shared_mlp // d.expert_mlp,
            n_routed_experts=d.experts,
            num_experts_per_tok=TOP,
            num_key_value_heads=d.heads,
            q_lora_rank=d.q_rank or None,
            kv_lora_rank=d.kv_rank,
            qk_nope_head_dim=d.nope,
            qk_rope_head_dim=d.rope,
            v_head_dim=d.value,
        )
    else:
        config = transformers.Llama4TextConfig(
            **sizes,
            intermediate_size=d.mlp,
            intermediate_size_mlp=d.dense_mlp,
            num_key_value_heads=d.kv_heads,
            head_dim=d.head_dim,
            num_local_experts=d.experts,
            interleave_moe_layer_step=d.moe_step,
            use_qk_norm=d.moe_step == 1,
            attention_chunk_size=CHUNK,
            pad_token_id=0,
        )
    config.hidden_size = d.embed
    return config


@pytest.mark.slow("runs models of transformers")
@pytest.mark.parametrize("model", SIZES)
def test_maxtext_computed_the_logits_of_transformers(model: str, tmp_path: Path) -> None:
    import torch
    import transformers

    config = config_of(model)
    texts = {key.removeprefix("language_model."): array for key, array in weights(model).items()}
    save_file(texts, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    with quiet(), torch.no_grad():
        kind = transformers.AutoModelForCausalLM
        plain: dict[str, Any] = {"attn_implementation": "eager", "experts_implementation": "eager"}
        made = kind.from_pretrained(tmp_path, config=config, dtype=torch.float64, **plain).eval()
        logits = made(torch.from_numpy(TOKENS)).logits.numpy()
    with np.load(STORED) as stored:
        for case in (case for case in CASES if case.model == model):
            theirs = stored[f"{case.name}/logits"]
            assert np.abs(theirs).max() > 1
            assert np.abs(logits - theirs).max() <= 1e-4
