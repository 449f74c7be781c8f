"""One worker's part of an Orbax item in an object store: encoded chunks, gathered into objects of their own.

Objects cannot be appended to, so chunks are encoded in memory, and small ones wait until there are enough for
an object. What lies where is noted in small JSON objects beside the data, from which another process makes
the index, or the same worker goes on after a crash.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.orbax.tree import array_name, array_prefix
from ckpt_surgery.formats.shared.orbax_layout import PROCESS_PREFIX
from ckpt_surgery.formats.shared.zarr.memory import MemoryArray
from ckpt_surgery.formats.shared.zarr.outputs import definition
from ckpt_surgery.formats.shared.zarr.writing import chunk_name, store_errors
from ckpt_surgery.storage.copy_sources import copy_object, read_chunk, upload_chunk
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.store import Range
from ckpt_surgery.storage.stores import store_of

INLINE_BYTES = 1024
"""Values up to this size are in the index itself, as Orbax writes them."""
OBJECT_BYTES = 32 << 20
"""Gathered values become an object when they have this size together; a larger one is an object alone."""
IN_FLIGHT = 32
"""Largest number of objects that the store copies at the same time."""
NOTES = "part-"
"""Beginning of the names of the objects that say what lies where."""

Entries = dict[bytes, bytes | Chunk]
"""Values by key: inline, or where they lie, relative to the item."""


class ObjectWriter:
    """Writes encoded chunks below the item's prefix in a store. Thread-safe."""

    def __init__(self, item: str, zarr: int, outputs: Sequence[Output], worker: str):
        self._store, name = store_of(item)
        self._prefix = f"{name}/" if name else ""
        self._directory = f"{PROCESS_PREFIX}{worker}/"
        self._zarr = zarr
        self._definitions = {
            array_name(o.leaf.key): definition(o, zarr) for o in outputs if o.leaf.spec is not None
        }
        self._entries = written_by(item, worker)
        self._new: Entries = {}
        """Entries that are not noted yet."""
        self._waiting: list[tuple[bytes, bytes]] = []
        """Values that wait for their object, with their keys."""
        self._nbytes = 0
        self._objects: set[str] = set()
        """URLs of the objects that were copied whole."""
        self._copies: list[Future[None]] = []
        """Copies that nobody has waited for yet."""
        self._room = threading.Semaphore(2 * IN_FLIGHT)
        """Limits the copies that are asked for: those are carried out even if the run ends."""
        self._lock = threading.Lock()

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Copy the stored bytes of an output, or have the store copy the objects that hold them.

        Raises StorageError, SourceError.
        """
        assert output.stored is not None
        prefix = array_prefix(array_name(output.leaf.key))
        if not output.copied:
            self._take(output.stored, prefix)
            return TaskResult()
        crcs = {}
        for index, chunk in output.stored.chunks.items():
            key = (prefix + chunk_name(index, self._zarr)).encode()
            if chunk.inline is not None:
                self._note({key: chunk.inline})
            elif index in known and self._holds(key, known[index]):
                crcs[index] = known[index]
            else:
                crcs[index] = self._copy(key, chunk)
        return TaskResult(crcs)

    def _take(self, stored: Manifest, prefix: str) -> None:
        """Have the store copy whole objects, each once, and note where the chunks lie in them."""
        places: Entries = {}
        for index, chunk in stored.chunks.items():
            key = (prefix + chunk_name(index, self._zarr)).encode()
            if chunk.inline is not None:
                places[key] = chunk.inline
            else:
                places[key] = Chunk(self._taken(chunk.file), chunk.offset, chunk.length)
        self._note(places)

    def _taken(self, url: str) -> str:
        """The name, relative to the item, of the copy of an object, which is there after `flush`."""
        name = f"{self._directory}d/{hashlib.blake2b(url.encode(), digest_size=16).hexdigest()}"
        with self._lock:
            if url in self._objects:
                return name
            self._objects.add(url)
        self._room.acquire()
        copy = self._pool.submit(copy_object, url, self._store, f"{self._prefix}{name}")
        copy.add_done_callback(lambda _: self._room.release())
        with self._lock:
            self._copies.append(copy)
        return name

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="copy")

    def _copy(self, key: bytes, chunk: Chunk) -> int:
        if chunk.length > OBJECT_BYTES:
            file = self._new_object()
            crc = upload_chunk(chunk, self._store, f"{self._prefix}{file}")
            self._note({key: Chunk(file, 0, chunk.length)})
            return crc
        data = read_chunk(chunk)
        self._add([(key, data)])
        return bytes_crc(data)

    def _holds(self, key: bytes, crc: int) -> bool:
        value = self._entries.get(key)
        if value is None:
            return False
        return bytes_crc(self._value(value)) == crc

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks. Raises StorageError."""
        name = array_name(output.leaf.key)
        with store_errors(f"`{shown(output.leaf.key.printed)}`"):
            values = MemoryArray(self._zarr, self._definitions[name]).encoded(region, block)
        prefix = array_prefix(name)
        self._add([((prefix + chunk).encode(), value) for chunk, value in values.items()])

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region, as they were written. Raises SourceError where they were not."""
        name = array_name(output.leaf.key)
        prefix = array_prefix(name).encode()
        with self._lock:
            found = {k: v for k, v in self._entries.items() if k.startswith(prefix)}
        chunks = {key.removeprefix(prefix).decode(): self._value(value) for key, value in found.items()}
        try:
            return MemoryArray(self._zarr, self._definitions[name]).decoded(region, chunks)
        except ValueError as error:
            raise SourceError(f"`{shown(name)}` is missing: {shown(str(error))}", hint=DAMAGED) from error

    def flush(self) -> None:
        """Put what waits, and note what lies where. Raises StorageError."""
        with self._lock:
            waiting, self._waiting, self._nbytes = self._waiting, [], 0
        self._put(waiting)
        with self._lock:
            new, self._new = self._new, {}
            copies, self._copies = self._copies, []
        wait(copies)  # all of them, so that a run that fails knows what it has to remove
        for copy in copies:
            copy.result()
        if new:
            name = f"{self._prefix}{self._directory}{NOTES}{secrets.token_hex(16)}.json"
            self._store.put(name, _notes(new))

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """None: everything is in objects."""
        return ()

    def _add(self, values: Sequence[tuple[bytes, bytes]]) -> None:
        """Take values, and put those that are enough for an object."""
        self._note({key: value for key, value in values if len(value) <= INLINE_BYTES})
        full: list[list[tuple[bytes, bytes]]] = []
        with self._lock:
            for key, value in values:
                if len(value) <= INLINE_BYTES:
                    continue
                if len(value) >= OBJECT_BYTES:
                    full.append([(key, value)])
                    continue
                self._waiting.append((key, value))
                self._nbytes += len(value)
                if self._nbytes >= OBJECT_BYTES:
                    full.append(self._waiting)
                    self._waiting, self._nbytes = [], 0
        for together in full:
            self._put(together)

    def _put(self, values: Sequence[tuple[bytes, bytes]]) -> None:
        """Put an object of these values, one after another."""
        if not values:
            return
        file = self._new_object()
        data = values[0][1] if len(values) == 1 else b"".join(value for _, value in values)
        self._store.put(f"{self._prefix}{file}", data)
        places: Entries = {}
        at = 0
        for key, value in values:
            places[key] = Chunk(file, at, len(value))
            at += len(value)
        self._note(places)

    def _new_object(self) -> str:
        """A name that no object has, relative to the item."""
        return f"{self._directory}d/{secrets.token_hex(16)}"

    def _note(self, entries: Mapping[bytes, bytes | Chunk]) -> None:
        with self._lock:
            self._entries.update(entries)
            self._new.update(entries)

    def _value(self, value: bytes | Chunk) -> bytes:
        if isinstance(value, bytes):
            return value
        stop = value.offset + value.length
        return self._store.read_many([Range(f"{self._prefix}{value.file}", value.offset, stop)])[0]


def _notes(entries: Entries) -> bytes:
    """What lies where, as JSON: for each key, in base 64, the value itself or its object, offset, length."""
    found = {
        base64.b64encode(key).decode(): base64.b64encode(value).decode()
        if isinstance(value, bytes)
        else [value.file, value.offset, value.length]
        for key, value in entries.items()
    }
    return json.dumps(found).encode("ascii")


def written_by(item: str, worker: str) -> Entries:
    """What a worker has noted about an item, which may be nothing. Raises SourceError, StorageError."""
    store, name = store_of(item)
    prefix = f"{name}/" if name else ""
    notes = [
        n for n in store.walk(f"{prefix}{PROCESS_PREFIX}{worker}/") if n.rpartition("/")[2].startswith(NOTES)
    ]
    found: Entries = {}
    for one in sorted(notes):
        for key, value in json.loads(store.read(one)).items():
            place = base64.b64decode(value) if isinstance(value, str) else Chunk(*value)
            found[base64.b64decode(key)] = place
    return found
