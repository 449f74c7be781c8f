"""Checkpoints as T5X writes them: a file of flax's MessagePack, and arrays of TensorStore beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.heavy import serialization, traverse_util, ts


def store(path: Path, value: np.ndarray, chunks: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Write an array as T5X does; returns its metadata as T5X puts it into the tree."""
    grid = tuple(max(1, n) for n in (chunks or value.shape))
    metadata = {"compressor": {"id": "gzip"}, "shape": list(value.shape), "chunks": list(grid)}
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{path}/"}, "metadata": metadata}
    stored = ts.open(spec, create=True, dtype=ts.dtype(value.dtype.name)).result()
    stored.write(value).result()
    # T5X has the chunks as a NumPy array.
    return metadata | {"chunks": np.array(grid)}


def spec_of(
    directory: Path, name: str, value: np.ndarray, chunks: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """Write an array beside the tree; returns its spec in the tree."""
    folder = name.replace("/", ".")
    return {
        "driver": "zarr",
        "dtype": value.dtype.name,
        "kvstore": {"driver": "file", "path": f"{folder}/"},
        "metadata": store(directory / folder, value, chunks),
    }


def written(directory: Path, optimizer: Any, version: int = 3) -> Path:
    """The file `checkpoint` of a T5X checkpoint."""
    directory.mkdir(parents=True, exist_ok=True)
    data = serialization.to_bytes({"version": version, "optimizer": optimizer})
    (directory / "checkpoint").write_bytes(data)
    return directory


def save_state(directory: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """A checkpoint with these arrays: those with axes lie beside the tree, numbers in it."""
    directory.mkdir()
    leaves = {k: spec_of(directory, k, v) if v.ndim else v for k, v in arrays.items()}
    return written(directory, traverse_util.unflatten_dict(leaves, sep="/"))
