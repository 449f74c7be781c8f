"""Reading safetensors: one file, or shards with an index that maps names to files."""

import os
from dataclasses import replace

from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.safetensors import INDEX_SUFFIX, NAMES, PREFIX_BYTES
from ckpt_surgery.formats.safetensors.header import PACKED, TensorEntry, header_length, parse_header
from ckpt_surgery.formats.shared.hf_index import read_sharded
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.record_files import RECORD_NAME

PAIRS = Unreadable(
    f"has two elements in each byte ({PACKED}), which is not read",
    "Unpack it with torch, or take another copy.",
)
"""Reason why tensors of `float4_e2m1fn_x2` are only listed."""


def read_file(directory: str, name: str) -> Listing:
    """The tensors of a file, from its header, which is checked against the file's size."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        size = file.stat.size
        prefix = file.read(0, min(PREFIX_BYTES, size))
        with with_path(path):
            length = header_length(prefix, size)
        text = file.read(PREFIX_BYTES, length)
    data = PREFIX_BYTES + length
    with with_path(path):
        tensors, metadata, record = parse_header(text, size - data)
    leaves = {tensor.name: _leaf(path, data, tensor) for tensor in tensors}
    details = SourceDetails(holds_record=True, record=record)
    return Listing(leaves, {path: file.stat}, metadata, details=details)


def _leaf(path: str, data: int, tensor: TensorEntry) -> Leaf:
    """`data`: offset of the first byte of tensors."""
    key = Key.parse(tensor.name)
    if tensor.packed:
        return Leaf(key, LeafKind.ARRAY, tensor.spec, unreadable=PAIRS)
    return Leaf(key, LeafKind.ARRAY, tensor.spec, contiguous(tensor.spec, path, data + tensor.start))


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them."""
    directory, name = NAMES.file_of(path)
    if not name.endswith(INDEX_SUFFIX):
        return read_file(directory, name)
    details = SourceDetails(record_file=os.path.join(directory, RECORD_NAME))
    return replace(read_sharded(directory, name, read_file), details=details)
