"""Trees as training programs leave them: MaxText's and tunix', saved by Orbax's CheckpointManager."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from tests.recipes import llama4_layouts
from tests.recipes.families import FAMILIES
from tests.recipes.leaves import Arrays, hf_arrays
from tests.support.checkpoints import quiet
from tests.support.heavy import jax, ocp, optax
from tests.support.trees import nested

F32 = np.dtype(np.float32)
Tree = dict[str, Any]


def save_model(path: Path, kind: str) -> Arrays:
    """A tiny model of Hugging Face with its config.json; returns its arrays."""
    f = FAMILIES[{"llama": "llama3", "mistral": "llama3"}.get(kind, kind.removesuffix("_text"))]
    d = llama4_layouts.NARROW_SCOUT if kind == "llama4_text" else f.small if kind == "gpt_oss" else f.narrow
    arrays, config = hf_arrays(d, F32), f.config(d, model_type=kind)
    path.mkdir(parents=True)
    save_file(arrays, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config))
    return arrays


def weights(hf: Path, to: str, **params: Any) -> Arrays:
    """The model in a layout, keys flat and without MaxText's root."""
    made = hf.with_suffix(".npz")
    ckpt_surgery.convert(hf, made, to=to, set=params, overwrite=True)
    with np.load(made) as file:
        return {_without_root(key): file[key] for key in file.files}


def back(source: Path, **options: Any) -> Arrays:
    """What `convert --to hf` makes of a model."""
    out = source.with_name("back.safetensors")
    ckpt_surgery.convert(source, out, to="hf", overwrite=True, **options)
    return load_file(out)


def _without_root(key: str) -> str:
    return key.removeprefix("params/params/").removeprefix("params/MoEBiasVar/")


def flattened(tree: Mapping[str, Any], prefix: str = "") -> Arrays:
    """Arrays by key; lists and empty nodes, which other formats lack, are left out."""
    found: Arrays = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{name}/")
        elif isinstance(value, np.ndarray | np.generic):
            found[f"{prefix}{name}"] = np.asarray(value)
    return found


def boxed(flat: Mapping[str, Any]) -> Arrays:
    """Keys as those of an nnx.State whose variables are saved with their name: each ends in `value`."""
    return {key if key.endswith("/value") else f"{key}/value": value for key, value in flat.items()}


def numbered(flat: Mapping[str, Any]) -> Arrays:
    """Layers one by one as NNX names them: `layers/0` in place of `layers_0`."""
    return {key.replace("layers_", "layers/"): value for key, value in flat.items()}


RNGS = {"rngs": {"dropout": {"key": np.zeros(2, np.uint32), "count": np.uint32(3)}}}


def _optimizer(params: Tree) -> Any:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)).init(params)


def pretrained(flat: Arrays, **more: Any) -> dict[str, Tree]:
    """MaxText's pre-training since June 2026."""
    biases = {key: array for key, array in flat.items() if key.endswith("/gate/bias") and "moe_layers" in key}
    params = {"params": nested({key: array for key, array in flat.items() if key not in biases})}
    state = {"params": params, "opt_state": _optimizer(params), "step": np.int32(7)}
    aux = {"model": nested({**biases, "decoder/dropout": RNGS, "decoder/final": RNGS})}
    return {"items": {**state, "nnx_aux": aux, **more}}


def one_root(flat: Arrays) -> dict[str, Tree]:
    return {"items": {"params": nested(flat)}}


def tuned(flat: Arrays) -> dict[str, Tree]:
    """Fine-tuning by MaxText or tunix: two items, and random numbers' states among the weights."""
    model = nested(boxed(flat))
    model.setdefault("decoder", {})["to_nnx__rngs"] = RNGS["rngs"]
    return {"model_params": model, "optimizer_state": {"step": {"value": np.uint32(7)}, "opt_state": model}}


def bare(flat: Arrays) -> dict[str, Tree]:
    """Fine-tuning with a version of Flax that saves variables without `value`."""
    return {"model_params": nested(flat), "optimizer_state": {"step": np.uint32(7)}}


def reinforced(flat: Arrays) -> dict[str, Tree]:
    found = tuned(flat)
    return {**found, "model_params": {"base": found["model_params"]}}


def save_run(
    run: Path, items: Mapping[str, Tree], step: int = 7, metadata: Mapping[str, Any] | None = None
) -> None:
    """A step of a CheckpointManager's directory."""
    args = {name: ocp.args.PyTreeSave(jax.tree.map(np.asarray, tree)) for name, tree in items.items()}
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    with quiet(), ocp.CheckpointManager(run.absolute(), options=options, item_names=tuple(items)) as manager:
        manager.save(step, args=ocp.args.Composite(**args), custom_metadata=dict(metadata or {}) or None)


TREES: Mapping[str, Callable[[Arrays], dict[str, Tree]]] = {
    "pre-training": pretrained,
    "one root": one_root,
    "fine-tuning": tuned,
    "fine-tuning, bare": bare,
    "reinforcement learning": reinforced,
}
