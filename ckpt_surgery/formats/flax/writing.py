"""Writing a MessagePack file as Flax does: leaves that it can hold, and its layout, known before elements.

It consists of the bytes between the arrays, those of flax 0.12.8's `flax.serialization.to_bytes` except that
Python's integers always take 64 bits, as their values are not known; and of gaps that elements fill later.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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


Part: TypeAlias = bytes | tuple[str, int]
"""Bytes of the file, or room for elements of a leaf: the text of its key, and a number of bytes."""

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
    texts: list[tuple[int, bytearray]] = []  # all but elements, in runs of bytes with their offsets
    gaps: dict[str, list[tuple[int, int]]] = defaultdict(list)
    at = 0
    # Flax has dicts in place of lists.
    for part in _tree_parts(nested((Key.of(leaf.key.names), leaf) for leaf in leaves)):
        if isinstance(part, bytes):
            if not texts or texts[-1][0] + len(texts[-1][1]) < at:
                texts.append((at, bytearray()))
            texts[-1][1].extend(part)
            at += len(part)
        else:
            text, length = part
            gaps[text].append((at, length))
            at += length
    arrays = {}
    for leaf in leaves:
        if leaf.spec is not None:
            native = (native_bytes, partial(native_value, leaf.spec.dtype)) if is_native(leaf) else ()
            arrays[leaf.key.text] = PlacedArray(leaf.spec, tuple(gaps[leaf.key.text]), *native)
    return [FilePlan(options.file_name or SINGLE_NAME, at, texts, arrays)]


def _tree_parts(tree: Tree) -> Iterator[Part]:
    yield _map_head(len(tree))
    for name, node in tree.items():
        yield msgpack.packb(name)
        yield from _tree_parts(node) if isinstance(node, dict) else _leaf_parts(node)


def _leaf_parts(leaf: Leaf) -> Iterator[Part]:
    text, spec = leaf.key.text, leaf.spec
    if leaf.kind is LeafKind.STRING:
        yield msgpack.packb(leaf.string)
    elif leaf.kind is LeafKind.EMPTY:
        # Flax turns empty lists and tuples into empty dicts too.
        yield msgpack.packb(None if leaf.empty == "None" else {})
    elif spec is not None and is_native(leaf):
        yield text, _NATIVE[spec.dtype]
    elif spec is not None and spec.nbytes <= PIECE_BYTES:
        scalar = leaf.kind is LeafKind.SCALAR and spec.shape == ()
        yield from _piece(text, spec, msgpack_tree.SCALAR if scalar else msgpack_tree.ARRAY)
    elif spec is not None:
        most = max(1, PIECE_BYTES // spec.dtype.itemsize)
        sizes = [min(most, spec.size - start) for start in range(0, spec.size, most)]
        shape = {str(axis): length for axis, length in enumerate(spec.shape)}
        yield _map_head(3) + msgpack.packb(msgpack_tree.CHUNKED) + msgpack.packb(True)
        yield msgpack.packb("shape") + msgpack.packb(shape)
        yield msgpack.packb("chunks") + _map_head(len(sizes))
        for number, size in enumerate(sizes):
            yield msgpack.packb(str(number))
            yield from _piece(text, ArraySpec((size,), spec.dtype), msgpack_tree.ARRAY)


def _piece(text: str, spec: ArraySpec, code: int) -> Iterator[Part]:
    about = b"\x93" + msgpack.packb(spec.shape) + msgpack.packb(spec.dtype.name) + _sized(0xC4, spec.nbytes)
    length = len(about) + spec.nbytes
    head = b"\xd8" if length == 16 else _sized(0xC7, length)  # other fixed lengths are too short
    yield head + bytes((code,)) + about
    yield text, spec.nbytes


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
