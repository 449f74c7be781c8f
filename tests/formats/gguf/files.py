"""GGUF files: as the package `gguf` writes them, and made by hand for what it does not write."""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

PLAIN = {
    "float32": gguf.GGMLQuantizationType.F32,
    "float16": gguf.GGMLQuantizationType.F16,
    "bfloat16": gguf.GGMLQuantizationType.BF16,
    "float64": gguf.GGMLQuantizationType.F64,
    "int8": gguf.GGMLQuantizationType.I8,
    "int16": gguf.GGMLQuantizationType.I16,
    "int32": gguf.GGMLQuantizationType.I32,
    "int64": gguf.GGMLQuantizationType.I64,
}
"""Types that are plain numbers. There are no unsigned ones."""


def save(
    arrays: Mapping[str, np.ndarray],
    path: Path,
    about: Callable[[gguf.GGUFWriter], object] = lambda writer: None,
    per_file: int = 0,
) -> Path:
    """Write arrays of numbers; `about` adds metadata. `per_file`: tensors of each file of a split model."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=per_file)
    about(writer)
    for name, value in arrays.items():
        _add(writer, name, value)
    return written(writer, path)


def written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, name: str, value: np.ndarray) -> None:
    """The library writes the bytes of a tensor as they are, and their shape with its axes reversed."""
    stored = value.view(np.int8) if value.dtype == np.uint8 else value
    writer.add_tensor_info(name, stored.shape, stored.dtype, stored.nbytes, PLAIN[stored.dtype.name])
    writer.tensors[-1][name].tensor = np.frombuffer(stored.tobytes(), np.uint8)


def stored_blocks(shape: Sequence[int], type: gguf.GGMLQuantizationType, seed: int = 0) -> np.ndarray:
    """Random blocks of an array of this shape, uint8[…, bytes of a row]: any bits, NaN and inf among them."""
    length, nbytes = gguf.GGML_QUANT_SIZES[type]
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (*shape[:-1], shape[-1] // length * nbytes), np.uint8)


def save_blocks(
    stored: Mapping[str, tuple[gguf.GGMLQuantizationType, np.ndarray]],
    path: Path,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write quantized tensors, given as in `stored_blocks`, and arrays of numbers after them."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, (type, blocks) in stored.items():
        writer.add_tensor(name, blocks, raw_dtype=type)
    for name, value in (arrays or {}).items():
        _add(writer, name, value)
    return written(writer, path)


def dequantized(type: gguf.GGMLQuantizationType, blocks: np.ndarray) -> np.ndarray:
    """What the package `gguf` reads, in float32."""
    with np.errstate(all="ignore"):
        found: np.ndarray = gguf.quants.dequantize(blocks, type)
    return found


# --- by hand ----------------------------------------------------------------------------------------------


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(name: str | bytes, type: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", type) + value


def array(type: int, count: int, values: bytes = b"") -> bytes:
    """A value of the type 9."""
    return struct.pack("<IQ", type, count) + values


def tensor(name: str | bytes = "a", lengths: Sequence[int] = (4,), type: int = 0, offset: int = 0) -> bytes:
    """The description of a tensor, by default of four float32; the lengths are in GGUF's order."""
    return text(name) + struct.pack(f"<I{len(lengths)}QIQ", len(lengths), *lengths, type, offset)


def made(
    path: Path,
    tensors: Sequence[bytes] = (tensor(),),
    entries: Sequence[bytes] = (),
    data: bytes = bytes(64),
    *,
    version: int = 3,
    counts: tuple[int | None, int | None] = (None, None),
    alignment: int = 32,
) -> Path:
    """A file of these parts. `counts`: numbers of tensors and entries that it claims to have."""
    many = [
        len(part) if count is None else count for part, count in zip((tensors, entries), counts, strict=True)
    ]
    head = struct.pack("<4sIQQ", b"GGUF", version, *many) + b"".join((*entries, *tensors))
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return path


def numbers_of(**values: Any) -> list[bytes]:
    """Entries of the metadata that are uint32; `__` in a name stands for a dot."""
    return [entry(name.replace("__", "."), 4, struct.pack("<I", value)) for name, value in values.items()]
