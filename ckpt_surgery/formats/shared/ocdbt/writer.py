"""Writing OCDBT databases as indexes: values are inline, or byte ranges of files that exist already.

A database of this kind makes bytes that lie anywhere below a directory readable under any keys, without
moving them. Nodes and manifest are written uncompressed.

Source of the format: TensorStore's OCDBT documentation, "Storage format"
(https://google.github.io/tensorstore/kvstore/ocdbt/index.html#storage-format).
"""

import struct
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import google_crc32c
import numpy as np

from ckpt_surgery.core.errors import Code, PlanError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shortened, shown

NODE_BYTES = 2**20
"""Encoded size of a B+tree node, unless one entry or two children are larger. Large ones delay opening."""
INLINE_BYTES = 1024
"""Values up to this size are in the leaf nodes themselves. It is Orbax's setting."""
MAX_KEY_BYTES = 65535
"""The format's limit for a key."""

_NODE_MAGIC, _MANIFEST_MAGIC = 0x0CDB20DE, 0x0CDB3A2A
_MOST = 2**64 - 1
"""Largest number; offset and length of the root node of a database without keys."""

HEADER_BYTES = 40
"""Upper bound of a node's bytes besides files and entries: header, height, counts, checksum."""
ENTRY_BYTES = 30
"""Upper bound of a leaf entry's bytes besides its key and its inline value: six variable-length integers."""
CHILD_BYTES = 64
"""Upper bound of an interior entry's bytes besides its key: nine variable-length integers."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A key and its value."""

    key: bytes
    """Any bytes, at most 65,535 of them."""
    value: bytes | Chunk
    """The bytes themselves, or where they are: not an inline chunk, and `file` relative to the database."""


@dataclass(frozen=True, slots=True)
class NodeReference:
    """A node that is written, as its parent refers to it."""

    first: bytes
    """Smallest key below it."""
    last: bytes
    """Largest key below it."""
    location: Chunk
    keys: int
    """Number of keys below it."""
    tree_bytes: int
    """Encoded bytes of it and of all nodes below it."""
    value_bytes: int
    """Bytes of all values below it that are not inline; 64 bits at most, which overlapping ranges exceed."""


class _NodeFile:
    """The file of nodes and long values, in memory."""

    def __init__(self, name: str):
        self.name = name
        self.parts: list[bytes] = []
        self._end = 0

    def append(self, data: bytes) -> Chunk:
        """Add bytes; returns where they lie."""
        self.parts.append(data)
        chunk = Chunk(self.name, self._end, len(data))
        self._end += len(data)
        return chunk


@dataclass(frozen=True)
class DatabaseFiles:
    """The two files of a database, in the order in which they are to be written."""

    name: str
    """Name of the file with the nodes, relative to the database."""
    nodes: Sequence[bytes]
    """Content of that file, in parts."""
    manifest: bytes
    """Content of `manifest.ocdbt`, which refers to it."""


def make_index(entries: Iterable[IndexEntry]) -> DatabaseFiles:
    """Make a database of `entries`, in any order. The files that they refer to need not exist yet.

    Raises PlanError for a key that occurs twice or is too long.
    """
    ordered = sorted(entries, key=attrgetter("key"))
    keys = [entry.key for entry in ordered]
    for key, following in pairwise(keys):
        if key == following:
            raise PlanError(
                f"The key `{_shown(key)}` occurs twice in the index",
                hint="Give one of the two leaves another name.",
                code=Code.SAME_KEY,
            )
    longest = max(keys, key=len, default=b"")
    if len(longest) > MAX_KEY_BYTES:
        raise PlanError(
            f"The key `{_shown(longest)}` has {len(longest)} bytes, and an index allows {MAX_KEY_BYTES}",
            hint="Give the leaf a shorter name.",
            code=Code.UNSUITED,
        )
    identity = uuid.uuid4()  # which also names the file of nodes
    nodes = _NodeFile(f"d/{identity.hex}")
    values = (entry.value for entry in ordered)
    stored = [nodes.append(v) if isinstance(v, bytes) and len(v) > INLINE_BYTES else v for v in values]
    level = _write_leaves(nodes, keys, stored)
    height = 0  # of the root: leaves have 0
    while len(level) > 1:
        height += 1
        level = _write_interior(nodes, level, height)
    root = level[0] if level else None
    manifest = manifest_bytes(identity.bytes, INLINE_BYTES, time.time_ns(), height, root)
    return DatabaseFiles(nodes.name, nodes.parts, manifest)


def _shown(key: bytes) -> str:
    return shown(shortened(key.decode("utf-8", "backslashreplace"), 120))


def _write_leaves(
    nodes: _NodeFile, keys: Sequence[bytes], values: Sequence[bytes | Chunk]
) -> list[NodeReference]:
    shared = shared_bytes(keys)
    sizes = [
        len(key) - common + (len(value) if isinstance(value, bytes) else 0) + ENTRY_BYTES
        for key, common, value in zip(keys, shared, values, strict=True)
    ]
    files = [None if isinstance(value, bytes) else value.file for value in values]
    spans = _spans(sizes, shared, files, least=1)
    written = []
    for span in spans:
        inside = keys[span]
        node = nodes.append(leaf_node(inside, shared[span], values[span], len(spans) == 1))
        value_bytes = min(sum(v.length for v in values[span] if isinstance(v, Chunk)), _MOST)
        written.append(NodeReference(inside[0], inside[-1], node, len(inside), node.length, value_bytes))
    return written


def _write_interior(nodes: _NodeFile, children: Sequence[NodeReference], height: int) -> list[NodeReference]:
    shared = shared_bytes([child.first for child in children])
    sizes = [len(child.first) - common + CHILD_BYTES for child, common in zip(children, shared, strict=True)]
    files = [child.location.file for child in children]
    spans = _spans(sizes, shared, files, least=2)
    written = []
    for span in spans:
        inside = children[span]
        node = nodes.append(interior_node(inside, shared[span], height, len(spans) == 1))
        written.append(
            NodeReference(
                *(inside[0].first, inside[-1].last, node),
                keys=sum(child.keys for child in inside),
                tree_bytes=sum(child.tree_bytes for child in inside) + node.length,
                value_bytes=min(sum(child.value_bytes for child in inside), _MOST),
            )
        )
    return written


def _spans(
    sizes: Sequence[int], shared: Sequence[int], files: Sequence[str | None], least: int
) -> list[slice]:
    """Cut a level into nodes, each of as many entries as fit into NODE_BYTES, but of at least `least`.

    The last node takes what is left. `sizes`: upper bound of each entry's bytes. `shared`: the bytes of its
    key besides those, which are stored with the entry before it if that is in the same node.
    """
    spans: list[slice] = []
    start, total, seen = 0, HEADER_BYTES, set[str | None]()
    for i, (size, file) in enumerate(zip(sizes, files, strict=True)):
        total += size if file in seen else size + file_bytes(file)
        seen.add(file)
        if total > NODE_BYTES and i - start >= least:
            spans.append(slice(start, i))
            start, total, seen = i, HEADER_BYTES + shared[i] + size + file_bytes(file), {file}
    return [*spans, slice(start, len(sizes))] if sizes else []


# --- nodes ------------------------------------------------------------------------------------------------


def encoded_path(path: str) -> bytes:
    """A path as nodes store it. Raises UnicodeEncodeError for surrogates that do not stand for a byte."""
    return path.encode("utf-8", "surrogateescape")


def file_bytes(file: str | None) -> int:
    """Upper bound of what a data file adds to a node; None stands for an inline value."""
    return 0 if file is None else len(encoded_path(file)) + 9  # three variable-length integers


def leaf_node(
    keys: Sequence[bytes], shared: Sequence[int], values: Sequence[bytes | Chunk], root: bool
) -> bytes:
    """A node of keys in order and their values, which are inline or elsewhere.

    `shared`: what `shared_bytes` says of these keys. `root`: whether it has no parent.
    """
    lengths, suffixes = _key_columns(keys, shared, 0 if root else common_bytes(keys[0], keys[-1]))
    inline = [value for value in values if isinstance(value, bytes)]
    ranges = [value for value in values if isinstance(value, Chunk)]
    table, positions = _file_table({chunk.file for chunk in ranges})
    parts = [
        *(b"\0", table, _varints([len(keys)]), lengths, suffixes),
        _varints([len(value) if isinstance(value, bytes) else value.length for value in values]),
        bytes([isinstance(value, Chunk) for value in values]),
        _varints([positions[chunk.file] for chunk in ranges]),
        _varints([chunk.offset for chunk in ranges]),
        *inline,
    ]
    return _framed(_NODE_MAGIC, parts)


def interior_node(children: Sequence[NodeReference], shared: Sequence[int], height: int, root: bool) -> bytes:
    """A node of other nodes, whose height is one less.

    `shared`: what `shared_bytes` says of their first keys. `root`: whether it has no parent.
    """
    skipped = 0 if root else common_bytes(children[0].first, children[-1].last)
    lengths, suffixes = _key_columns([child.first for child in children], shared, skipped)
    table, positions = _file_table({child.location.file for child in children})
    parts = (
        *(bytes([height]), table, _varints([len(children)]), lengths),
        _varints([common_bytes(child.first, child.last) - skipped for child in children]),
        suffixes,
        _references(children, positions),
    )
    return _framed(_NODE_MAGIC, parts)


def manifest_bytes(
    identity: bytes, inline_bytes: int, time_ns: int, height: int, root: NodeReference | None
) -> bytes:
    """The configuration, and the only version, whose generation is 1.

    `root` is None for a database without keys. `time_ns`: nanoseconds since the epoch.
    """
    if root is None:
        root = NodeReference(b"", b"", Chunk("", _MOST, _MOST), 0, 0, 0)
    table, positions = _file_table({root.location.file})
    parts = (
        identity,
        # A single file; of nodes that are written later, Orbax's size, without which it refuses the database,
        # TensorStore's arity of versions, and its compression: zstd at its default level.
        _varints([0, inline_bytes, 100_000_000, 4]),
        b"\x01" + struct.pack("<i", 0),
        table,
        _varints([1, 1]),  # one version, whose generation is 1
        bytes([height]),
        _references([root], positions),
        struct.pack("<Q", time_ns),
        _varints([0]),  # no older versions
    )
    return _framed(_MANIFEST_MAGIC, parts)


def _references(children: Sequence[NodeReference], positions: dict[str, int]) -> bytes:
    """Places of nodes, and the statistics of their subtrees."""
    chunks = [child.location for child in children]
    columns = (
        *([positions[c.file] for c in chunks], [c.offset for c in chunks], [c.length for c in chunks]),
        [child.keys for child in children],
        [child.tree_bytes for child in children],
        [child.value_bytes for child in children],
    )
    return b"".join(map(_varints, columns))


def common_bytes(one: bytes, other: bytes) -> int:
    """Number of bytes that two byte strings have in common at their start."""
    length = min(len(one), len(other))
    differing = int.from_bytes(one[:length], "big") ^ int.from_bytes(other[:length], "big")
    return length - (differing.bit_length() + 7) // 8


def shared_bytes(keys: Sequence[bytes]) -> list[int]:
    """Number of bytes that each key has in common with the one before it."""
    return [0, *(common_bytes(one, other) for one, other in pairwise(keys))] if keys else []


def _key_columns(keys: Sequence[bytes], shared: Sequence[int], skipped: int) -> tuple[bytes, bytes]:
    """The columns of a node's keys: lengths, and the bytes that a key does not share with the one before it.

    The parent stores the first `skipped` bytes of every key.
    """
    starts = [skipped, *shared[1:]]
    prefixes = _varints([start - skipped for start in starts[1:]])
    lengths = _varints([len(key) - start for key, start in zip(keys, starts, strict=True)])
    suffixes = b"".join([key[start:] for key, start in zip(keys, starts, strict=True)])
    return prefixes + lengths, suffixes


def _file_table(files: set[str]) -> tuple[bytes, dict[str, int]]:
    """A node's table of data files, and the position of each in it.

    All paths are relative to the database, so that no node inherits a base path from another.
    """
    named = sorted((encoded_path(file), file) for file in files)
    paths = [path for path, _ in named]
    if not paths:
        return _varints([0]), {}
    lengths, suffixes = _key_columns(paths, shared_bytes(paths), 0)
    table = (_varints([len(paths)]), lengths, bytes(len(paths)), suffixes)
    return b"".join(table), {file: i for i, (_, file) in enumerate(named)}


def _varints(values: Sequence[int]) -> bytes:
    """Unsigned integers below 2**64 in LEB128: groups of seven bits, the lowest first."""
    if not values or max(values) < 0x80:
        return bytes(values)
    groups = np.array(values, np.uint64)[:, None] >> np.arange(0, 64, 7, dtype=np.uint64)
    used = groups != 0
    used[:, 0] = True
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[:, :-1] |= used[:, 1:].astype(np.uint8) << 7  # another group follows
    return bytes(encoded[used])


def _framed(magic: int, parts: Iterable[bytes]) -> bytes:
    """The frame of nodes and manifests: magic, length, version 0, no compression, the parts, CRC-32C."""
    body = b"".join([b"\0\0", *parts])
    data = struct.pack(">I", magic) + struct.pack("<Q", 12 + len(body) + 4) + body
    return data + struct.pack("<I", google_crc32c.value(data))
