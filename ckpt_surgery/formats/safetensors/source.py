"""Reading safetensors: one file, or shards with an index that maps names to files. Strict reading of headers.

Source of the format: https://huggingface.co/docs/safetensors/index (8 bytes, little-endian: the length N of
the header; N bytes of JSON, padded with spaces; the tensors' bytes, row-major and little-endian, without
holes), and what version 0.8.0 of the library reads and writes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr
from typing import Any

import numpy as np

from ckpt_surgery.core import dtypes
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import safetensors
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.config_files import read_sharded
from ckpt_surgery.formats.shared.limits import MOST_AXES, beyond_memory
from ckpt_surgery.storage.failures import damaged, flawed, with_path
from ckpt_surgery.storage.json_files import parse_object
from ckpt_surgery.storage.reading import opened
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

PAIRS = Unreadable(
    f"has two elements in each byte ({PACKED}), which is not read",
    "Unpack it with torch, or take another copy.",
)
"""Reason why tensors of `float4_e2m1fn_x2` are only listed."""


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


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them."""
    directory, name = safetensors.NAMES.file_of(path)
    if not name.endswith(safetensors.INDEX_SUFFIX):
        return _read_file(directory, name)
    details = SourceDetails(record_file=os.path.join(directory, RECORD_NAME))
    return replace(read_sharded(directory, name, _read_file), details=details)


def _read_file(directory: str, name: str) -> Listing:
    """The tensors of a file, from its header, which is checked against the file's size."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        size = file.stat.size
        length = int.from_bytes(file.read(0, min(safetensors.PREFIX_BYTES, size)), "little")
        data = safetensors.PREFIX_BYTES + length
        with with_path(path):
            if size < safetensors.PREFIX_BYTES:
                raise damaged(f"{size} bytes are too few for a safetensors file")
            if length > safetensors.MOST_HEADER_BYTES:
                limit = f"safetensors allows {safetensors.MOST_HEADER_BYTES}"
                what = f"it says that its header has {length} bytes; {limit}"
                raise SourceError(what, hint="It is damaged, or not a safetensors file.")
            if data > size:
                follow = size - safetensors.PREFIX_BYTES
                raise damaged(f"it says that its header has {length} bytes, and {follow} follow")
        text = file.read(safetensors.PREFIX_BYTES, length)
    with with_path(path):
        tensors, metadata, record = _parsed(text, size - data)
    leaves = {}
    for tensor in tensors:
        key, spec = Key.parse(tensor.name), tensor.spec
        manifest = None if tensor.packed else contiguous(spec, path, data + tensor.start)
        unreadable = PAIRS if tensor.packed else None
        leaves[tensor.name] = Leaf(key, LeafKind.ARRAY, spec, manifest, unreadable=unreadable)
    details = SourceDetails(holds_record=True, record=record)
    return Listing(leaves, {path: file.stat}, metadata, details=details)


def _parsed(text: bytes, data_bytes: int) -> tuple[Sequence[TensorEntry], Mapping[str, str], str | None]:
    """The tensors, which cover `data_bytes` bytes one after another; the user's metadata; the record."""
    if not text.startswith(b"{"):
        raise SourceError("its header is not a JSON object", hint="It is damaged, or not a safetensors file.")
    entries = parse_object(text, strict=True)
    about = entries.pop(METADATA, None)
    metadata = {} if about is None else about
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise damaged(f"its {METADATA} is not an object of strings")
    record = metadata.pop(RECORD_NAME, None)
    if record is not None and metadata == safetensors.READERS_EXPECT:
        metadata = {}  # it is there because of the record
    tensors = sorted((_tensor(n, e) for n, e in entries.items()), key=lambda t: (t.start, t.stop))
    end = 0
    for tensor in tensors:
        if tensor.start != end:
            what = f"`{shown(tensor.name)}` begins at byte {tensor.start} of the data"
            raise damaged(f"{what}, and the one before it ends at {end}")
        end = tensor.stop
    if end != data_bytes:
        raise damaged(f"its tensors have {end} bytes, and {data_bytes} follow the header")
    return tensors, metadata, record


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
    if code in UNDEFINED:
        raise flawed(name, f"has the type {code}, whose packing is not defined", "Store it as another type.")
    if not isinstance(code, str) or code not in DTYPES:
        raise flawed(name, f"has the unknown type {repr(code)}", "It is damaged, or newer than this program.")
    tensor = TensorEntry(name, ArraySpec(tuple(shape), DTYPES[code]), start, stop)
    if beyond_memory(shape, tensor.spec.dtype.itemsize):
        raise flawed(name, f"has a shape beyond all memory: {list(shape)}")
    wanted = tensor.spec.size // 2 if tensor.packed else tensor.spec.nbytes
    if stop - start != wanted:
        apart = f"its offsets {[start, stop]} are {stop - start} apart"
        raise flawed(name, f"is {tensor.spec}, which takes {wanted} bytes, but {apart}")
    return tensor
