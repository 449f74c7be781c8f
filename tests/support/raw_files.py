"""The files of the format in docs/extending.md, written and read with json and NumPy alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.writing import Arrays

INDEX, DATA = "weights.raw.json", "weights.bin"


def save_raw(arrays: Arrays, path: Path, **changes: Any) -> Path:
    """Write a checkpoint. `changes`: other members of its index."""
    entries, data = {}, b""
    for name, value in arrays.items():
        entries[name] = {"dtype": value.dtype.name, "shape": value.shape, "offset": len(data)}
        data += value.tobytes()
    path.mkdir()
    (path / DATA).write_bytes(data)
    (path / INDEX).write_text(json.dumps({"raw": 1, "arrays": entries, **changes}))
    return path


def load_raw(path: Path) -> dict[str, np.ndarray]:
    entries, data = json.loads((path / INDEX).read_text())["arrays"], (path / DATA).read_bytes()
    return {name: _array(entry, data) for name, entry in entries.items()}


def _array(entry: dict[str, Any], data: bytes) -> np.ndarray:
    spec, count = np.dtype(entry["dtype"]), int(np.prod(entry["shape"], dtype=int))
    return np.frombuffer(data, spec, count, entry["offset"] if count else 0).reshape(entry["shape"])
