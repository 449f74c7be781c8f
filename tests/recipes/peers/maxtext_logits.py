"""Load converted models in MaxText 0.2.5, and store what its own models expect and compute.

Runs where MaxText is installed, from the root of the repository:

    python -m tests.recipes.peers.models_for_maxtext ROOT             (where this package is)
    python -m tests.recipes.peers.maxtext_logits ROOT OUT.npz         (where MaxText is)

OUT.npz gets `CASE/logits`, float32 (batch, length, vocab), and `CASE/shapes`: JSON of the key and shape of
each weight that MaxText's model has, before any checkpoint is read.
"""

# mypy: disable-error-code="import-not-found"

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import maxtext
import numpy as np
from flax import linen
from maxtext.common.checkpointing import load_params_from_path
from maxtext.common.common_types import MODEL_MODE_TRAIN
from maxtext.configs import pyconfig
from maxtext.models import models
from maxtext.utils import maxtext_utils

from tests.recipes.deepseek_layouts import DeepSeek
from tests.recipes.peers.models_for_maxtext import CASES, CHUNK, SIZES, TOKENS, TOP, Case

COMMON: dict[str, Any] = {
    "run_name": "peer",
    "enable_checkpointing": False,
    "skip_jax_distributed_system": True,
    "override_model_config": True,
    "log_config": False,
    "weight_dtype": "float32",
    "dtype": "float32",
    "matmul_precision": "highest",
    "attention": "dot_product",
    "sparse_matmul": False,
    "capacity_factor": -1.0,
    "per_device_batch_size": len(TOKENS),
    "max_target_length": TOKENS.shape[1],
    "max_prefill_predict_length": TOKENS.shape[1] // 2,
}


def narrowed(case: Case) -> dict[str, Any]:
    """What makes MaxText's configuration of a published model one of the small models."""
    d = SIZES[case.model]
    given = {
        "model_name": case.model,
        "scan_layers": case.scan,
        "base_emb_dim": d.embed,
        "base_num_query_heads": d.heads,
        "base_num_decoder_layers": d.layers,
        "vocab_size": d.vocab,
        "num_experts": d.experts,
    }
    if isinstance(d, DeepSeek):
        # Rotary embeddings of YaRN that neither scale positions nor the attention.
        yarn = {"rope_factor": 1, "max_position_embeddings": 64, "original_max_position_embeddings": 64}
        return (
            given
            | yarn
            | {
                "mscale": 1.0,
                "base_num_kv_heads": d.heads,
                "base_mlp_dim": d.mlp,
                "base_moe_mlp_dim": d.expert_mlp,
                "shared_experts": d.shared_mlp // d.expert_mlp,
                "first_num_dense_layers": d.dense,
                "num_experts_per_tok": TOP,
                "q_lora_rank": d.q_rank,
                "kv_lora_rank": d.kv_rank,
                "qk_nope_head_dim": d.nope,
                "qk_rope_head_dim": d.rope,
                "v_head_dim": d.value,
            }
        )
    return given | {
        "base_num_kv_heads": d.kv_heads,
        "head_dim": d.head_dim,
        "base_mlp_dim": d.dense_mlp,
        "base_moe_mlp_dim": d.mlp,
        "chunk_attn_window_size": CHUNK,
        "rope_use_scale": False,
        "use_multimodal": False,
    }


def computed(case: Case, root: Path) -> tuple[np.ndarray, dict[str, list[int]]]:
    """The logits of MaxText's model with the converted weights, and the shapes of its own weights."""
    base = os.path.join(os.path.dirname(maxtext.__file__), "configs", "base.yml")
    config = pyconfig.initialize(["", base], **COMMON, **narrowed(case))
    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
    model = models.transformer_as_linen(config, mesh, quant=None, model_mode=MODEL_MODE_TRAIN)
    boxed = lambda a: isinstance(a, linen.LogicallyPartitioned)  # noqa: E731
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((a.value if boxed(a) else a).shape, jnp.float32, sharding=device),
        maxtext_utils.get_abstract_param(model, config),
        is_leaf=boxed,
    )
    shapes = {
        "/".join(["params", *(step.key for step in path)]): list(a.shape)
        for path, a in jax.tree_util.tree_leaves_with_path(wanted)
    }
    params = load_params_from_path(str(root / case.name), wanted, 8)
    positions = np.broadcast_to(np.arange(TOKENS.shape[1], dtype=np.int32), TOKENS.shape)
    with mesh, linen.logical_axis_rules(config.logical_axis_rules):
        logits = model.apply(
            params, TOKENS.astype(np.int32), positions, np.ones_like(positions), enable_dropout=False
        )
    logits = logits[0] if isinstance(logits, tuple) else logits
    return np.asarray(logits, np.float32)[..., : SIZES[case.model].vocab], shapes


if __name__ == "__main__":
    found = {}
    for case in CASES:
        logits, shapes = computed(case, Path(sys.argv[1]).absolute())
        found |= {f"{case.name}/logits": logits, f"{case.name}/shapes": np.array(json.dumps(shapes))}
    np.savez_compressed(sys.argv[2], **found)
