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

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.store_failures import store_access_error
from ckpt_surgery.storage.failures import DAMAGED, missing
from ckpt_surgery.storage.reading import read_file
from ckpt_surgery.storage.store import Range
from ckpt_surgery.storage.stores import store_of
from ckpt_surgery.storage.views import VIEW

MANIFEST = "manifest.ocdbt"

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
_NODES_AT_ONCE = 64
"""Largest number of nodes decoded at the same time; each can have several MB."""


def store_message(error: BaseException) -> str:
    """The reason in TensorStore's message, and the name of what it read or wrote: `"w/c/0/0": no such chunk`.

    What is left out are the status, the steps on the way, places in its code, and specs.
    """
    text, name = _STATUS.sub("", _DETAILS.sub("", str(error))), ""
    while match := _DOING.match(text):
        text, name = text[match.end() :], f'"{match[1]}": '
    return shown(f"{name}{text}")


@dataclass(frozen=True)
class Database:
    """One version of an OCDBT database: its directory and all its entries."""

    directory: str
    generation: int
    """Number of the version; reading uses this version even where newer ones exist."""
    entries: Mapping[bytes, bytes | str]
    """Values by key: the value itself where it is inline, else its location as `ts.ocdbt.dump` spells it."""

    def locate(self, key: bytes) -> Chunk | None:
        """Where the value of a key lies; None without such a key. Raises SourceError for a bad location."""
        entry = self.entries.get(key)
        if isinstance(entry, bytes):
            return Chunk("", 0, len(entry), entry)
        if entry is None:
            return None
        match = _LOCATION.fullmatch(entry)
        if match is None:
            raise SourceError(
                f"the database refers to a value at `{shown(entry)}`, which is not a location", hint=DAMAGED
            )
        base, path, offset, length = match.groups()
        return Chunk(_path(self.directory, base, path), int(offset), int(length))

    def value(self, key: bytes) -> bytes | None:
        """The value of a key; None where the database has no such key. SourceError where it is unreadable."""
        entry = self.entries.get(key)
        if isinstance(entry, str):  # large metadata; rare, so opening the store for each is fast enough
            found = _dump(_base(self.directory), entry, self.directory)
            assert isinstance(found, bytes)
            return found
        return entry


@functools.lru_cache(maxsize=1024)
def _path(directory: str, base: str, path: str) -> str:
    """The path of a data file, always below the database's directory whatever its name in the database."""
    return os.path.join(directory, "") + _unquoted(base, path)


def _unquoted(base: str, path: str) -> str:
    """The path of a data file, relative to the database."""
    return unquote(base, errors="surrogateescape") + unquote(path, errors="surrogateescape")


class _Directory:
    """A database in a directory of the file system, which TensorStore reads."""

    def __init__(self, directory: str):
        import tensorstore as ts

        self._store = ts.KvStore.open({"driver": "file", "path": f"{directory}/"}).result()

    def ask(self, locations: Sequence[str | None]) -> list[Any]:
        """Futures of what is at these locations; None is the manifest."""
        import tensorstore as ts

        return [ts.ocdbt.dump(self._store, location) for location in locations]


class _Bucket:
    """A database in an object store: its bytes are read through the store, and decoded in memory."""

    def __init__(self, directory: str):
        self._directory = directory

    def ask(self, locations: Sequence[str | None]) -> list[Any]:
        """The same as of a directory. All locations are read at the same time."""
        store, _ = store_of(self._directory)
        if locations == [None]:
            return [_decoded(MANIFEST, read_file(os.path.join(self._directory, MANIFEST)), None)]
        places = [_place(str(location)) for location in locations]
        ranges = []
        for path, start, length in places:
            url = os.path.join(self._directory, path)
            found = VIEW.stat(url)
            if found is None:
                raise missing(url)
            ranges.append(Range(store_of(url)[1], start, start + length, found.version))
        found_ones = zip(places, locations, store.read_many(ranges), strict=True)
        return [_decoded(path, data, location) for (path, _, _), location, data in found_ones]


_Base = _Directory | _Bucket


def _place(location: str) -> tuple[str, int, int]:
    """The path of the data file, the offset and the length in a location's text."""
    _, base, path, offset, length = location.split(":")
    return _unquoted(base, path), int(offset), int(length)


def _decoded(path: str, data: bytes, location: str | None) -> Any:
    """A future of what TensorStore decodes of bytes: a store in memory has them, and nothing else.

    The bytes are at the beginning of the data file there, wherever they were in the real one.
    """
    import tensorstore as ts

    memory = ts.KvStore.open({"driver": "memory"}, context=ts.Context()).result()
    memory.write(path.encode("utf-8", "surrogateescape"), data).result()
    if location is None:
        return ts.ocdbt.dump(memory)
    kind, base, name, _, length = location.split(":")
    return ts.ocdbt.dump(memory, f"{kind}:{base}:{name}:0:{length}")


def _base(directory: str) -> _Base:
    return _Bucket(directory) if urls.is_url(directory) else _Directory(directory)


def _dump(base: _Base, location: str | None, directory: str) -> Any:
    return _result(base.ask([location])[0], location, directory)


def _result(future: Any, location: str | None, directory: str) -> Any:
    try:
        return future.result()
    except STORE_ERRORS as error:
        what = f"{directory}/{MANIFEST}" if location is None else f"{directory} ({location})"
        raise store_access_error(what, error) or SourceError(
            f"The index of the OCDBT database cannot be read: {shown(what)}: {store_message(error)}",
            hint=DAMAGED,
        ) from error


def read_database(directory: str) -> Database:
    """Walk the newest version of the database in `directory`. Reads no values but inline ones.

    Raises SourceError where the manifest or a node is missing, truncated or fails its checksum, StorageError
    where the system does not let one be read.
    """
    return begin_reading(directory)()


def begin_reading(directory: str) -> Callable[[], Database]:
    """Read the manifest and let TensorStore's threads decode the root; calling the result does the rest.

    Both raise what `read_database` does.
    """
    base = _base(directory)
    manifest = _dump(base, None, directory)
    versions = (manifest or {}).get("versions")
    if not versions:
        raise SourceError(
            f"{shown(directory)}/{MANIFEST} is missing or has no version",
            hint="The save was not finished; use a checkpoint that was.",
        )
    newest = versions[-1]
    location = newest["root"].get("location")
    root = None if location is None else base.ask([location])[0]

    def finish() -> Database:
        entries: dict[bytes, bytes | str] = {}
        if root is not None:
            top = _result(root, location, directory)
            for prefix, node in _leaf_nodes(base, top, location, newest["root_height"], directory):
                for entry in node["entries"]:
                    value = entry["inline_value"] if "inline_value" in entry else entry["indirect_value"]
                    entries[prefix + entry["key"]] = value
        return Database(directory, newest["generation_number"], entries)

    return finish


def _leaf_nodes(
    base: _Base, root: Any, location: str, height: int, directory: str
) -> Iterator[tuple[bytes, Any]]:
    """Every leaf node with the common prefix that its keys omit, level by level."""
    nodes: Iterable[tuple[bytes, Any]] = [(b"", root)]
    seen = {location}
    for remaining in range(height, -1, -1):
        below: list[tuple[bytes, str]] = []
        for prefix, node in nodes:
            if node["height"] != remaining:
                raise SourceError(f"{shown(directory)}: a B+tree node is at the wrong height", hint=DAMAGED)
            if remaining == 0:
                yield prefix, node
                continue
            for entry in node["entries"]:
                if entry["location"] in seen:
                    raise SourceError(f"{shown(directory)}: the B+tree reaches a node twice", hint=DAMAGED)
                seen.add(entry["location"])
                below.append((prefix + entry["subtree_common_prefix"], entry["location"]))
        nodes = _nodes(base, below, directory)


def _nodes(base: _Base, level: list[tuple[bytes, str]], directory: str) -> Iterator[tuple[bytes, Any]]:
    for start in range(0, len(level), _NODES_AT_ONCE):
        part = level[start : start + _NODES_AT_ONCE]
        futures = base.ask([location for _, location in part])
        for (prefix, location), future in zip(part, futures, strict=True):
            yield prefix, _result(future, location, directory)
