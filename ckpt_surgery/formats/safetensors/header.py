"""The header of a safetensors file: strict reading, and writing.

Source of the format: https://huggingface.co/docs/safetensors/index (8 bytes, little-endian: the length N of
the header; N bytes of JSON, padded with spaces; the tensors' bytes, row-major and little-endian, without
holes), and what version 0.8.0 of the library reads and writes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr
from typing import Any

import numpy as np

from ckpt_surgery.core import dtypes
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.safetensors import MOST_HEADER_BYTES, PREFIX_BYTES, READERS_EXPECT
from ckpt_surgery.formats.shared.limits import MOST_AXES, beyond_memory
from ckpt_surgery.storage.failures import damaged, flawed
from ckpt_surgery.storage.json_files import parse_object
from ckpt_surgery.storage.record_files import RECORD_NAME

METADATA = "__metadata__"
"""The name in a header that is not a tensor's."""
PACKED = "F4"
"""Type with two elements per byte, `float4_e2m1fn_x2`, which is listed only."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    code: dtypes.DTYPES[name]
    for code, name in {
        "BOOL": "bool",
        "U8": "uint8",
        "I8": "int8",
        "U16": "uint16",
        "I16": "int16",
        "U32": "uint32",
        "I32": "int32",
        "U64": "uint64",
        "I64": "int64",
        "F4": "float4_e2m1fn",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2": "float8_e5m2",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "F8_E8M0": "float8_e8m0fnu",
        "F16": "float16",
        "BF16": "bfloat16",
        "F32": "float32",
        "F64": "float64",
        "C64": "complex64",
    }.items()
}
"""Dtypes by their names in the header."""
CODES: Mapping[np.dtype[Any], str] = {dtype: code for code, dtype in DTYPES.items() if code != PACKED}
"""Names of the dtypes that are written."""
UNDEFINED = ("F6_E2M3", "F6_E3M2")
"""Types without a defined packing: the format names them, but no library writes them."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One entry of a header."""

    name: str
    spec: ArraySpec
    start: int
    """Offset of its first byte, counted from the end of the header."""
    stop: int
    """Offset after its last byte."""

    @property
    def packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.spec.dtype == DTYPES[PACKED]


# --- reading ----------------------------------------------------------------------------------------------


def header_length(prefix: bytes, file_size: int) -> int:
    """The length in a file's first 8 bytes."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES:
        raise damaged(f"{file_size} bytes are too few for a safetensors file")
    if length > MOST_HEADER_BYTES:
        raise SourceError(
            f"it says that its header has {length} bytes; safetensors allows {MOST_HEADER_BYTES}",
            hint="It is damaged, or not a safetensors file.",
        )
    if length > file_size - PREFIX_BYTES:
        raise damaged(f"it says that its header has {length} bytes, and {file_size - PREFIX_BYTES} follow")
    return length


def parse_header(text: bytes, data_bytes: int) -> tuple[Sequence[TensorEntry], Mapping[str, str], str | None]:
    """The tensors in the order of their bytes, the user's metadata, and the record of how the file was made.

    The tensors cover the `data_bytes` bytes after the header one after another.
    """
    if not text.startswith(b"{"):
        raise SourceError("its header is not a JSON object", hint="It is damaged, or not a safetensors file.")
    entries = parse_object(text, strict=True)
    metadata = dict(_metadata(entries.pop(METADATA, None)))
    record = metadata.pop(RECORD_NAME, None)
    if record is not None and metadata == READERS_EXPECT:
        metadata = {}  # it is there because of the record
    tensors = sorted((_tensor(n, e) for n, e in entries.items()), key=lambda t: (t.start, t.stop))
    end = 0
    for tensor in tensors:
        if tensor.start != end:
            raise damaged(
                f"`{shown(tensor.name)}` begins at byte {tensor.start} of the data, "
                f"and the one before it ends at {end}"
            )
        end = tensor.stop
    if end != data_bytes:
        raise damaged(f"its tensors have {end} bytes, and {data_bytes} follow the header")
    return tensors, metadata, record


def _metadata(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise damaged(f"its {METADATA} is not an object of strings")
    return value


def _tensor(name: str, entry: Any) -> TensorEntry:
    """One entry of the header, valid in itself."""
    try:
        code, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        axes = len(shape)
    except (TypeError, KeyError, ValueError):
        raise flawed(name, "needs a dtype, a shape and two data_offsets") from None
    if axes > MOST_AXES:
        raise flawed(name, f"has {axes} axes; {MOST_AXES} is the limit")
    if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
        values = f"has the shape {repr(shape)} and the offsets {repr([start, stop])}"
        raise flawed(name, f"{values}, which are not all integers from 0 on")
    tensor = TensorEntry(name, ArraySpec(tuple(shape), _dtype(name, code)), start, stop)
    _check_size(tensor)
    return tensor


def _dtype(name: str, code: Any) -> np.dtype[Any]:
    if code in UNDEFINED:
        raise flawed(name, f"has the type {code}, whose packing is not defined", "Store it as another type.")
    if not isinstance(code, str) or code not in DTYPES:
        raise flawed(name, f"has the unknown type {repr(code)}", "It is damaged, or newer than this program.")
    return DTYPES[code]


def _check_size(tensor: TensorEntry) -> None:
    shape, dtype = tensor.spec.shape, tensor.spec.dtype
    if beyond_memory(shape, dtype.itemsize):
        raise flawed(tensor.name, f"has a shape beyond all memory: {list(shape)}")
    wanted = tensor.spec.size // 2 if tensor.packed else tensor.spec.nbytes
    if tensor.stop - tensor.start != wanted:
        raise flawed(
            tensor.name,
            f"is {tensor.spec}, which takes {wanted} bytes, "
            f"but its offsets {[tensor.start, tensor.stop]} are {tensor.stop - tensor.start} apart",
        )


# --- writing ----------------------------------------------------------------------------------------------


def header_bytes(tensors: Iterable[TensorEntry], metadata: Mapping[str, str], least: int = 0) -> bytes:
    """The beginning of a file: length and header, padded so that the data begins at a multiple of 8.

    `least`: bytes that it has at least; a shorter header is padded.
    """
    about: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for tensor in tensors:
        about[tensor.name] = {
            "dtype": CODES[tensor.spec.dtype],
            "shape": list(tensor.spec.shape),
            "data_offsets": [tensor.start, tensor.stop],
        }
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * max(-len(text) % PREFIX_BYTES, least - PREFIX_BYTES - len(text))
    return len(text).to_bytes(PREFIX_BYTES, "little") + text
