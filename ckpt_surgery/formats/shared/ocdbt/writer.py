"""Writing OCDBT databases as indexes: values are inline, or byte ranges of files that exist already.

A database of this kind makes bytes that lie anywhere below a directory readable under any keys, without
moving them. `ocdbt.nodes` has the format of its nodes.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.ocdbt.nodes import (
    CHILD_BYTES,
    ENTRY_BYTES,
    HEADER_BYTES,
    NodeReference,
    file_bytes,
    interior_node,
    leaf_node,
    manifest_bytes,
    shared_bytes,
)

NODE_BYTES = 2**20
"""Encoded size of a B+tree node, unless one entry or two children are larger. Large ones delay opening."""
INLINE_BYTES = 1024
"""Values up to this size are in the leaf nodes themselves. It is Orbax's setting."""
MAX_KEY_BYTES = 65535
"""The format's limit for a key."""

_SHOWN = 120
"""Number of characters of a key or path in a message."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A key and its value."""

    key: bytes
    """Any bytes, at most 65,535 of them."""
    value: bytes | Chunk
    """The bytes themselves, or where they are: not an inline chunk, and `file` relative to the database."""


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
    _check_keys(keys)
    identity = uuid.uuid4()  # which also names the file of nodes
    nodes = _NodeFile(f"d/{identity.hex}")
    height, root = _write_tree(nodes, keys, [entry.value for entry in ordered])
    manifest = manifest_bytes(identity.bytes, INLINE_BYTES, time.time_ns(), height, root)
    return DatabaseFiles(nodes.name, nodes.parts, manifest)


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
    if len(longest) > MAX_KEY_BYTES:
        raise PlanError(
            f"The key `{_shown(longest)}` has {len(longest)} bytes, and an index allows {MAX_KEY_BYTES}",
            hint="Give the leaf a shorter name.",
            code=Code.UNSUITED,
        )


def _shown(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return shown(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _write_tree(
    nodes: _NodeFile, keys: Sequence[bytes], values: Sequence[bytes | Chunk]
) -> tuple[int, NodeReference | None]:
    """Write all nodes, children before parents. The root's height (leaves have 0), and the root."""
    stored = [nodes.append(v) if isinstance(v, bytes) and len(v) > INLINE_BYTES else v for v in values]
    level = _write_leaves(nodes, keys, stored)
    height = 0
    while len(level) > 1:
        height += 1
        level = _write_interior(nodes, level, height)
    return height, level[0] if level else None


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
        value_bytes = _saturated(value.length for value in values[span] if isinstance(value, Chunk))
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
                value_bytes=_saturated(child.value_bytes for child in inside),
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


def _saturated(lengths: Iterable[int]) -> int:
    """A sum, at most the largest number of the format (64 bits), which overlapping ranges can exceed."""
    return min(sum(lengths), 2**64 - 1)
