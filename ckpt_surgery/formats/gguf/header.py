"""The beginning of a GGUF file: its metadata, and where which tensor lies. Strict reading.

Source of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and what gguf 0.19 writes:
magic, version, number of tensors and of entries; entries; tensors; padding; the tensors' bytes.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.gguf.blocks import TYPES, TensorType
from ckpt_surgery.formats.gguf.detect import MAGIC
from ckpt_surgery.formats.gguf.metadata import UINT32, Cursor, name_text, number, value
from ckpt_surgery.formats.shared.limits import beyond_memory
from ckpt_surgery.storage.failures import damaged, flawed
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile

VERSIONS = (2, 3)
"""Versions of the format that are read. In little endian they are the same."""
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32
MOST_TENSORS = MOST_ENTRIES = 2**16
MOST_AXES = 4


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor as a file describes it."""

    name: str
    spec: ArraySpec
    """Shape in C order, and the dtype that it is read as."""
    type: TensorType
    offset: int
    """Offset of its first byte in the file."""

    @property
    def nbytes(self) -> int:
        """Number of its bytes in the file."""
        return self.spec.size // self.type.length * self.type.nbytes


@dataclass(frozen=True)
class GgufHeader:
    """The beginning of a file."""

    path: str
    stat: FileStat
    metadata: Mapping[str, Any]
    """The entries as JSON has them. In place of a long array or text: its type, and its length."""
    tensors: Sequence[GgufTensor]


def read_header(file: OpenFile) -> GgufHeader:
    """The header of a file, checked against its size."""
    cursor = Cursor(file)
    if file.stat.size < len(MAGIC) or cursor.take(len(MAGIC), "bytes") != MAGIC:
        raise SourceError(
            "it does not begin as GGUF files do", hint="It is damaged, or not a GGUF file: check the path."
        )
    _check_version(number(cursor, "I"))
    tensors, entries = number(cursor, "Q"), number(cursor, "Q")
    _check_count(cursor, tensors, "tensors", MOST_TENSORS, 24)
    _check_count(cursor, entries, "entries of metadata", MOST_ENTRIES, 13)
    metadata: dict[str, Any] = {}
    alignment = DEFAULT_ALIGNMENT
    for _ in range(entries):
        name = name_text(cursor)
        if name in metadata:
            raise damaged(f"its metadata has `{shown(name[:200])}` twice")
        type = number(cursor, "I")
        metadata[name] = value(cursor, name, type)
        if name == ALIGNMENT:
            alignment = _alignment(type, metadata[name])
    described = [_described(cursor) for _ in range(tensors)]
    return GgufHeader(
        file.path, file.stat, metadata, _placed(described, cursor.at, alignment, file.stat.size)
    )


def _check_version(version: int) -> None:
    if version in VERSIONS:
        return
    if version & 0xFFFF == 0 and version:
        raise SourceError(
            f"it is big endian, in version {int.from_bytes(version.to_bytes(4, 'little'))} of GGUF",
            hint="Only little endian is read: convert it with `gguf-convert-endian FILE little`.",
        )
    raise SourceError(
        f"it is in version {version} of GGUF; versions 2 and 3 are read",
        hint="Convert the model again with a current llama.cpp.",
    )


def _check_count(cursor: Cursor, count: int, what: str, most: int, least: int) -> None:
    cursor.check(count, what, least)
    if count > most:
        raise damaged(f"it has {count} {what}; {most} is the limit")


def _alignment(type: int, value: Any) -> int:
    if type != UINT32 or value == 0 or value & (value - 1):
        raise damaged(f"its {ALIGNMENT} is {shown(str(value)[:100])}, no power of two")
    return int(value)


# --- tensors ----------------------------------------------------------------------------------------------


def _described(cursor: Cursor) -> GgufTensor:
    """The next tensor, valid in itself. Its offset counts from the beginning of the data."""
    name = name_text(cursor)
    axes = number(cursor, "I")
    if axes > MOST_AXES:
        raise flawed(name, f"has {axes} axes; {MOST_AXES} is the limit of ggml")
    lengths = struct.unpack(f"<{axes}Q", cursor.take(8 * axes, "bytes of a shape"))
    code, offset = number(cursor, "I"), number(cursor, "Q")
    if code not in TYPES:
        raise flawed(name, f"has the unknown type {code}", "It is damaged, or newer than this program.")
    type, shape = TYPES[code], lengths[::-1]
    if beyond_memory(shape, type.dtype.itemsize):
        raise flawed(name, f"has a shape beyond all memory: {list(shape)}")
    if (shape[-1] if shape else 1) % type.length:
        raise flawed(
            name,
            f"is {type.name} of the shape {list(shape)}: its last axis is not a multiple of {type.length}",
        )
    return GgufTensor(name, ArraySpec(shape, type.dtype), type, offset)


def _placed(described: Sequence[GgufTensor], end: int, alignment: int, size: int) -> list[GgufTensor]:
    """The tensors with their places in a file of `size` bytes, whose header ends at byte `end`.

    Raises SourceError for names that are there twice, and for bytes that are not there or are shared.
    """
    names: set[str] = set()
    begin = -(-end // alignment) * alignment
    for tensor in described:
        if tensor.name in names:
            raise flawed(tensor.name, "is there twice")
        names.add(tensor.name)
        if tensor.offset % alignment:
            raise flawed(
                tensor.name, f"begins at byte {tensor.offset} of the data, no multiple of {alignment}"
            )
        if tensor.nbytes and begin + tensor.offset + tensor.nbytes > size:
            raise flawed(
                tensor.name,
                f"ends at byte {begin + tensor.offset + tensor.nbytes}, and the file has {size} bytes",
            )
    placed = [replace(tensor, offset=begin + tensor.offset) for tensor in described]
    before = None
    for tensor in sorted((t for t in placed if t.nbytes), key=lambda t: t.offset):
        if before is not None and before.offset + before.nbytes > tensor.offset:
            raise flawed(tensor.name, f"shares bytes with `{before.name[:200]}`")
        before = tensor
    return placed
