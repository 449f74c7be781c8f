"""Reading GGUF: the header of a file, strictly, and one file or all files of a split model.

Source of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and what gguf 0.19 writes:
magic, version, number of tensors and of entries; entries; tensors; padding; the tensors' bytes. A text is a
length of 8 bytes and so many bytes of UTF-8; an array is the number of a type, a length of 8 bytes, and its
values. Memory is bounded: every length is checked before anything is read.
"""

import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Manifest, contiguous, quantized_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.gguf import MAGIC, NAMES, SHARD
from ckpt_surgery.formats.gguf.blocks import TYPES, BlockChunks, TensorType, grid_of, read_blocks, unreadable
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.limits import beyond_memory
from ckpt_surgery.storage.failures import damaged, flawed, with_path
from ckpt_surgery.storage.listing import check_link, names_in, real_path
from ckpt_surgery.storage.reading import OpenFile, PagedFile, opened
from ckpt_surgery.storage.views import prefetch

MOST_HEADER_BYTES = 2**26
"""Longest beginning of a file, before the tensors: tokenizers take some ten megabytes of it."""
PAGE = 2**17
"""Bytes that are read at once."""
TEXTS_BYTES = 2**20
"""The same of texts that are skipped: the words of a tokenizer."""
MOST_NAME_BYTES = 2**16 - 1
"""Longest name of an entry by the format; ggml itself allows tensors 63 bytes."""
MOST_TEXT_BYTES = 2**16
"""Longest text in the metadata that is read; chat templates have some thousand bytes."""
MOST_ITEMS = 256
"""Longest array in the metadata that is read: an entry for each layer. The words of a tokenizer are more."""
MOST_DEPTH = 4
"""Arrays within arrays; ggml itself reads none."""
VERSIONS = (2, 3)
"""Versions of the format that are read. In little endian they are the same."""
MOST_COUNT = 2**16
"""Largest number of tensors, and of entries of metadata."""
MOST_AXES = 4
ALIGNMENT = "general.alignment"

TYPE_NAMES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array"),
    *("uint64", "int64", "float64"),
)
"""Types of values in the metadata, by their numbers."""
UINT32, _BOOL, _TEXT, _ARRAY = (TYPE_NAMES.index(name) for name in ("uint32", "bool", "string", "array"))


class Cursor:
    """A place in the beginning of a file. It only moves forwards."""

    def __init__(self, file: OpenFile):
        self._size = file.stat.size
        self._pages = PagedFile(file, PAGE, kept=2)
        self.at = 0
        """Offset of the next byte."""

    def check(self, count: int, what: str, least: int = 1) -> None:
        """Raise SourceError unless `count` things of at least `least` bytes can follow."""
        if self.at + count * least > self._size:
            raise damaged(f"it claims {count} {what} at byte {self.at}, and has {self._size} bytes")
        if self.at + count * least > MOST_HEADER_BYTES:
            raise damaged(f"its {what} end beyond byte {MOST_HEADER_BYTES}, where no header is that long")

    def skip(self, count: int, what: str = "bytes") -> None:
        """Move on by so many bytes, without reading them."""
        self.check(count, what)
        self.at += count

    def take(self, count: int, what: str = "bytes") -> bytes:
        """The next bytes."""
        self.skip(count, what)
        return self._pages.read(self.at - count, count)

    def number(self, letter: str) -> Any:
        """The number that comes next, by its letter of `struct`."""
        return struct.unpack(f"<{letter}", self.take(struct.calcsize(f"<{letter}")))[0]

    def text(self, length: int) -> str:
        """The text of so many bytes that comes next."""
        text = self.take(length, "bytes of text")
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise damaged(f"its text {text[:100]!r} is not UTF-8") from error

    def name(self) -> str:
        """The name that comes next."""
        length = self.number("Q")
        self.check(length, "bytes of text")
        if length > MOST_NAME_BYTES:
            raise damaged(f"it has a name of {length} bytes; {MOST_NAME_BYTES} is the limit")
        return self.text(length)

    def skip_texts(self, count: int) -> None:
        """Move on by texts: a length of 8 bytes, then so many bytes. The caller has checked their number."""
        while count:
            self.check(8, "bytes")
            left = min(self._size, MOST_HEADER_BYTES) - self.at
            window = self._pages.read(self.at, min(TEXTS_BYTES, left))
            at, end = 0, len(window) - 8
            while count and at <= end:
                at += 8 + int.from_bytes(window[at : at + 8], "little")
                count -= 1
            self.skip(at, "bytes of texts")


def value(cursor: Cursor, name: str, type: int, depth: int = 0) -> Any:
    """The value that comes next, as JSON has it: for what is long, its type and length.

    `name` is that of the entry, for messages; `type` the number of its type; `depth` the arrays around it.
    """
    if type == _TEXT:
        length = cursor.number("Q")
        if length <= MOST_TEXT_BYTES:
            return cursor.text(length)
        cursor.skip(length, "bytes of text")
    elif type != _ARRAY:
        return _numbers(cursor, name, type, 1)[0]
    else:
        type, length = cursor.number("I"), cursor.number("Q")
        if depth == MOST_DEPTH:
            raise damaged(f"`{shown(name[:200])}` has arrays more than {MOST_DEPTH} deep")
        if type == _ARRAY:
            cursor.check(length, "arrays", 12)
            for _ in range(length):
                value(cursor, name, _ARRAY, depth + 1)
        elif type == _TEXT:
            cursor.check(length, "texts", 8)
            if length <= MOST_ITEMS:
                return [value(cursor, name, _TEXT) for _ in range(length)]
            cursor.skip_texts(length)
        else:
            width = _dtype(name, type).itemsize
            cursor.check(length, "numbers", width)
            if length <= MOST_ITEMS:
                return _numbers(cursor, name, type, length)
            cursor.skip(length * width)
    return {"type": TYPE_NAMES[type], "length": length}


def _dtype(name: str, type: int) -> np.dtype[Any]:
    """The dtype of a type of numbers as they are stored: bytes for booleans."""
    if type >= len(TYPE_NAMES):
        raise damaged(f"`{shown(name[:200])}` has a value of the unknown type {type}")
    return np.dtype("uint8" if type == _BOOL else TYPE_NAMES[type]).newbyteorder("<")


def _numbers(cursor: Cursor, name: str, type: int, count: int) -> list[Any]:
    dtype = _dtype(name, type)
    values = np.frombuffer(cursor.take(count * dtype.itemsize), dtype)
    if type == _BOOL and values.max(initial=0) > 1:
        raise damaged(f"`{shown(name[:200])}` is a boolean with the byte {values.max()}")
    if dtype.kind == "f":  # `1e-05` and not what float32 has in its place; NaN and infinities as text
        return [float(str(value)) if np.isfinite(value) else str(value) for value in values]
    return list((values.astype(np.bool_) if type == _BOOL else values).tolist())


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


def read_header(file: OpenFile) -> tuple[Mapping[str, Any], Sequence[GgufTensor]]:
    """The metadata and the tensors of a file, checked against its size.

    The metadata is as JSON has it; in place of a long array or text it has their type and length.
    """
    cursor, size = Cursor(file), file.stat.size
    if size < len(MAGIC) or cursor.take(len(MAGIC)) != MAGIC:
        hint = "It is damaged, or not a GGUF file: check the path."
        raise SourceError("it does not begin as GGUF files do", hint=hint)
    version = cursor.number("I")
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        hint = "Only little endian is read: convert it with `gguf-convert-endian FILE little`."
        raise SourceError(f"it is big endian, in version {swapped} of GGUF", hint=hint)
    if version not in VERSIONS:
        hint = "Convert the model again with a current llama.cpp."
        raise SourceError(f"it is in version {version} of GGUF; versions 2 and 3 are read", hint=hint)
    tensors, entries = cursor.number("Q"), cursor.number("Q")
    for count, what, least in ((tensors, "tensors", 24), (entries, "entries of metadata", 13)):
        cursor.check(count, what, least)
        if count > MOST_COUNT:
            raise damaged(f"it has {count} {what}; {MOST_COUNT} is the limit")
    metadata: dict[str, Any] = {}
    alignment = 32
    for _ in range(entries):
        name, type = cursor.name(), cursor.number("I")
        if name in metadata:
            raise damaged(f"its metadata has `{shown(name[:200])}` twice")
        metadata[name] = value(cursor, name, type)
        if name == ALIGNMENT:
            alignment = metadata[name]
            if type != UINT32 or alignment == 0 or alignment & (alignment - 1):
                raise damaged(f"its {ALIGNMENT} is {shown(str(alignment)[:100])}, no power of two")
    described = [_described(cursor) for _ in range(tensors)]
    begin = -(-cursor.at // alignment) * alignment
    placed = [replace(tensor, offset=begin + tensor.offset) for tensor in described]
    _check_places(placed, begin, alignment, size)
    return metadata, placed


def _described(cursor: Cursor) -> GgufTensor:
    """The next tensor, valid in itself. Its offset counts from the beginning of the data."""
    name = cursor.name()
    axes = cursor.number("I")
    if axes > MOST_AXES:
        raise flawed(name, f"has {axes} axes; {MOST_AXES} is the limit of ggml")
    shape = struct.unpack(f"<{axes}Q", cursor.take(8 * axes))[::-1]
    code, offset = cursor.number("I"), cursor.number("Q")
    if code not in TYPES:
        raise flawed(name, f"has the unknown type {code}", "It is damaged, or newer than this program.")
    type = TYPES[code]
    if beyond_memory(shape, type.dtype.itemsize):
        raise flawed(name, f"has a shape beyond all memory: {list(shape)}")
    if (shape[-1] if shape else 1) % type.length:
        what = f"is {type.name} of the shape {list(shape)}"
        raise flawed(name, f"{what}: its last axis is not a multiple of {type.length}")
    return GgufTensor(name, ArraySpec(shape, type.dtype), type, offset)


def _check_places(tensors: Sequence[GgufTensor], begin: int, alignment: int, size: int) -> None:
    """Raise SourceError for repeated names, and bytes that are shared or beyond the file's `size`."""
    names = Counter(tensor.name for tensor in tensors)
    for tensor in tensors:
        offset, end = tensor.offset - begin, tensor.offset + tensor.nbytes
        if names[tensor.name] > 1:
            raise flawed(tensor.name, "is there twice")
        if offset % alignment:
            raise flawed(tensor.name, f"begins at byte {offset} of the data, no multiple of {alignment}")
        if tensor.nbytes and end > size:
            raise flawed(tensor.name, f"ends at byte {end}, and the file has {size} bytes")
    filled = sorted((tensor for tensor in tensors if tensor.nbytes), key=lambda tensor: tensor.offset)
    for before, tensor in pairwise(filled):
        if before.offset + before.nbytes > tensor.offset:
            raise flawed(tensor.name, f"shares bytes with `{before.name[:200]}`")


NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"
"""Names of the entries about the files of a split model."""

_codec = cache(quantized_codec)


def read(path: str, selection: Selection) -> Listing:
    """Open a file, the first of a split model's files, or a directory with one model."""
    directory, name = NAMES.file_of(path)
    match = SHARD.search(name)
    number, count = (1, 1) if match is None else (int(match[1]), int(match[2]))

    def name_of(number: int) -> str:
        return f"{name[: match.start()]}-{number:05d}-of-{count:05d}.gguf" if match else name

    if number != 1:
        what = f"{shown(path)} is file {number} of a split model"
        raise SourceError(what, hint=f"Name its first, {name_of(1)}.")
    unread = cache(unreadable)
    files = [_read_part(directory, name, 1, count, unread)]
    present = set(names_in(directory or ".")) if count > 1 else set()
    others, root = [], real_path(directory)
    for other in map(name_of, range(2, count + 1)):
        if other not in present:
            missing = shown(os.path.join(directory, other))
            raise damaged(f"{missing} is missing, one of the model's {count} files")
        check_link(os.path.join(directory, other), root)
        others.append(other)
    prefetch(directory, others)
    files += [_read_part(directory, other, i, count, unread) for i, other in enumerate(others, 2)]
    leaves: dict[str, Leaf] = {}
    for file in files:
        twice = next((text for text in file.leaves if text in leaves), None)
        if twice is not None:
            paths = [shown(path) for one in files if twice in one.leaves for path in one.files]
            raise damaged(f"`{shown(twice[:200])}` is in {' and in '.join(paths)}")
        leaves |= file.leaves
    metadata = files[0].metadata
    with with_path(os.path.join(directory, name)):
        tensors = _number(metadata, TENSORS, len(leaves))
        if tensors != len(leaves):
            raise damaged(f"it says that its model has {tensors} tensors, and they are {len(leaves)}")
    stats = {path: stat for file in files for path, stat in file.files.items()}
    about = {name: value for name, value in metadata.items() if not name.startswith("split.")}
    return Listing(leaves, stats, about, decode=read_blocks)


Unread = Callable[[str], Unreadable | None]
"""Tells of a type of blocks why it cannot be read."""


def _read_part(directory: str, name: str, number: int, count: int, unread: Unread) -> Listing:
    """A file, which by its name is that one of so many."""
    path = os.path.join(directory, name)
    with opened(path) as file, with_path(path):
        metadata, tensors = read_header(file)
        recorded, of = _number(metadata, NUMBER, 0) + 1, _number(metadata, COUNT, 1)
        if (recorded, of) != (number, count):
            raise SourceError(
                f"by its metadata it is file {recorded} of {of}, and its name does not say that",
                hint="The files of a split model are called NAME-00001-of-00003.gguf and so on: "
                "give them these names, in one directory.",
            )
    leaves = {tensor.name: _leaf(path, tensor, unread) for tensor in tensors}
    return Listing(leaves, {path: file.stat}, metadata)


def _number(metadata: Mapping[str, Any], name: str, default: int) -> int:
    value = metadata.get(name, default)
    if type(value) is not int:
        raise damaged(f"its {name} is {shown(repr(value)[:100])}, no number")
    return value


def _leaf(path: str, tensor: GgufTensor, unread: Unread) -> Leaf:
    """The leaf of a tensor. Quantized ones are listed as float32, those that cannot be read too."""
    key, spec, type = Key.parse(tensor.name), tensor.spec, tensor.type
    if not type.quantized:
        return Leaf(key, LeafKind.ARRAY, spec, contiguous(spec, path, tensor.offset))
    grid = grid_of(spec.shape, type.length)
    chunks = BlockChunks(path, tensor.offset, spec.shape, grid, type)
    manifest = Manifest(spec, grid, _codec(type.name, spec.ndim), chunks)
    return Leaf(key, LeafKind.ARRAY, spec, manifest, unreadable=unread(type.name))
