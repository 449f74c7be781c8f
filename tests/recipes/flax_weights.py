"""Weights that are known from their names: the same wherever they are made, with any version of NumPy."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np


def noise(name: str, shape: Sequence[int]) -> np.ndarray:
    """float64 in [-1, 1), by SplitMix64's finalizer (Steele et al., 2014) of the name's CRC and the index."""
    size = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        z = (np.arange(size, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 20)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)) * 2.0**-52 - 1.0).reshape(tuple(shape))


def weight(name: str, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """A weight as a trained model might have it: scales around 1, counters 0, all else around 0."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind.kind in "iub":
        return np.zeros(shape, kind)
    around = float(name.endswith(("running_var", ".gamma")) or (len(shape) == 1 and name.endswith(".weight")))
    return np.asarray(around + 0.3 * noise(name, shape)).astype(kind)


def weights(described: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """All of a model: from `{name: [dtype, *shape]}`."""
    return {name: weight(name, dtype, shape) for name, (dtype, *shape) in described.items()}


def inputs(names: Sequence[str], config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Two examples for a tiny model, by the names that the classes give their arguments."""
    tokens = 5 + (np.abs(noise("tokens", (2, 12))) * 80).astype(np.int64)
    tokens[:, 9] = tokens[:, -1] = 2  # the usual end of a text
    side = config.get("vision_config", config).get("image_size", 32)
    made = {
        "input_ids": tokens,
        "token_type_ids": np.zeros_like(tokens),
        "decoder_input_ids": tokens[:, 3:10],
        "pixel_values": noise("pixel_values", (2, 3, side, side)).astype(np.float32),
        "input_values": noise("input_values", (2, 400)).astype(np.float32),
    }
    if "num_mel_bins" in config:
        shape = (2, config["num_mel_bins"], 2 * config["max_source_positions"])
        made["input_features"] = noise("input_features", shape).astype(np.float32)
    return {name: made[name] for name in names}


def told(array: np.ndarray) -> list[Any]:
    """dtype, sizes and the first 8 bytes of the SHA-256 of an array, its elements in C order."""
    return [str(array.dtype), *array.shape, hashlib.sha256(array.tobytes()).hexdigest()[:16]]
