"""Reading the index of OCDBT databases: every key and where its value lies, in one walk of the B+tree.

Source: TensorStore's OCDBT documentation; `ts.ocdbt.dump` decodes manifest and nodes and checks
their checksums.
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.orbax_layout import MANIFEST
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.reading import read_file, read_ranges

STORE_ERRORS = (
    *(ValueError, KeyError, IndexError, OverflowError, TypeError),
    *(NotImplementedError, RuntimeError, OSError),
)
"""Exceptions that TensorStore raises for its status codes."""

_STATUS = re.compile(r"^[A-Z_]+: ")
"""The status at the beginning of a message: `DATA_LOSS: `."""
_DOING = re.compile(r'Error (?:reading|writing|opening) [^"]*"([^"]*)"[^":]*(?:"[^"]*"[^":]*)*: (?=.)')
"""One step of what was being done: `Error reading "a/c/0" in OCDBT database at local file "/x/": `."""
_DETAILS = re.compile(r"\s*\[(source locations|tensorstore_spec|gl_status)\s*=.*", re.DOTALL)
_LOCATION = re.compile(r"value:([^:]*):([^:]*):(\d+):(\d+)")


def store_message(error: BaseException) -> str:
    """The reason in TensorStore's message, and what it read or wrote: `"w/c/0/0": no such chunk`."""
    text, name = _STATUS.sub("", _DETAILS.sub("", str(error))), ""
    while match := _DOING.match(text):
        text, name = text[match.end() :], f'"{match[1]}": '
    return shown(f"{name}{text}")


@dataclass(frozen=True)
class Database:
    """One version of an OCDBT database: its directory and all its entries."""

    directory: str
    entries: Mapping[bytes, bytes | str]
    """Values by key: the value itself where it is inline, else its location as `ts.ocdbt.dump` spells it."""

    def locate(self, key: bytes) -> Chunk | None:
        """Place of a key's value; None without such a key. Raises SourceError for a bad location."""
        entry = self.entries.get(key)
        if isinstance(entry, bytes):
            return Chunk("", 0, len(entry), entry)
        if entry is None:
            return None
        match = _LOCATION.fullmatch(entry)
        if match is None:
            raise damaged(f"the database refers to a value at `{shown(entry)}`, which is not a location")
        base, path, offset, length = match.groups()
        return Chunk(_path(self.directory, base, path), int(offset), int(length))

    def value(self, key: bytes) -> bytes | None:
        """The value of a key; None where the database has no such key. SourceError where it is unreadable."""
        entry = self.entries.get(key)
        if not isinstance(entry, str):
            return entry
        chunk = self.locate(key)  # large metadata
        assert chunk is not None
        return next(read_ranges([chunk], {}))


@functools.lru_cache(maxsize=1024)
def _path(directory: str, base: str, path: str) -> str:
    """The path of a data file. Raises SourceError for a path that leads out of the database's directory."""
    inside = unquote(base + path, errors="surrogateescape")
    if not inside or any(part in ("", ".", "..") for part in inside.split("/")) or "\0" in inside:
        what = f"{shown(directory)}: the database refers to a file `{shown(inside)}`, which is not below it"
        raise damaged(what)
    return os.path.join(directory, "") + inside


def _decoding(directory: str, locations: Sequence[str]) -> list[Any]:
    """Futures of the nodes at these locations. Their bytes are read here; those in a bucket together."""
    parts = [location.split(":") for location in locations]
    chunks = [Chunk(_path(directory, *part[1:3]), int(part[3]), int(part[4])) for part in parts]
    return [
        # The bytes are at the beginning of the data file in memory, wherever they were in the real one.
        _dumped(unquote(base + path, errors="surrogateescape"), data, f"{kind}:{base}:{path}:0:{length}")
        for (kind, base, path, _, length), data in zip(parts, read_ranges(chunks, {}), strict=True)
    ]


def _dumped(path: str, data: bytes, location: str | None) -> Any:
    """A future of what TensorStore decodes of bytes: a store in memory has them, and nothing else."""
    import tensorstore as ts

    memory = ts.KvStore.open({"driver": "memory"}, context=ts.Context()).result()
    memory.write(path.encode("utf-8", "surrogateescape"), data).result()
    return ts.ocdbt.dump(memory, location)


def _result(future: Any, location: str | None, directory: str) -> Any:
    try:
        return future.result()
    except STORE_ERRORS as error:
        what = f"{directory}/{MANIFEST}" if location is None else f"{directory} ({location})"
        raise damaged(
            f"The index of the OCDBT database cannot be read: {shown(what)}: {store_message(error)}"
        ) from error


def begin_reading(directory: str) -> Callable[[], Database]:
    """Read the manifest and let TensorStore's threads decode the root; calling the result does the rest.

    The rest is a walk of the newest version, which reads no values but inline ones.
    """
    data = read_file(os.path.join(directory, MANIFEST))
    manifest = _result(_dumped(MANIFEST, data, None), None, directory)
    versions = (manifest or {}).get("versions")
    if not versions:
        what = f"{shown(directory)}/{MANIFEST} has no version"
        raise SourceError(what, hint="The save was not finished; use a checkpoint that was.")
    newest = versions[-1]
    location = newest["root"].get("location")
    root = None if location is None else _decoding(directory, [location])[0]

    def finish() -> Database:
        entries: dict[bytes, bytes | str] = {}
        if root is not None:
            top = _result(root, location, directory)
            for prefix, node in _leaf_nodes(directory, top, location, newest["root_height"]):
                for entry in node["entries"]:
                    value = entry["inline_value"] if "inline_value" in entry else entry["indirect_value"]
                    entries[prefix + entry["key"]] = value
        return Database(directory, entries)

    return finish


def _leaf_nodes(directory: str, root: Any, location: str, height: int) -> Iterator[tuple[bytes, Any]]:
    """Leaf nodes with the common prefixes that their keys omit, level by level."""
    nodes: Iterable[tuple[bytes, Any]] = [(b"", root)]
    seen = {location}
    for remaining in range(height, -1, -1):
        below: list[tuple[bytes, str]] = []
        for prefix, node in nodes:
            if node["height"] != remaining:
                raise damaged(f"{shown(directory)}: a B+tree node is at the wrong height")
            if remaining == 0:
                yield prefix, node
                continue
            for entry in node["entries"]:
                if entry["location"] in seen:
                    raise damaged(f"{shown(directory)}: the B+tree reaches a node twice")
                seen.add(entry["location"])
                below.append((prefix + entry["subtree_common_prefix"], entry["location"]))
        nodes = _nodes(directory, below)


def _nodes(directory: str, level: list[tuple[bytes, str]]) -> Iterator[tuple[bytes, Any]]:
    for start in range(0, len(level), 64):  # decoded at the same time, as each can have several MB
        part = level[start : start + 64]
        futures = _decoding(directory, [location for _, location in part])
        for (prefix, location), future in zip(part, futures, strict=True):
            yield prefix, _result(future, location, directory)
