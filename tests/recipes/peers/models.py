"""Tiny models that other projects convert too, so that results can be compared.

    python -m tests.recipes.peers.models WORK

saves them in the directory WORK, and beside each what `convert --to` makes of it: a checkpoint of MaxText, of
tunix or, of the one for KerasHub, of the layout jax.
The other modules are run after it, each in an environment with the project that its name has.
"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from tests.recipes.decoder_layouts import NARROW, Decoder, hf_config
from tests.recipes.leaves import Arrays, hf_arrays

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class Case:
    """A model, and how it is converted."""

    name: str
    decoder: Decoder
    maxtext: str
    """What MaxText calls a model of this kind; empty: its script is not run."""
    scan: bool
    dtype: np.dtype
    tunix: bool = False
    """Whether tunix has the kind."""

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        d = self.decoder
        config = hf_config(d) | {"hidden_size": d.embed, "intermediate_size": d.mlp}
        if d.family == "llama3":
            config |= {"rope_parameters": LLAMA3, "rms_norm_eps": 1e-5}
        if d.family == "gemma2":
            config |= {"query_pre_attn_scalar": d.head_dim, "sliding_window": 4096}
        if d.family == "mixtral":
            config |= {"rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
        if d.family == "qwen3_moe":
            config |= {"moe_intermediate_size": d.mlp, "num_experts_per_tok": 2, "norm_topk_prob": True}
        if d.family.startswith("qwen"):
            theta = 1e7 if d.experts else 1e6
            config |= {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": theta}}
        return config


def _small(family: str, layers: int = 2) -> Decoder:
    experts = 3 if NARROW[family].experts else 0
    return replace(NARROW[family], layers=layers, embed=12, experts=experts, tied=family == "gemma2")


CASES = (
    Case("llama", _small("llama3"), "llama3.1-8b", True, F32, tunix=True),
    Case("llama one by one", _small("llama3"), "llama3.1-8b", False, BF16),
    Case("qwen2", replace(_small("qwen2"), head_dim=4, embed=16), "qwen2.5-7b", True, F32, tunix=True),
    Case("qwen2 one by one", replace(_small("qwen2"), head_dim=4, embed=16), "qwen2.5-7b", False, BF16),
    Case("qwen3", _small("qwen3"), "qwen3-8b", True, F32, tunix=True),
    Case("qwen3 one by one", _small("qwen3"), "qwen3-8b", False, BF16),
    Case("qwen3_moe", _small("qwen3_moe"), "qwen3-30b-a3b", True, F32, tunix=True),
    Case("qwen3_moe one by one", _small("qwen3_moe"), "qwen3-30b-a3b", False, BF16),
    Case("gemma2", replace(_small("gemma2", 4), embed=16), "gemma2-2b", True, F32, tunix=True),
    Case("gemma2 one by one", _small("gemma2", 4), "gemma2-2b", False, BF16),
    Case("mixtral one by one", _small("mixtral"), "mixtral-8x7b", False, F32),
    Case("mixtral one by one, bfloat16", _small("mixtral"), "mixtral-8x7b", False, BF16),
)
"""MaxText 0.2.5 fails on a Mixtral whose layers are scanned."""

OF_KERASHUB = Case("mixtral of KerasHub", replace(_small("mixtral"), embed=24), "", False, F32)
"""KerasHub's Mixtral has no width of heads of its own: all of them together are as wide as the embedding."""


def arrays(case: Case) -> Arrays:
    return hf_arrays(case.decoder, case.dtype)


def save(case: Case, path: Path) -> None:
    """A directory as Hugging Face has it."""
    path.mkdir(parents=True)
    save_file(arrays(case), path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(case.config))


def main(work: Path) -> None:
    from ckpt_surgery import convert

    for case in CASES:
        place = work / case.name
        save(case, place / "hf")
        convert(place / "hf", place / "maxtext", to="maxtext", set={"scan": case.scan})
        if case.tunix:
            convert(place / "hf", place / "tunix", to="tunix", dst_step=0, dst_item="model_params")
    place = work / OF_KERASHUB.name
    save(OF_KERASHUB, place / "hf")
    convert(place / "hf", place / "jax.safetensors", to="jax", set={"scan": OF_KERASHUB.scan})


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
