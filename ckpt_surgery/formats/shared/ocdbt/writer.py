"""Writing OCDBT databases as indexes: values are inline, or byte ranges of files that exist already.

A database of this kind makes bytes that lie anywhere below a directory readable under any keys, without
moving them. Nodes and manifest are written uncompressed.

Source of the format: TensorStore's OCDBT documentation, "Storage format"
(https://google.github.io/tensorstore/kvstore/ocdbt/index.html#storage-format).
"""

import struct
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import google_crc32c
import numpy as np

from ckpt_surgery.core.errors import Code, PlanError
from ckpt_surgery.core.frozen import frozen
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
ENTRY_BYTES, CHILD_BYTES = 30, 64
"""Upper bounds of an entry's bytes besides its key and its inline value, in leaf and interior nodes: six and
nine variable-length integers."""


@frozen()
class TreeEntry:
    """An entry of a node: a key with its value, or a node that is written, as its parent refers to it."""

    first: bytes
    """The key, or the smallest key below the node."""
    last: bytes
    """The key, or the largest key below the node."""
    place: bytes | Chunk
    """The value itself, or where it or the node lies."""
    keys: int = 1
    """Number of keys below it."""
    tree_bytes: int = 0
    """Encoded bytes of the node and of all nodes below it."""
    value_bytes: int = 0
    """Bytes of all values below it that are not inline; 64 bits at most, which overlapping ranges exceed."""


@dataclass(frozen=True)
class DatabaseFiles:
    """The two files of a database, in the order in which they are to be written."""

    name: str
    """Name of the file with the nodes, relative to the database."""
    nodes: Sequence[bytes]
    """Content of that file, in parts."""
    manifest: bytes
    """Content of `manifest.ocdbt`, which refers to it."""


def make_index(values: Mapping[bytes, bytes | Chunk]) -> DatabaseFiles:
    """Make a database of values by key, in any order: bytes, or the places of bytes in files.

    The files are relative to the database, and need not exist yet. Raises PlanError for too long a key.
    """
    longest = max(values, key=len, default=b"")
    if len(longest) > MAX_KEY_BYTES:
        text = shown(shortened(longest.decode("utf-8", "backslashreplace"), 120))
        raise PlanError(
            f"The key `{text}` has {len(longest)} bytes, and an index allows {MAX_KEY_BYTES}",
            hint="Give the leaf a shorter name.",
            code=Code.UNSUITED,
        )
    identity = uuid.uuid4()  # which also names the file of nodes and long values
    name, parts, end = f"d/{identity.hex}", list[bytes](), 0

    def append(data: bytes) -> Chunk:
        nonlocal end
        parts.append(data)
        end += len(data)
        return Chunk(name, end - len(data), len(data))

    level = []
    for key in sorted(values):
        place = values[key]
        if isinstance(place, bytes) and len(place) > INLINE_BYTES:
            place = append(place)
        level.append(TreeEntry(key, key, place, value_bytes=place.length if isinstance(place, Chunk) else 0))
    height = 0  # of the root: leaves have 0
    if level:
        level = _write_level(append, level, height)
    while len(level) > 1:
        height += 1
        level = _write_level(append, level, height)
    root = level[0] if level else TreeEntry(b"", b"", Chunk("", _MOST, _MOST), keys=0)
    return DatabaseFiles(name, parts, _manifest(identity.bytes, height, root))


def _write_level(
    append: Callable[[bytes], Chunk], entries: Sequence[TreeEntry], height: int
) -> list[TreeEntry]:
    """Write the nodes of these entries, which are at this height, and return the entries of the nodes."""
    shared = shared_bytes([entry.first for entry in entries])
    spans, written = _spans(entries, shared, height), []
    for span in spans:
        inside = entries[span]
        node = append(_node(inside, shared[span], height, len(spans) == 1))
        written.append(
            TreeEntry(
                *(inside[0].first, inside[-1].last, node),
                keys=sum(entry.keys for entry in inside),
                tree_bytes=sum(entry.tree_bytes for entry in inside) + node.length,
                value_bytes=min(sum(entry.value_bytes for entry in inside), _MOST),
            )
        )
    return written


def _spans(entries: Sequence[TreeEntry], shared: Sequence[int], height: int) -> list[slice]:
    """Cut a level into nodes, each of as many entries as fit into NODE_BYTES; of two at least if interior.

    The last node takes what is left. `shared`: the bytes of each key that are stored with the entry before it
    if that is in the same node.
    """
    spans: list[slice] = []
    fixed = CHILD_BYTES if height else ENTRY_BYTES
    least = 2 if height else 1
    start, total, seen = 0, HEADER_BYTES, set[str | None]()
    for i, (entry, common) in enumerate(zip(entries, shared, strict=True)):
        place, size = entry.place, len(entry.first) - common + fixed
        if isinstance(place, bytes):
            size, file = size + len(place), None
        else:
            file = place.file
        total += size if file in seen else size + _file_bytes(file)
        if total > NODE_BYTES and i - start >= least:
            spans.append(slice(start, i))
            start, total, seen = i, HEADER_BYTES + common + size + _file_bytes(file), set()
        seen.add(file)
    return [*spans, slice(start, len(entries))]


def _file_bytes(file: str | None) -> int:
    """Upper bound of what a data file adds to a node; None stands for an inline value."""
    return 0 if file is None else len(encoded_path(file)) + 9  # three variable-length integers


def encoded_path(path: str) -> bytes:
    """A path as nodes store it. Raises UnicodeEncodeError for surrogates that do not stand for a byte."""
    return path.encode("utf-8", "surrogateescape")


def _node(entries: Sequence[TreeEntry], shared: Sequence[int], height: int, root: bool) -> bytes:
    """A node of values, or of nodes that are one lower, in order. `root`: whether it has no parent."""
    skipped = 0 if root else common_bytes(entries[0].first, entries[-1].last)
    lengths, suffixes = _key_columns([entry.first for entry in entries], shared, skipped)
    places = [entry.place for entry in entries]
    ranges = [place for place in places if isinstance(place, Chunk)]
    table, positions = _file_table({chunk.file for chunk in ranges})
    head = (bytes([height]), table, _varints([len(entries)]), lengths)
    if height:
        common = _varints([common_bytes(entry.first, entry.last) - skipped for entry in entries])
        return _framed(_NODE_MAGIC, (*head, common, suffixes, _references(entries, ranges, positions)))
    parts = (
        *head,
        suffixes,
        _varints([len(place) if isinstance(place, bytes) else place.length for place in places]),
        bytes([isinstance(place, Chunk) for place in places]),
        _varints([positions[chunk.file] for chunk in ranges]),
        _varints([chunk.offset for chunk in ranges]),
        *(place for place in places if isinstance(place, bytes)),
    )
    return _framed(_NODE_MAGIC, parts)


def _manifest(identity: bytes, height: int, root: TreeEntry) -> bytes:
    """The configuration, and the only version, whose generation is 1."""
    assert isinstance(root.place, Chunk)
    table, positions = _file_table({root.place.file})
    parts = (
        identity,
        # A single file; of nodes that are written later, Orbax's size, without which it refuses the database,
        # TensorStore's arity of versions, and its compression: zstd at its default level.
        _varints([0, INLINE_BYTES, 100_000_000, 4]),
        b"\x01" + struct.pack("<i", 0),
        table,
        _varints([1, 1]),  # one version, whose generation is 1
        bytes([height]),
        _references([root], [root.place], positions),
        struct.pack("<Q", time.time_ns()),
        _varints([0]),  # no older versions
    )
    return _framed(_MANIFEST_MAGIC, parts)


def _references(
    children: Sequence[TreeEntry], places: Sequence[Chunk], positions: Mapping[str, int]
) -> bytes:
    """Places of nodes, and the statistics of their subtrees."""
    columns = (
        *([positions[c.file] for c in places], [c.offset for c in places], [c.length for c in places]),
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
    """Lengths of keys, and what is new in each; the parent stores the first `skipped` bytes of all."""
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
