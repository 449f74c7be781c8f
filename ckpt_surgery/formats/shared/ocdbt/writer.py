"""Writing OCDBT databases as indexes: values are inline, or byte ranges of files that exist already.

A database of this kind makes bytes that lie anywhere below a directory readable under any keys, without
moving them. `ocdbt_nodes` has the format of its nodes.
"""

import posixpath
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BufferedWriter, BytesIO
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, PlanError, SourceError, UsageError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.ocdbt.nodes import (
    CHILD_BYTES,
    ENTRY_BYTES,
    HEADER_BYTES,
    NodeReference,
    encoded_path,
    file_bytes,
    interior_node,
    leaf_node,
    manifest_bytes,
    shared_bytes,
)
from ckpt_surgery.formats.shared.orbax_layout import MANIFEST
from ckpt_surgery.storage.failures import storage_errors

NODE_BYTES = 2**20
"""Encoded size of a B+tree node unless options say otherwise. Larger ones make every open slow."""
MAX_NODE_BYTES = 2**23
"""Encoded size that no node exceeds."""
INLINE_BYTES = 1024
"""Values up to this size are in the leaf nodes themselves. It is Orbax's setting."""
MAX_INLINE_BYTES = 2**20
"""The format's limit for a value in a leaf node."""
MAX_NAME_BYTES = 65535
"""The format's limit for a key, and for the path of a data file."""
MAX_OFFSET = 2**63 - 1
"""The format's limit for the end of a byte range."""

_SHOWN = 120
"""Number of characters of a key or path in a message."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A key and its value."""

    key: bytes
    """Any bytes, at most 65,535 of them."""
    value: bytes | Chunk
    """The bytes themselves, or where they are. `Chunk.file` is relative to the database's directory."""


@dataclass(frozen=True)
class IndexOptions:
    """How an index is written. Where identity and time are given, equal entries make equal files."""

    identity: uuid.UUID | None = None
    """The database's UUID, which also names its data file; None: random."""
    commit_time: int | None = None
    """Date of the version in nanoseconds since the epoch; None: now."""
    node_bytes: int = NODE_BYTES
    """Size that nodes do not exceed, unless a single entry, or two children, are larger."""
    inline_bytes: int = INLINE_BYTES
    """Size from which on values that come as bytes are written outside the nodes, to the data file."""


class _NodeFile:
    """The file that nodes and long values are appended to."""

    def __init__(self, name: str, file: BufferedWriter | BytesIO):
        self._name = name
        self._file = file
        self._end = 0

    def append(self, data: bytes) -> Chunk:
        self._file.write(data)
        chunk = Chunk(self._name, self._end, len(data))
        self._end += len(data)
        return chunk


def write_index(directory: Path, entries: Iterable[IndexEntry], options: IndexOptions | None = None) -> None:
    """Write a database of `entries` (in any order) into `directory`: `manifest.ocdbt` and one file in `d/`.

    The files that entries refer to need not exist yet: nothing is read from them. Nothing is synchronized
    with the disk.

    Raises PlanError for a key that occurs twice or is too long, SourceError for an impossible byte range,
    UsageError for sizes that the format does not allow, DestinationError where the directory holds a database
    already, StorageError where it cannot be written.
    """
    options = IndexOptions() if options is None else options
    keys, values = _checked(entries, options)
    identity = uuid.uuid4() if options.identity is None else options.identity
    name = f"d/{identity.hex}"
    with storage_errors(directory):
        if (directory / MANIFEST).exists():
            raise DestinationError(
                f"{shown(str(directory / MANIFEST))} exists already",
                hint="Write the index to an empty directory.",
            )
        (directory / "d").mkdir(parents=True, exist_ok=True)
        with open(directory / name, "xb") as file:
            height, root = _write_tree(_NodeFile(name, file), keys, values, options)
        with open(directory / MANIFEST, "xb") as manifest:
            manifest.write(_manifest(identity, options, height, root))


@dataclass(frozen=True)
class IndexBytes:
    """A database in memory, to be put into a store: the nodes, then the manifest that refers to them."""

    name: str
    """Name of the object with the nodes, relative to the database."""
    nodes: bytes
    manifest: bytes


def index_bytes(entries: Iterable[IndexEntry], options: IndexOptions | None = None) -> IndexBytes:
    """A database of `entries` (in any order), as bytes. Raises what `write_index` raises of entries."""
    options = IndexOptions() if options is None else options
    keys, values = _checked(entries, options)
    identity = uuid.uuid4() if options.identity is None else options.identity
    name, nodes = f"d/{identity.hex}", BytesIO()
    height, root = _write_tree(_NodeFile(name, nodes), keys, values, options)
    return IndexBytes(name, nodes.getvalue(), _manifest(identity, options, height, root))


def _checked(
    entries: Iterable[IndexEntry], options: IndexOptions
) -> tuple[Sequence[bytes], Sequence[bytes | Chunk]]:
    """Keys in order, and their values. Raises PlanError, SourceError, UsageError."""
    _check_options(options)
    ordered = sorted(entries, key=attrgetter("key"))
    keys = [entry.key for entry in ordered]
    values = [_plain(entry.value) for entry in ordered]
    _check_keys(keys)
    _check_ranges(keys, values)
    return keys, values


def _manifest(identity: uuid.UUID, options: IndexOptions, height: int, root: NodeReference | None) -> bytes:
    time_ns = time.time_ns() if options.commit_time is None else options.commit_time
    return manifest_bytes(identity.bytes, options.inline_bytes, time_ns, height, root)


def _check_options(options: IndexOptions) -> None:
    for what, value, limit in (
        ("node", options.node_bytes, MAX_NODE_BYTES),
        ("inline value", options.inline_bytes, MAX_INLINE_BYTES),
    ):
        if not 0 <= value <= limit:
            raise UsageError(
                f"The {what}s of an index cannot have {value} bytes", hint=f"Use 0 to {limit} bytes."
            )


def _plain(value: bytes | Chunk) -> bytes | Chunk:
    """The bytes of a chunk that is inline; everything else as it is."""
    return value if isinstance(value, bytes) or value.inline is None else value.inline


def _check_keys(keys: Sequence[bytes]) -> None:
    """Raises PlanError for a key that occurs twice or is too long; the keys are sorted."""
    for key, following in pairwise(keys):
        if key == following:
            raise PlanError(
                f"The key `{_shown(key)}` occurs twice in the index",
                hint="Give one of the two leaves another name.",
                code=Code.SAME_KEY,
            )
    longest = max(keys, key=len, default=b"")
    if len(longest) > MAX_NAME_BYTES:
        raise PlanError(
            f"The key `{_shown(longest)}` has {len(longest)} bytes, and an index allows {MAX_NAME_BYTES}",
            hint="Give the leaf a shorter name.",
            code=Code.UNSUITED,
        )


def _check_ranges(keys: Sequence[bytes], values: Sequence[bytes | Chunk]) -> None:
    seen: set[str] = set()
    for key, value in zip(keys, values, strict=True):
        if isinstance(value, bytes):
            continue
        if value.offset < 0 or value.length < 0 or value.offset + value.length > MAX_OFFSET:
            raise SourceError(
                f"`{_shown(key)}` cannot be {value.length} bytes at {value.offset} of "
                f"{_shortened(value.file)}"
            )
        if value.file not in seen:
            _check_file(value.file)
            seen.add(value.file)


def _check_file(file: str) -> None:
    """Raises SourceError unless it is a path below the directory that TensorStore's file driver accepts."""
    if not _is_below(file) or "\0" in file or file.endswith(".__lock") or not _is_encodable(file):
        raise SourceError(
            f"`{_shortened(file)}` cannot be the data file of an index", hint="Use a plain relative path."
        )
    if len(encoded_path(file)) > MAX_NAME_BYTES:
        raise SourceError(
            f"The path `{_shortened(file)}` is too long for the data file of an index",
            hint=f"Use at most {MAX_NAME_BYTES} bytes.",
        )


def _is_below(file: str) -> bool:
    return posixpath.normpath(file) == file and not file.startswith(("/", "../")) and file not in (".", "..")


def _is_encodable(file: str) -> bool:
    """Whether a path can be stored: it has no surrogates but those that stand for a byte."""
    try:
        return bool(encoded_path(file))
    except UnicodeEncodeError:
        return False


def _shown(key: bytes) -> str:
    return _shortened(key.decode("utf-8", "backslashreplace"))


def _shortened(text: str) -> str:
    return shown(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _write_tree(
    nodes: _NodeFile, keys: Sequence[bytes], values: Sequence[bytes | Chunk], options: IndexOptions
) -> tuple[int, NodeReference | None]:
    """Write all nodes, children before parents. The root's height (leaves have 0), and the root."""
    limit = options.inline_bytes
    stored = [nodes.append(v) if isinstance(v, bytes) and len(v) > limit else v for v in values]
    level = _write_leaves(nodes, keys, stored, options.node_bytes)
    height = 0
    while len(level) > 1:
        height += 1
        level = _write_interior(nodes, level, height, options.node_bytes)
    return height, level[0] if level else None


def _write_leaves(
    nodes: _NodeFile, keys: Sequence[bytes], values: Sequence[bytes | Chunk], node_bytes: int
) -> list[NodeReference]:
    shared = shared_bytes(keys)
    sizes = [
        len(key) - common + (len(value) if isinstance(value, bytes) else 0) + ENTRY_BYTES
        for key, common, value in zip(keys, shared, values, strict=True)
    ]
    files = [None if isinstance(value, bytes) else value.file for value in values]
    spans = _spans(sizes, shared, files, node_bytes, least=1)
    written = []
    for span in spans:
        inside = keys[span]
        node = nodes.append(leaf_node(inside, shared[span], values[span], len(spans) == 1))
        value_bytes = _saturated(value.length for value in values[span] if isinstance(value, Chunk))
        written.append(NodeReference(inside[0], inside[-1], node, len(inside), node.length, value_bytes))
    return written


def _write_interior(
    nodes: _NodeFile, children: Sequence[NodeReference], height: int, node_bytes: int
) -> list[NodeReference]:
    shared = shared_bytes([child.first for child in children])
    sizes = [len(child.first) - common + CHILD_BYTES for child, common in zip(children, shared, strict=True)]
    files = [child.location.file for child in children]
    spans = _spans(sizes, shared, files, node_bytes, least=2)
    written = []
    for span in spans:
        inside = children[span]
        node = nodes.append(interior_node(inside, shared[span], height, len(spans) == 1))
        written.append(
            NodeReference(
                *(inside[0].first, inside[-1].last, node),
                keys=sum(child.keys for child in inside),
                tree_bytes=sum(child.tree_bytes for child in inside) + node.length,
                value_bytes=_saturated(child.value_bytes for child in inside),
            )
        )
    return written


def _spans(
    sizes: Sequence[int], shared: Sequence[int], files: Sequence[str | None], node_bytes: int, least: int
) -> list[slice]:
    """Cut a level into nodes, each of as many entries as fit into `node_bytes`, but of at least `least`.

    The last node takes what is left. `sizes`: upper bound of each entry's bytes. `shared`: the bytes of its
    key besides those, which are stored with the entry before it if that is in the same node.
    """
    spans: list[slice] = []
    start, total, seen = 0, HEADER_BYTES, set[str | None]()
    for i, (size, file) in enumerate(zip(sizes, files, strict=True)):
        total += size if file in seen else size + file_bytes(file)
        seen.add(file)
        if total > node_bytes and i - start >= least:
            spans.append(slice(start, i))
            start, total, seen = i, HEADER_BYTES + shared[i] + size + file_bytes(file), {file}
    return [*spans, slice(start, len(sizes))] if sizes else []


def _saturated(lengths: Iterable[int]) -> int:
    """A sum, at most the largest number of the format (64 bits), which overlapping ranges can exceed."""
    return min(sum(lengths), 2**64 - 1)
