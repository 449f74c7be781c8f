"""The small models of tests/data/merging as directories, and merges of them."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

from ckpt_surgery.language.yaml.writing import yaml_text

DATA = Path(__file__).parent.parent / "data" / "merging"
Arrays = dict[str, np.ndarray]


def arrays(kind: str, name: str) -> Arrays:
    """The arrays of a model (`models`) or of mergekit's merge (`outputs`)."""
    with np.load(DATA / kind / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored.files}


def save_model(place: Path, tensors: Arrays, **config: Any) -> Path:
    """A directory as Hugging Face saves a model."""
    place.mkdir(parents=True)
    save_file(tensors, place / "model.safetensors")
    layers = 1 + max((int(key.split(".")[2]) for key in tensors if ".layers." in key), default=-1)
    described = {"model_type": "llama", "num_hidden_layers": layers, "dtype": "float32", **config}
    (place / "config.json").write_text(json.dumps(described))
    (place / "tokenizer.json").write_text(json.dumps({"of": place.name}))
    return place


def save_config(place: Path, config: dict[str, Any]) -> Path:
    """A configuration as a file."""
    place.write_text(yaml_text(config))
    return place


def float32(tensors: Arrays) -> Arrays:
    """The arrays of a checkpoint in float32."""
    return {key: value.astype(np.float32) for key, value in tensors.items()}


def loaded(place: Path) -> Arrays:
    """The arrays of a result."""
    return load_file(place / "model.safetensors")


def bfloat16(tensors: Arrays) -> Arrays:
    return {key: value.astype(ml_dtypes.bfloat16) for key, value in tensors.items()}
