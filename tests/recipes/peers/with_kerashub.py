"""What KerasHub makes of a Mixtral, and what its model computes with what `convert --to jax` makes.

    KERAS_BACKEND=jax JAX_PLATFORMS=cpu python -m tests.recipes.peers.with_kerashub WORK tests/data/peers

in an environment with keras-hub 0.32.0, jax, torch and transformers, after `models` has filled WORK. KerasHub
reads the files that transformers saves. The module writes `kerashub-mixtral.npz`, the variables that
KerasHub's converter filled (`weights/PATH`), and the outputs of the model of transformers (`transformers/`)
and of a backbone of KerasHub that got the leaves of ours (`kerashub/`): hidden states and logits of `tokens`.
`kerashub.json` says how many variables are the same and how far the outputs are from each other.
"""

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

import keras_hub
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

from tests.recipes.peers.kerashub_names import kerashub_names
from tests.recipes.peers.models import OF_KERASHUB

Arrays = dict[str, np.ndarray]
TOKENS = np.random.default_rng(1).integers(0, OF_KERASHUB.decoder.vocab, (2, 12))


def of_transformers(hf: Path, saved: Path) -> Arrays:
    """The outputs of its model, which it also saves as `saved`: with the names and bits of `hf`."""
    made = transformers.AutoModelForCausalLM.from_pretrained(
        hf, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()  # the other implementation of experts wants widths that are multiples of 4
    made.save_pretrained(saved)
    before, after = (load_file(path / "model.safetensors") for path in (hf, saved))
    assert {key: array.tobytes() for key, array in before.items()} == {
        key: array.tobytes() for key, array in after.items()
    }
    with torch.no_grad():
        found = made(torch.from_numpy(TOKENS), output_hidden_states=True)
    return {"hidden": found.hidden_states[-1].numpy(), "logits": found.logits.numpy()}


def variables(backbone: Any) -> dict[str, Any]:
    """The variables by their paths, without the number that Keras gives to each layer without a name."""
    return {re.sub(r"(sparse_moe_block)_\d+", r"\1", one.path): one for one in backbone.weights}


def computed(saved: Path, ours: Arrays) -> Arrays:
    """The outputs of a backbone whose variables are the leaves of ours."""
    backbone = keras_hub.models.MixtralBackbone.from_preset(str(saved), load_weights=False)
    into = variables(backbone)
    assert sorted(into) == sorted(ours)
    for path, variable in into.items():
        assert variable.shape == ours[path].shape, path
        variable.assign(ours[path])
    hidden = backbone({"token_ids": TOKENS, "padding_mask": np.ones_like(TOKENS)})
    logits = backbone.token_embedding(hidden, reverse=True)
    return {"hidden": np.asarray(hidden), "logits": np.asarray(logits)}


def furthest(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a part of the largest value."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def main(work: Path, out: Path) -> None:
    place = work / OF_KERASHUB.name
    wanted = of_transformers(place / "hf", place / "transformers")
    backbone = keras_hub.models.MixtralBackbone.from_preset(str(place / "transformers"))
    theirs = {path: np.asarray(one) for path, one in variables(backbone).items()}
    names = kerashub_names(OF_KERASHUB.decoder.layers)
    ours = {names[key]: array for key, array in load_file(place / "jax.safetensors").items()}
    found = computed(place / "transformers", ours)
    same = [
        path
        for path in theirs.keys() & ours.keys()
        if theirs[path].shape == ours[path].shape and theirs[path].tobytes() == ours[path].tobytes()
    ]
    far = {name: furthest(found[name], wanted[name]) for name in found}
    versions = {name: importlib.metadata.version(name) for name in ("keras-hub", "keras", "transformers")}
    told = {"versions": versions, "leaves": len(theirs), "loaded": len(ours), "same": len(same), **far}
    print(told, flush=True)
    arrays = {f"weights/{path}": array for path, array in theirs.items()} | {"tokens": TOKENS}
    arrays |= {f"transformers/{name}": array for name, array in wanted.items()}
    arrays |= {f"kerashub/{name}": array for name, array in found.items()}
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "kerashub-mixtral.npz", allow_pickle=False, **arrays)
    (out / "kerashub.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
