"""A small model, as a checkpoint of one file."""

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

ARRAYS: Mapping[str, np.ndarray] = {
    "a/kernel": np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32),
    "a/bias": np.arange(4, dtype=np.int32),
    "b": np.random.default_rng(1).standard_normal((7,)).astype(np.float32).astype(ml_dtypes.bfloat16),
}
METADATA = {"run": "a17"}


def save_model(directory: Path) -> Path:
    """Write `ARRAYS` with `METADATA` as a safetensors file in a new directory; the file."""
    directory.mkdir()
    save_file(dict(ARRAYS), directory / "model.safetensors", METADATA)
    return directory / "model.safetensors"
