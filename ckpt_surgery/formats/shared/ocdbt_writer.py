"""Writing OCDBT databases as indexes: values are inline, or byte ranges of files that exist already.

A database of this kind makes bytes that lie anywhere below a directory readable under any keys,
without moving one of them. Source of the format: TensorStore's OCDBT documentation, "Storage format"
(https://google.github.io/tensorstore/kvstore/ocdbt/index.html#storage-format). Nodes and manifest are
written uncompressed.
"""

import posixpath
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EEXIST
from io import BufferedWriter
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import google_crc32c
import numpy as np

from ckpt_surgery.core.errors import DestinationError, PlanError, SourceError, StorageError, UsageError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.orbax_layout import MANIFEST

NODE_BYTES = 2**20
"""Encoded size of a B+tree node, unless told otherwise: larger ones make every open slow."""
MAX_NODE_BYTES = 2**23
"""Encoded size that no node exceeds."""
INLINE_BYTES = 1024
"""Values up to this size lie in the leaf nodes: Orbax's setting."""
MAX_INLINE_BYTES = 2**20
"""The format's limit for a value in a leaf node."""
MAX_NAME_BYTES = 65535
"""The format's limit for a key, and for the path of a data file."""
MAX_OFFSET = 2**63 - 1
"""The format's limit for the end of a byte range."""

_NODE_MAGIC = 0x0CDB20DE
_MANIFEST_MAGIC = 0x0CDB3A2A
_DECODED_NODE_BYTES = 100_000_000
"""Orbax's setting for nodes that are written later; another one would make it refuse the database."""
_VERSION_ARITY_LOG2 = 4
_ZSTD = b"\x01" + struct.pack("<i", 0)
"""For nodes that are written later: zstd at its default level, as TensorStore has it by default."""
_NOWHERE = 2**64 - 1
"""Offset and length of the root node of a database without keys."""
_HEADER_BYTES = 40
"""At most what a node has besides files and entries: header, height, counts, checksum."""
_ENTRY_BYTES = 30
"""At most what a leaf entry has besides its key and its inline value: six variable-length integers."""
_CHILD_BYTES = 64
"""At most what an interior entry has besides its key: nine variable-length integers."""
_FILE_BYTES = 9
"""At most what a data file has besides its path: three variable-length integers."""
_SHOWN = 120
"""Characters of a key or path in a message."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value."""

    key: bytes
    """At most 65,535 bytes; may be empty."""
    value: bytes | Chunk
    """The bytes themselves, or where they lie: `Chunk.file` is relative to the database's directory."""


@dataclass(frozen=True)
class IndexOptions:
    """How an index is written. With identity and time given, equal entries make equal files."""

    identity: uuid.UUID | None = None
    """The database's uuid, which also names its data file; None: random."""
    commit_time: int | None = None
    """Nanoseconds since the epoch that the version is dated with; None: now."""
    node_bytes: int = NODE_BYTES
    """Nodes are cut before they exceed this; only one entry (two children) may be larger than it."""
    inline_bytes: int = INLINE_BYTES
    """Longer values that come as bytes are written to the data file, outside the nodes."""


@dataclass(frozen=True, slots=True)
class _Child:
    """A node that is written, as its parent refers to it."""

    first: bytes
    """Smallest key below it."""
    last: bytes
    """Largest key below it."""
    location: Chunk
    keys: int
    """How many keys are below it."""
    tree_bytes: int
    """Encoded bytes of it and of all nodes below it."""
    value_bytes: int
    """Bytes of all values below it that are not inline."""


@dataclass(frozen=True)
class _Span:
    """The entries `start <= i < stop` of one level: one node."""

    start: int
    stop: int


class _DataFile:
    """The file that takes nodes and long values, one after another."""

    def __init__(self, name: str, file: BufferedWriter):
        self._name = name
        self._file = file
        self._end = 0

    def append(self, data: bytes) -> Chunk:
        self._file.write(data)
        chunk = Chunk(self._name, self._end, len(data))
        self._end += len(data)
        return chunk


def write_index(directory: Path, entries: Iterable[Entry], options: IndexOptions | None = None) -> None:
    """Write a database of `entries` (in any order) into `directory`: `manifest.ocdbt` and one file in `d/`.

    The files that entries refer to may come later; nothing is read from them, and nothing is synced.
    Raises PlanError for a key that comes twice or is too long, SourceError for a byte range that
    cannot be one, UsageError for sizes that the format does not allow, DestinationError where the
    directory holds a database, StorageError where it cannot be written.
    """
    options = IndexOptions() if options is None else options
    _check_options(options)
    ordered = sorted(entries, key=attrgetter("key"))
    keys = [entry.key for entry in ordered]
    values = [_plain(entry.value) for entry in ordered]
    _check_keys(keys)
    _check_ranges(keys, values)
    identity = uuid.uuid4() if options.identity is None else options.identity
    name = f"d/{identity.hex}"
    with _storage_errors(directory):
        if (directory / MANIFEST).exists():
            raise FileExistsError(EEXIST, "", str(directory / MANIFEST))
        (directory / "d").mkdir(parents=True, exist_ok=True)
        with open(directory / name, "xb") as file:
            height, root = _write_tree(_DataFile(name, file), keys, values, options)
        with open(directory / MANIFEST, "xb") as manifest:
            manifest.write(_manifest(identity.bytes, options, height, root))


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
    """A chunk that is inline as its bytes."""
    return value if isinstance(value, bytes) or value.inline is None else value.inline


def _check_keys(keys: Sequence[bytes]) -> None:
    """`keys` are sorted."""
    for key, following in pairwise(keys):
        if key == following:
            raise PlanError(
                f"The key `{_shown(key)}` comes twice in the index",
                hint="Give one of the two leaves another name.",
            )
    longest = max(keys, key=len, default=b"")
    if len(longest) > MAX_NAME_BYTES:
        raise PlanError(
            f"The key `{_shown(longest)}` has {len(longest)} bytes, an index takes {MAX_NAME_BYTES}",
            hint="Give the leaf a shorter name.",
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
    """A path below the directory, spelled as TensorStore's file driver takes it."""
    if not _is_below(file) or "\0" in file or file.endswith(".__lock") or not _is_encodable(file):
        raise SourceError(
            f"`{_shortened(file)}` cannot be the data file of an index", hint="Use a plain relative path."
        )
    if len(_encoded(file)) > MAX_NAME_BYTES:
        raise SourceError(
            f"The path `{_shortened(file)}` is too long for the data file of an index",
            hint=f"Use at most {MAX_NAME_BYTES} bytes.",
        )


def _is_below(file: str) -> bool:
    return posixpath.normpath(file) == file and not file.startswith(("/", "../")) and file not in (".", "..")


def _is_encodable(file: str) -> bool:
    """Surrogates that do not stand for a byte have no place in a path."""
    try:
        return bool(_encoded(file))
    except UnicodeEncodeError:
        return False


def _shown(key: bytes) -> str:
    return _shortened(key.decode("utf-8", "backslashreplace"))


def _shortened(text: str) -> str:
    return shown(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _encoded(file: str) -> bytes:
    return file.encode("utf-8", "surrogateescape")


@contextmanager
def _storage_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise DestinationError(
            f"{shown(str(error.filename))} exists already", hint="Write the index to an empty directory."
        ) from error
    except OSError as error:
        raise StorageError(
            f"Writing the index in {shown(str(directory))} failed: {error.strerror}",
            hint="Check the free space and the permissions of the destination.",
        ) from error


def _write_tree(
    data: _DataFile, keys: Sequence[bytes], values: Sequence[bytes | Chunk], options: IndexOptions
) -> tuple[int, _Child | None]:
    """Write all nodes, children before parents: the root's height (leaves have 0) and the root."""
    limit = options.inline_bytes
    stored = [data.append(v) if isinstance(v, bytes) and len(v) > limit else v for v in values]
    level = _write_leaves(data, keys, stored, options.node_bytes)
    height = 0
    while len(level) > 1:
        height += 1
        level = _write_interior(data, level, height, options.node_bytes)
    return height, level[0] if level else None


def _write_leaves(
    data: _DataFile, keys: Sequence[bytes], values: Sequence[bytes | Chunk], node_bytes: int
) -> list[_Child]:
    shared = _shared(keys)
    sizes = [
        len(key) - common + (len(value) if isinstance(value, bytes) else 0) + _ENTRY_BYTES
        for key, common, value in zip(keys, shared, values, strict=True)
    ]
    files = [None if isinstance(value, bytes) else value.file for value in values]
    spans = _spans(sizes, shared, files, node_bytes, least=1)
    return [_write_leaf(data, keys, shared, values, span, len(spans) == 1) for span in spans]


def _write_leaf(
    data: _DataFile,
    keys: Sequence[bytes],
    shared: Sequence[int],
    values: Sequence[bytes | Chunk],
    span: _Span,
    root: bool,
) -> _Child:
    inside = keys[span.start : span.stop]
    lengths, suffixes = _key_columns(
        inside, shared[span.start : span.stop], _skipped(inside[0], inside[-1], root)
    )
    values = values[span.start : span.stop]
    inline = [value for value in values if isinstance(value, bytes)]
    ranges = [value for value in values if isinstance(value, Chunk)]
    table, places = _file_table({chunk.file for chunk in ranges})
    parts = [
        *(b"\0", table, _varints([len(inside)]), lengths, suffixes),
        _varints([len(value) if isinstance(value, bytes) else value.length for value in values]),
        bytes([isinstance(value, Chunk) for value in values]),
        _varints([places[chunk.file] for chunk in ranges]),
        _varints([chunk.offset for chunk in ranges]),
        *inline,
    ]
    node = data.append(_framed(_NODE_MAGIC, parts))
    value_bytes = _saturated(chunk.length for chunk in ranges)
    return _Child(inside[0], inside[-1], node, len(inside), node.length, value_bytes)


def _write_interior(
    data: _DataFile, children: Sequence[_Child], height: int, node_bytes: int
) -> list[_Child]:
    shared = _shared([child.first for child in children])
    sizes = [len(child.first) - common + _CHILD_BYTES for child, common in zip(children, shared, strict=True)]
    files = [child.location.file for child in children]
    spans = _spans(sizes, shared, files, node_bytes, least=2)
    return [_write_parent(data, children, shared, span, height, len(spans) == 1) for span in spans]


def _write_parent(
    data: _DataFile, children: Sequence[_Child], shared: Sequence[int], span: _Span, height: int, root: bool
) -> _Child:
    inside = children[span.start : span.stop]
    skipped = _skipped(inside[0].first, inside[-1].last, root)
    firsts = [child.first for child in inside]
    lengths, suffixes = _key_columns(firsts, shared[span.start : span.stop], skipped)
    table, places = _file_table({child.location.file for child in inside})
    parts = (
        *(bytes([height]), table, _varints([len(inside)]), lengths),
        _varints([_common(child.first, child.last) - skipped for child in inside]),
        suffixes,
        _references(inside, places),
    )
    node = data.append(_framed(_NODE_MAGIC, parts))
    return _Child(
        *(inside[0].first, inside[-1].last, node),
        keys=sum(child.keys for child in inside),
        tree_bytes=sum(child.tree_bytes for child in inside) + node.length,
        value_bytes=_saturated(child.value_bytes for child in inside),
    )


def _references(children: Sequence[_Child], places: dict[str, int]) -> bytes:
    """Where nodes are, and the statistics of their subtrees."""
    columns = (
        [places[child.location.file] for child in children],
        [child.location.offset for child in children],
        [child.location.length for child in children],
        [child.keys for child in children],
        [child.tree_bytes for child in children],
        [child.value_bytes for child in children],
    )
    return b"".join(map(_varints, columns))


def _spans(
    sizes: Sequence[int], shared: Sequence[int], files: Sequence[str | None], node_bytes: int, least: int
) -> list[_Span]:
    """Cut a level into nodes: each as many entries as fit into `node_bytes`, but at least `least`.

    The last node takes what is left. `sizes`: upper bound of each entry's bytes; `shared`: bytes of its
    key beyond those, stored with the entry before, if the node has one.
    """
    spans: list[_Span] = []
    start, total, seen = 0, _HEADER_BYTES, set[str | None]()
    for i, (size, file) in enumerate(zip(sizes, files, strict=True)):
        total += size if file in seen else size + _file_bytes(file)
        seen.add(file)
        if total > node_bytes and i - start >= least:
            spans.append(_Span(start, i))
            start, total, seen = i, _HEADER_BYTES + shared[i] + size + _file_bytes(file), {file}
    return [*spans, _Span(start, len(sizes))] if sizes else []


def _file_bytes(file: str | None) -> int:
    """At most what a data file adds to a node; None: the value is inline."""
    return 0 if file is None else len(_encoded(file)) + _FILE_BYTES


def _saturated(lengths: Iterable[int]) -> int:
    """Their sum as the format counts: ranges may overlap, so it can be more than 64 bits hold."""
    return min(sum(lengths), 2**64 - 1)


def _skipped(first: bytes, last: bytes, root: bool) -> int:
    """Bytes of all keys of a node that its parent stores."""
    return 0 if root else _common(first, last)


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two strings have in common from their start."""
    length = min(len(one), len(other))
    differing = int.from_bytes(one[:length], "big") ^ int.from_bytes(other[:length], "big")
    return length - (differing.bit_length() + 7) // 8


def _shared(keys: Sequence[bytes]) -> list[int]:
    """How many bytes each key has in common with the one before it."""
    return [0, *(_common(one, other) for one, other in pairwise(keys))] if keys else []


def _key_columns(keys: Sequence[bytes], shared: Sequence[int], skipped: int) -> tuple[bytes, bytes]:
    """Keys without what each has in common with the one before: the columns of lengths, and the rest.

    The parent stores the first `skipped` bytes of every key.
    """
    starts = [skipped, *shared[1:]]
    prefixes = _varints([start - skipped for start in starts[1:]])
    lengths = _varints([len(key) - start for key, start in zip(keys, starts, strict=True)])
    suffixes = b"".join([key[start:] for key, start in zip(keys, starts, strict=True)])
    return prefixes + lengths, suffixes


def _file_table(files: set[str]) -> tuple[bytes, dict[str, int]]:
    """The node's table of data files, and the place of each in it.

    All paths are relative to the database, so that no node inherits a base path from another.
    """
    named = sorted((_encoded(file), file) for file in files)
    paths = [path for path, _ in named]
    if not paths:
        return _varints([0]), {}
    lengths, suffixes = _key_columns(paths, _shared(paths), 0)
    table = (_varints([len(paths)]), lengths, bytes(len(paths)), suffixes)
    return b"".join(table), {file: i for i, (_, file) in enumerate(named)}


def _varints(values: Sequence[int]) -> bytes:
    """Unsigned integers below 2**64, each in groups of seven bits, the lowest first (LEB128)."""
    if not values or max(values) < 0x80:
        return bytes(values)
    groups = np.array(values, np.uint64)[:, None] >> np.arange(0, 64, 7, dtype=np.uint64)
    used = groups != 0
    used[:, 0] = True
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[:, :-1] |= used[:, 1:].astype(np.uint8) << 7  # another group follows
    return bytes(encoded[used])


def _framed(magic: int, parts: Iterable[bytes]) -> bytes:
    """What nodes and manifests have in common: magic, length, version 0, no compression, …, CRC-32C."""
    body = b"".join([b"\0\0", *parts])
    data = struct.pack(">I", magic) + struct.pack("<Q", 12 + len(body) + 4) + body
    return data + struct.pack("<I", google_crc32c.value(data))


def _manifest(identity: bytes, options: IndexOptions, height: int, root: _Child | None) -> bytes:
    """The configuration and the one version: generation 1. Without a root, a database without keys."""
    if root is None:
        root = _Child(b"", b"", Chunk("", _NOWHERE, _NOWHERE), 0, 0, 0)
    table, places = _file_table({root.location.file})
    time_ns = time.time_ns() if options.commit_time is None else options.commit_time
    parts = (
        identity,
        _varints([0, options.inline_bytes, _DECODED_NODE_BYTES, _VERSION_ARITY_LOG2]),  # 0: a single file
        _ZSTD,
        table,
        _varints([1, 1]),  # one version, whose generation is 1
        bytes([height]),
        _references([root], places),
        struct.pack("<Q", time_ns),
        _varints([0]),  # no older versions
    )
    return _framed(_MANIFEST_MAGIC, parts)
