"""What tests of logits share: the tokens, and both sides as they lie in files."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.support.checkpoints import quiet
from tests.support.heavy import ocp

TOKENS = np.random.default_rng(1).integers(0, 97, (2, 12))


def hf_logits(made: Any) -> np.ndarray:
    """Of a model of transformers: (2, 12, vocab), float32."""
    import torch

    with torch.no_grad():
        return np.asarray(made(torch.from_numpy(TOKENS)).logits)


def hf_weights(path: Path) -> dict[str, np.ndarray]:
    """As they lie in files: a tied weight once, experts one by one."""
    return load_file(path / "model.safetensors")


def restored(path: Path) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


Saved = Callable[[str], tuple[Path, Any]]


def saved_models(folder: Callable[[str], Path], make: Callable[[str], Any]) -> Saved:
    """By name: the directory of a model as Hugging Face's library saves it, and the model."""

    @cache
    def saved_model(name: str) -> tuple[Path, Any]:
        path, made = folder(name.replace(" ", "-")) / "hf", make(name)
        with quiet():
            made.save_pretrained(path)
        return path, made

    return saved_model
