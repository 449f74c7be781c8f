"""HDF5 files as h5py writes and reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from ckpt_surgery.core.dtypes import NUMPY_NAMES


def save_hdf5(arrays: Mapping[str, np.ndarray], path: Path, **how: Any) -> Path:
    """As h5py writes it; types of ml_dtypes as Keras does. `how`: options of arrays that can be chunked."""
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            put(file, name, value, **(how if value.size and value.ndim else {}))
    return path


def put(group: h5py.Group, name: str, value: np.ndarray, **how: Any) -> h5py.Dataset:
    plain = value.dtype.name in NUMPY_NAMES
    data = (
        value if plain else np.ascontiguousarray(value).view(f"V{value.dtype.itemsize}").reshape(value.shape)
    )
    dataset = group.create_dataset(name, data=data, **how)
    if not plain:
        dataset.attrs["dtype"] = value.dtype.name
    return dataset


def load_hdf5(path: Path) -> dict[str, np.ndarray]:
    """As h5py reads it."""
    found: dict[str, np.ndarray] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            value = node[()] if node.shape else np.asarray(node[()])
            named = node.attrs.get("dtype")
            found[name] = value if named is None else np.asarray(value).view(getattr(ml_dtypes, named))

    with h5py.File(path) as file:
        file.visititems(visit)
    return found
