"""What MaxText makes of the models, and whether it loads what `convert --to maxtext` makes.

    JAX_PLATFORMS=cpu python -m tests.recipes.peers.with_maxtext WORK tests/data/peers [CASE...]

in an environment with maxtext 0.2.5, jax, torch and transformers, after `models` has filled WORK. It writes
`maxtext.safetensors`, what MaxText's `to_maxtext` made (`CASE/KEY`; it leaves norms of a Gemma 2 of
bfloat16 in float32), and `maxtext.json`, what was found when
MaxText loaded ours, and how far its logits are from those of transformers.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import torch
import transformers
from maxtext.checkpoint_conversion import to_maxtext
from maxtext.common import checkpointing
from maxtext.common.common_types import MODEL_MODE_TRAIN
from maxtext.configs import pyconfig
from maxtext.layers import quantizations
from maxtext.models import models
from maxtext.utils import maxtext_utils
from safetensors.numpy import save_file

from tests.recipes.peers.models import CASES, F32, Case

LENGTH = 8
TOKENS = np.random.default_rng(1).integers(0, 33, (1, LENGTH))


def arguments(case: Case, out: Path) -> list[str]:
    """The command line of MaxText for the sizes of a case."""
    d = case.decoder
    layers = d.layers // 2 if d.family == "gemma2" else d.layers
    given = {
        "model_name": case.maxtext,
        "override_model_config": True,
        "base_emb_dim": d.embed,
        "base_num_query_heads": d.heads,
        "base_num_kv_heads": d.kv_heads,
        "base_mlp_dim": d.mlp,
        "base_num_decoder_layers": layers,
        "head_dim": d.head_dim,
        "vocab_size": d.vocab,
        "scan_layers": case.scan,
        "base_output_directory": out,
        "run_name": "x",
        "hardware": "cpu",
        "skip_jax_distributed_system": True,
        "weight_dtype": case.dtype.name,
        "dtype": "float32",
        "attention": "dot_product",
        "max_target_length": LENGTH,
        "per_device_batch_size": 1,
        "matmul_precision": "highest",
    }
    if d.experts:
        given |= {
            "base_moe_mlp_dim": d.mlp,
            "num_experts": d.experts,
            "num_experts_per_tok": 2,
            "megablox": False,
            "sparse_matmul": False,
        }
    return [
        "to_maxtext.py",
        *(
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in given.items()
        ),
    ]


def flat(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    name = lambda key: str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))  # noqa: E731
    return {"/".join(map(name, path)): leaf for path, leaf in leaves}


def theirs(case: Case, place: Path) -> dict[str, np.ndarray]:
    """What MaxText's own script makes."""
    config = transformers.AutoConfig.from_pretrained(place / "hf")
    to_maxtext.HF_MODEL_CONFIGS[case.maxtext] = config
    to_maxtext.main(
        arguments(case, place / "theirs"),
        lazy_load_tensors=False,
        hf_model_path=str(place / "hf"),
        save_dtype=case.dtype.name,
        simulated_cpu_devices_count=1,
    )
    tree = ocp.PyTreeCheckpointer().restore(place / "theirs" / "0" / "items")
    return {key: np.asarray(leaf) for key, leaf in flat(tree["params"]).items()}


def loaded(case: Case, place: Path) -> tuple[Any, Any, Any]:
    """MaxText's model, and the params that it loads from ours."""
    config = pyconfig.initialize(arguments(case, place / "unused"))
    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
    quant = quantizations.configure_quantization(config)
    model = models.transformer_as_linen(config, mesh, quant=quant, model_mode=MODEL_MODE_TRAIN)
    abstract = maxtext_utils.get_abstract_param(model, config)
    boxed = lambda leaf: hasattr(leaf, "unbox")  # noqa: E731
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    want = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(
            (leaf.value if boxed(leaf) else leaf).shape, case.dtype, sharding=here
        ),
        abstract,
        is_leaf=boxed,
    )
    return model, mesh, checkpointing.load_params_from_path(str(place / "maxtext"), want, 8)


def furthest(case: Case, place: Path, model: Any, mesh: Any, params: Any) -> float:
    """The largest difference of a logit from those of transformers, as a part of the largest logit."""
    made = transformers.AutoModelForCausalLM.from_pretrained(
        place / "hf", dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    with torch.no_grad():
        wanted = made.eval()(torch.from_numpy(TOKENS)).logits.numpy()
    with mesh:
        found = model.apply(
            params,
            TOKENS.astype(np.int32),
            np.arange(LENGTH, dtype=np.int32)[None],
            decoder_segment_ids=np.ones((1, LENGTH), np.int32),
            enable_dropout=False,
            rngs={"params": jax.random.PRNGKey(0), "dropout": jax.random.PRNGKey(0)},
        )
    found = np.asarray(found, np.float32)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def main(work: Path, out: Path, only: list[str]) -> None:
    made: dict[str, np.ndarray] = {}
    report: dict[str, Any] = {
        "versions": {n: importlib.metadata.version(n) for n in ("maxtext", "jax", "transformers")}
    }
    for case in CASES:
        if only and case.name not in only:
            continue
        place = work / case.name
        own = theirs(case, place)
        made |= {f"{case.name}/{key}": array for key, array in own.items()}
        model, mesh, params = loaded(case, place)
        ours = {key: np.asarray(leaf) for key, leaf in flat(params).items()}
        same = [key for key in own if own[key].astype(case.dtype).tobytes() == ours[key].tobytes()]
        told: dict[str, Any] = {"leaves": len(own), "loaded": len(ours), "same": len(same)}
        if case.dtype == F32:
            told["logits"] = furthest(case, place, model, mesh, params)
        report[case.name] = told
        print(case.name, told, sorted(set(own) - set(same)), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    save_file(made, out / "maxtext.safetensors")
    (out / "maxtext.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:])
