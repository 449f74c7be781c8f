"""Writing a MessagePack file as Flax does: leaves that it can hold, and its layout, known before elements.

It consists of the bytes between the arrays, and of gaps that the elements fill later. The bytes
are those that flax 0.12.8's `flax.serialization.to_bytes` writes, except that Python's integers always take
64 bits, so that their values need not be known.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import msgpack
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.keys import Key, nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.formats.flax import SINGLE_NAME
from ckpt_surgery.formats.plain_files import quoted, same_name, wrong_keys
from ckpt_surgery.formats.registry import FilePlan, Limits, SinkOptions
from ckpt_surgery.formats.shared.msgpack import tree as msgpack_tree
from ckpt_surgery.storage.regions import PlacedArray, are_contiguous

PIECE_BYTES = 2**30
"""Larger arrays are cut into pieces of this many bytes: `flax.serialization.MAX_CHUNK_SIZE`."""

Tree: TypeAlias = "dict[str, Tree | Leaf]"


@dataclass
class FileLayout:
    """The layout of a file, which grows at its end."""

    texts: list[tuple[int, bytearray]] = field(default_factory=list)
    """Everything but elements, in runs of bytes with their offsets."""
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Offsets and lengths of the elements of each leaf, by the text of its key."""
    size: int = 0
    """Size of the file so far, gaps included, in bytes."""

    def put(self, data: bytes) -> None:
        """Append these bytes."""
        if not self.texts or self.texts[-1][0] + len(self.texts[-1][1]) != self.size:
            self.texts.append((self.size, bytearray()))
        self.texts[-1][1].extend(data)
        self.size += len(data)

    def gap(self, text: str, length: int) -> None:
        """Append room for elements of the leaf with this key; `length` in bytes."""
        self.gaps[text].append((self.size, length))
        self.size += length


_NATIVE = {np.dtype(bool): 1, np.dtype(np.int64): 9, np.dtype(np.float64): 9, np.dtype(np.complex128): 22}
"""The length in the file of each dtype of Python's numbers."""


def is_native(leaf: Leaf) -> bool:
    """Whether a leaf is written as Python's bool, int, float or complex. Other scalars stay NumPy's."""
    spec = leaf.spec
    return spec is not None and leaf.kind is LeafKind.SCALAR and not spec.shape and spec.dtype in _NATIVE


def native_bytes(value: np.ndarray) -> bytes:
    """The bytes of a 0-d array's element as MessagePack writes the Python number."""
    number: Any = value.item()
    if type(number) is int:
        return struct.pack(">Bq", 0xD3, number)
    if isinstance(number, complex):
        number = msgpack.ExtType(msgpack_tree.COMPLEX, msgpack.packb((number.real, number.imag)))
    return bytes(msgpack.packb(number))


def native_value(dtype: np.dtype[Any], data: bytes) -> np.ndarray:
    """The 0-d array that `native_bytes` made these bytes of."""
    value = msgpack.unpackb(data, ext_hook=lambda _, parts: complex(*msgpack.unpackb(parts)))
    return np.array(value, dtype)


def layout(leaves: Sequence[Leaf], options: SinkOptions) -> list[FilePlan]:
    """One file, `flax_model.msgpack` or `options.file_name`: nested maps in the order of the leaves."""
    file = FileLayout()
    # Flax has dicts in place of lists.
    _put_tree(file, nested((Key.of(leaf.key.names), leaf) for leaf in leaves))
    arrays = {}
    for leaf in leaves:
        if leaf.spec is not None:
            native = (native_bytes, partial(native_value, leaf.spec.dtype)) if is_native(leaf) else ()
            arrays[leaf.key.text] = PlacedArray(leaf.spec, tuple(file.gaps[leaf.key.text]), *native)
    return [FilePlan(options.file_name or SINGLE_NAME, file.size, file.texts, arrays)]


def _put_tree(file: FileLayout, tree: Tree) -> None:
    file.put(_map_head(len(tree)))
    for name, node in tree.items():
        file.put(msgpack.packb(name))
        if isinstance(node, dict):
            _put_tree(file, node)
        else:
            _put_leaf(file, node)


def _put_leaf(file: FileLayout, leaf: Leaf) -> None:
    if leaf.kind is LeafKind.STRING:
        file.put(msgpack.packb(leaf.string))
    elif leaf.kind is LeafKind.EMPTY:
        # Flax turns empty lists and tuples into empty dicts too.
        file.put(msgpack.packb(None if leaf.empty == "None" else {}))
    elif leaf.spec is not None and is_native(leaf):
        file.gap(leaf.key.text, _NATIVE[leaf.spec.dtype])
    elif leaf.spec is not None:
        scalar = leaf.kind is LeafKind.SCALAR and leaf.spec.shape == ()
        _put_array(file, leaf.key.text, leaf.spec, msgpack_tree.SCALAR if scalar else msgpack_tree.ARRAY)


def _put_array(file: FileLayout, text: str, spec: ArraySpec, code: int) -> None:
    if spec.nbytes <= PIECE_BYTES:
        _put_piece(file, text, spec, code)
        return
    most = max(1, PIECE_BYTES // spec.dtype.itemsize)
    sizes = [min(most, spec.size - start) for start in range(0, spec.size, most)]
    shape = {str(axis): length for axis, length in enumerate(spec.shape)}
    file.put(_map_head(3) + msgpack.packb(msgpack_tree.CHUNKED) + msgpack.packb(True))
    file.put(msgpack.packb("shape") + msgpack.packb(shape))
    file.put(msgpack.packb("chunks") + _map_head(len(sizes)))
    for number, size in enumerate(sizes):
        file.put(msgpack.packb(str(number)))
        _put_piece(file, text, ArraySpec((size,), spec.dtype), msgpack_tree.ARRAY)


def _put_piece(file: FileLayout, text: str, spec: ArraySpec, code: int) -> None:
    about = b"\x93" + msgpack.packb(spec.shape) + msgpack.packb(spec.dtype.name) + _sized(0xC4, spec.nbytes)
    length = len(about) + spec.nbytes
    head = b"\xd8" if length == 16 else _sized(0xC7, length)  # other fixed lengths are too short
    file.put(head + bytes((code,)) + about)
    file.gap(text, spec.nbytes)


def _map_head(count: int) -> bytes:
    return msgpack.Packer().pack_map_header(count)  # type: ignore[no-any-return]


def _sized(first: int, length: int) -> bytes:
    """The shortest form of a head: `first`, `first + 1` or `first + 2`, and the length in 1, 2 or 4 bytes."""
    width, more = (1, 0) if length < 2**8 else (2, 1) if length < 2**16 else (4, 2)
    return bytes((first + more,)) + length.to_bytes(width, "big")


def _unreadable(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Leaves that would not be read back."""
    for leaf in leaves:
        names = leaf.key.names
        if leaf.string is not None and len(leaf.string) * 4 > msgpack_tree.MOST_TEXT_BYTES:
            length = len(leaf.string)
            yield f"{quoted(leaf)} is a string of {length} characters, too long to be read back; drop it."
        if msgpack_tree.CHUNKED in names:
            why = "by which Flax knows arrays in pieces"
            yield f"{quoted(leaf)} has the component `{msgpack_tree.CHUNKED}`, {why}; rename it."
        if len(names) > (most := msgpack_tree.MOST_DEPTH):
            yield f"{quoted(leaf)} is nested {len(names)} deep, and {most} is the limit; rename it."


def _wrong_tree(leaves: Sequence[Leaf]) -> Iterator[str]:
    """The file is one tree: each node has its own name, and their number is limited."""
    counts = Counter([leaf.key.names for leaf in leaves])
    containers = {names[:i] for names in counts for i in range(len(names))}
    for names, count in counts.items():
        if count > 1:
            yield same_name("/".join(names), count)
    if len(counts) + len(containers) > msgpack_tree.MOST_VALUES:
        what = f"{len(leaves)} leaves in {len(containers)} containers are too many to be read back"
        yield f"{what}: {msgpack_tree.MOST_VALUES} is the limit; drop some."


LIMITS = Limits(
    ("a Flax file holds arrays, strings and empty nodes", "Flax cannot restore"),
    frozenset(DTYPES.values()),
    (LeafKind.STRING,),
    (wrong_keys, _unreadable, _wrong_tree),
    lambda leaf, manifest: not is_native(leaf) and are_contiguous(manifest),
)
