"""Small models that MaxText loads: what `maxtext_logits.py` computes, and what tests compare with it.

`python -m tests.recipes.peers.models_for_maxtext ROOT` writes each of them as Hugging Face has it, and
converted with layout=maxtext, below ROOT.
"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.recipes import deepseek_layouts, llama4_layouts
from tests.recipes.leaves import hf_arrays

TOKENS = np.random.default_rng(1).integers(0, 33, (2, 12))
CHUNK, TOP = 5, 2
"""Tokens that see each other in Llama 4's layers with rotary embeddings; experts of a token in DeepSeek."""
SIZES: dict[str, deepseek_layouts.DeepSeek | llama4_layouts.Llama4] = {
    "deepseek3-671b": replace(deepseek_layouts.NARROW, layers=5, experts=4, shared_mlp=6),
    "deepseek2-16b": replace(deepseek_layouts.NARROW_V2, dense=1, shared_mlp=6),
    "llama4-17b-16e": replace(llama4_layouts.NARROW_SCOUT, dense_mlp=7),
    "llama4-17b-128e": llama4_layouts.NARROW,
}
"""By MaxText's name of the model whose configuration is narrowed."""


@dataclass(frozen=True)
class Case:
    """A model in one of MaxText's two layouts."""

    model: str
    scan: bool

    @property
    def name(self) -> str:
        return f"{self.model}-{'scanned' if self.scan else 'unscanned'}"


CASES = [Case(model, scan) for model in SIZES for scan in (True, False)]


def layouts(model: str) -> Any:
    """The module that knows the model's names."""
    return deepseek_layouts if model.startswith("deepseek") else llama4_layouts


def weights(model: str) -> dict[str, np.ndarray]:
    """Hugging Face's side, in float32: matrices that keep activations moderate, norms about 1."""
    arrays = hf_arrays(SIZES[model], np.dtype(np.float32))
    scales = {key: 1 + a / 4 if "norm" in key else a / 2 for key, a in arrays.items()}
    return {key: scale.astype(np.float32) for key, scale in scales.items()}


def write(root: Path) -> None:
    """Each model and its conversions, below `root`."""
    # MaxText has an environment of its own, which reads this module too, and need not have these.
    from safetensors.numpy import save_file

    from ckpt_surgery.api import applying

    for model, d in SIZES.items():
        (root / model).mkdir(parents=True)
        save_file(weights(model), root / model / "model.safetensors")
        (root / model / "config.json").write_text(json.dumps(layouts(model).hf_config(d)))
    for case in CASES:
        recipe = "@hf-deepseek-v3-to-jax" if case.model.startswith("deepseek") else "@hf-llama4-to-jax"
        given = ["layout=maxtext", f"scan={str(case.scan).lower()}"]
        applying.apply(recipe, root / case.model, dst=root / case.name, set=given)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
