"""Every format as its own library writes and reads it."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

from tests.formats.gguf.files import PLAIN
from tests.formats.gguf.files import save as save_gguf
from tests.formats.tensorflow.bundles import Piece, save_pieces
from tests.support.checkpoints import random, restored
from tests.support.hdf5_files import load_hdf5, save_hdf5
from tests.support.heavy import ocp, serialization, zarr
from tests.support.trees import flattened, nested

Arrays = Mapping[str, np.ndarray]

ARRAYS: Arrays = {
    "decoder/layers_0/mlp/kernel": random((33, 20)),
    "decoder/layers_0/scale": np.arange(20, dtype=np.float16),
    "decoder/layers_1/mlp/kernel": random((33, 20), 1),
    "decoder/norm.bias": random((5, 3, 2), 2).astype(np.float64),
    "ids": np.arange(-4, 4, dtype=np.int64),
    "mask": np.array([[True, False, True]]),
    "bytes": np.arange(200, dtype=np.uint8),
}
BF16 = {"embedding": random((64, 8), 3).astype(ml_dtypes.bfloat16)}


# --- the formats' own libraries ----------------------------------------------------------------------


def save_orbax(arrays: Arrays, path: Path) -> Path:
    ocp.PyTreeCheckpointer().save(path, nested(arrays))
    return path


def save_safetensors(arrays: Arrays, path: Path) -> Path:
    save_file(dict(arrays), path)
    return path


def save_flax(arrays: Arrays, path: Path) -> Path:
    path.write_bytes(serialization.msgpack_serialize(nested(arrays)))
    return path


def save_t5x(arrays: Arrays, path: Path) -> Path:
    path.mkdir()
    return save_flax({f"optimizer/{k}": v for k, v in arrays.items()} | {"version": 3}, path / "checkpoint")


def save_npz(arrays: Arrays, path: Path) -> Path:
    with path.open("wb") as file:
        np.savez(file, **dict(arrays))
    return path


def save_npz_compressed(arrays: Arrays, path: Path) -> Path:
    with path.open("wb") as file:
        np.savez_compressed(file, **dict(arrays))
    return path


def save_npy(arrays: Arrays, path: Path) -> Path:
    for key, value in arrays.items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        np.save(path / f"{key}.npy", value)
    return path


def save_zarr(arrays: Arrays, path: Path, version: int = 3) -> Path:
    group = zarr.create_group(path, zarr_format=version)
    for key, value in arrays.items():
        group.create_array(key, data=value, chunks=tuple(max(1, n // 2) for n in value.shape))
    return path


def tensors(arrays: Arrays) -> dict[str, Any]:
    """A tree of tensors."""
    import torch

    def tensor(value: np.ndarray) -> torch.Tensor:
        if value.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(value.copy())

    tree: dict[str, Any] = nested({key: tensor(value) for key, value in arrays.items()})
    return tree


def save_torch(arrays: Arrays, path: Path) -> Path:
    import torch

    torch.save(tensors(arrays), path)
    return path


def save_dcp(arrays: Arrays, path: Path) -> Path:
    return save_state(tensors(arrays), path)


def save_state(state: Any, path: Path) -> Path:
    """A distributed checkpoint that this process writes alone."""
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(path, sync_files=False), no_dist=True)
    return path


def save_tensorflow(arrays: Arrays, path: Path) -> Path:
    return save_pieces(path, [Piece(key, value) for key, value in arrays.items()])


def save_hdf5_compressed(arrays: Arrays, path: Path) -> Path:
    return save_hdf5(arrays, path, chunks=True, compression="gzip", shuffle=True)


@dataclass(frozen=True)
class Origin:
    """A checkpoint as its own library writes it."""

    format: str
    save: Callable[[Arrays, Path], Path]
    arrays: Arrays
    suffix: str = ""


EVERYTHING = {**ARRAYS, **BF16}
IN_GGUF = {key: value for key, value in EVERYTHING.items() if value.dtype.name in PLAIN}
"""Without booleans and unsigned integers, which GGUF does not have."""
ORIGINS = {
    "orbax": Origin("orbax", save_orbax, EVERYTHING),
    "safetensors": Origin("safetensors", save_safetensors, EVERYTHING, ".safetensors"),
    "flax": Origin("flax", save_flax, EVERYTHING, ".msgpack"),
    "t5x": Origin("t5x", save_t5x, EVERYTHING),
    "npz": Origin("npz", save_npz, EVERYTHING, ".npz"),
    "npz-compressed": Origin("npz", save_npz_compressed, EVERYTHING, ".npz"),
    "npy": Origin("npy", save_npy, EVERYTHING),
    "zarr3": Origin("zarr", save_zarr, ARRAYS),
    "zarr2": Origin("zarr", lambda arrays, path: save_zarr(arrays, path, 2), ARRAYS),
    "torch": Origin("torch", save_torch, EVERYTHING, ".pt"),
    "dcp": Origin("dcp", save_dcp, EVERYTHING),
    "tensorflow": Origin("tensorflow", save_tensorflow, EVERYTHING),
    "gguf": Origin("gguf", save_gguf, IN_GGUF, ".gguf"),
    "hdf5": Origin("hdf5", save_hdf5, EVERYTHING, ".h5"),
    "hdf5-compressed": Origin("hdf5", save_hdf5_compressed, EVERYTHING, ".h5"),
}


def load_flax(path: Path) -> Arrays:
    return flattened(serialization.msgpack_restore(path.read_bytes()))


def load_npz(path: Path) -> Arrays:
    """NumPy has no bfloat16: it gives two bytes."""
    with np.load(path) as archive:
        return {key: v.view(ml_dtypes.bfloat16) if v.dtype == "V2" else v for key, v in archive.items()}


def load_zarr(path: Path) -> Arrays:
    members = zarr.open_group(path, mode="r").members(max_depth=None)
    return {name: np.asarray(node[...]) for name, node in members if isinstance(node, zarr.Array)}


DESTINATIONS: dict[str, tuple[str, Callable[[Path], Arrays]]] = {
    "orbax": ("out", restored),
    "safetensors": ("out.safetensors", load_file),
    "flax": ("out.msgpack", load_flax),
    "npz": ("out.npz", load_npz),
    "zarr": ("out.zarr", load_zarr),
    "hdf5": ("out.h5", load_hdf5),
}
"""Every format that is written: a name that stands for it, and its own library's way to read."""
