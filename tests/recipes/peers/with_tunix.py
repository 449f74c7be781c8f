"""What tunix makes of the models, and whether it restores what `convert --to tunix` makes.

    JAX_PLATFORMS=cpu python -m tests.recipes.peers.with_tunix WORK tests/data/peers

in an environment with google-tunix 0.1.7, torch and transformers, after `models` has filled WORK. It writes
`tunix.safetensors`, what tunix's loaders of Hugging Face's files made (`CASE/KEY`, with the keys of a
checkpoint), and `tunix.json`, what was found when its CheckpointManager restored ours, and how far the logits
of its models are from those of transformers.
"""

import dataclasses
import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from flax import nnx
from safetensors.numpy import save_file
from tunix.sft.checkpoint_manager import CheckpointManager

from tests.recipes.peers.models import CASES, Case

LENGTH = 8
TOKENS = np.random.default_rng(1).integers(0, 33, (1, LENGTH))
FAMILIES = {
    "llama3": ("llama3", "params", "Llama3"),
    "qwen2": ("qwen2", "params", "Qwen2"),
    "qwen3": ("qwen3", "params", "Qwen3"),
    "qwen3_moe": ("qwen3", "params", "Qwen3"),
    "gemma2": ("gemma", "params_safetensors", "Gemma"),
}
"""Folder, module of the loader, and class of the model, by family."""


def config_of(case: Case, module: Any) -> Any:
    """The configuration of tunix's model."""
    d = case.decoder
    names = {field.name for field in dataclasses.fields(module.ModelConfig)}
    given: dict[str, Any] = {
        "num_layers": d.layers,
        "vocab_size": d.vocab,
        "num_embed": d.vocab,
        "embed_dim": d.embed,
        "hidden_dim": d.mlp,
        "num_heads": d.heads,
        "head_dim": d.head_dim,
        "num_kv_heads": d.kv_heads,
        "rope_theta": int(case.config.get("rope_parameters", {}).get("rope_theta", 10000)),
        "norm_eps": case.config.get("rms_norm_eps", 1e-6),
        "use_tied_embedding": d.tied,
        "weight_tying": d.tied,
        "num_experts": d.experts or None,
        "num_experts_per_tok": 2 if d.experts else None,
        "dtype": jnp.float32,
        "param_dtype": jnp.float32,
    }
    if d.family == "gemma2":
        local, all_of_it = module.AttentionType.LOCAL_SLIDING, module.AttentionType.GLOBAL
        given |= {
            "final_logit_softcap": 30.0,
            "attn_logits_soft_cap": 50.0,
            "sliding_window_size": 4096,
            "use_post_attn_norm": True,
            "use_post_ffw_norm": True,
            "attention_types": (local, all_of_it) * (d.layers // 2),
        }
    return module.ModelConfig(**{name: value for name, value in given.items() if name in names})


def flat(model: Any) -> dict[str, np.ndarray]:
    """The leaves of a model under the keys that a checkpoint of it has."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(nnx.state(model))
    name = lambda key: str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))  # noqa: E731
    return {"/".join(map(name, path)): np.asarray(leaf) for path, leaf in leaves}


def furthest(place: Path, model: Any) -> float:
    """The largest difference of a logit from those of transformers, as a part of the largest logit.

    tunix's Llama has neither the scaled frequencies of Llama 3.1 nor a base of its config: the other model
    gets the frequencies of tunix's.
    """
    config = transformers.AutoConfig.from_pretrained(place / "hf")
    if config.model_type == "llama":
        config.rope_parameters = {"rope_type": "default", "rope_theta": 1e6}
    made = transformers.AutoModelForCausalLM.from_pretrained(
        place / "hf", config=config, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        wanted = made.eval()(torch.from_numpy(TOKENS)).logits.numpy()
    mask = jnp.tril(jnp.ones((1, LENGTH, LENGTH), bool))
    with jax.default_matmul_precision("highest"):
        found, _ = model(jnp.asarray(TOKENS), jnp.arange(LENGTH)[None], None, mask)
    return float(np.abs(np.asarray(found) - wanted).max() / np.abs(wanted).max())


def main(work: Path, out: Path) -> None:
    made: dict[str, np.ndarray] = {}
    versions = {name: importlib.metadata.version(name) for name in ("google-tunix", "flax", "transformers")}
    report: dict[str, Any] = {"versions": versions}
    for case in CASES:
        if not case.tunix:
            continue
        place, (folder, loader, kind) = work / case.name, FAMILIES[case.decoder.family]
        module = importlib.import_module(f"tunix.models.{folder}.model")
        load = importlib.import_module(f"tunix.models.{folder}.{loader}").create_model_from_safe_tensors
        config = config_of(case, module)
        theirs = flat(load(str(place / "hf"), config, mode="original"))
        made |= {f"{case.name}/{key}": array for key, array in theirs.items()}
        model = getattr(module, kind)(config, rngs=nnx.Rngs(params=0))
        CheckpointManager(str(place / "tunix")).maybe_restore(model)
        ours = flat(model)
        same = [key for key in theirs if theirs[key].tobytes() == ours[key].tobytes()]
        told: dict[str, Any] = {"leaves": len(theirs), "restored": len(ours), "same": len(same)}
        if not case.decoder.experts:  # its layer of experts wants an accelerator
            told["logits"] = furthest(place, model)
        report[case.name] = told
        print(case.name, told, sorted(set(theirs) - set(same)), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    save_file(made, out / "tunix.safetensors")
    (out / "tunix.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
