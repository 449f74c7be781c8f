"""One worker's part of an Orbax item: encoded chunks, gathered into data files of its own.

Chunks carry a CRC-32C (zarr 3), and chunks of zeros are stored like any other, because Orbax refuses an array
that lacks chunks. Nothing is appended to: small chunks wait until there are enough for a file.

A worker's notes say which chunk lies where in the data files that it wrote. From them `finish` makes the
index of the item, and a worker that was killed goes on. Each flush adds a file of notes with a CRC-32C, so
that what a power cut has left of it counts as not written.
"""

import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.orbax.tree import array_name, array_prefix
from ckpt_surgery.formats.shared.ocdbt.writer import INLINE_BYTES
from ckpt_surgery.formats.shared.orbax_layout import PROCESS_PREFIX
from ckpt_surgery.formats.shared.zarr.encoding import BytesInFlight, decoded, encoded
from ckpt_surgery.formats.shared.zarr.layout import chunk_name, chunk_names
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.places import Places, stored_crc
from ckpt_surgery.storage.reading import read_ranges

NOTES = "part-"
"""Beginning of the names of the files with notes."""

Entries = dict[str, bytes | Chunk]
"""Stored bytes of chunks by key: the bytes, or where they lie within the item."""

_DECODER = msgspec.json.Decoder(Entries)


def worker_directory(worker: str) -> str:
    """The directory of what a worker writes into an item, named as Orbax names those of its processes."""
    return f"{PROCESS_PREFIX}{worker}/"


def notes_bytes(entries: Entries) -> bytes:
    """A file with notes of these chunks: a CRC-32C, and JSON."""
    text = msgspec.json.encode(entries)
    return b"%08x %s" % (bytes_crc(text), text)


def read_notes(places: Places, worker: str, sizes: Mapping[str, int]) -> Entries:
    """The chunks that a worker has written: those in data files that are there, and long enough.

    `sizes`: files of the worker's directory, as `places.sizes` gives them. Linked files lie elsewhere and are
    linked again by whoever goes on. Later notes win; damaged ones do not count.
    """
    directory = worker_directory(worker)
    names = sorted(name for name in sizes if name.startswith(directory + NOTES))
    known: Entries = {}
    for data in places.read([Chunk(name, 0, sizes[name]) for name in names]):
        crc, _, text = data.partition(b" ")
        if crc == b"%08x" % bytes_crc(text):
            for key, value in _DECODER.decode(text).items():
                missing = (
                    isinstance(value, Chunk)
                    and value.file.startswith(directory)
                    and value.offset + value.length > sizes.get(value.file, -1)
                )
                if not missing:
                    known[key] = value
    return known


FILE_BYTES = 32 << 20
"""Gathered chunks become a data file when they have this size together; one of half of it is a file alone."""


@dataclass(eq=False)
class _Value:
    """The stored bytes of a chunk, which wait for their file or are there."""

    keys: list[str]
    """Keys of all chunks with these bytes: tied weights are copied once."""
    place: bytes | Chunk | None = None
    """The bytes themselves if they are inline, or where they lie; None while they wait."""
    crc: int = 0
    """CRC-32C of copied bytes."""


class OrbaxWriter:
    """Writes chunks into data files, and brings stored bytes into the item. Thread-safe."""

    def __init__(self, places: Places, zarr: int, worker: str):
        """`places`: those of the item."""
        self._places = places
        self._zarr = zarr
        self._directory = worker_directory(worker)
        sizes = places.sizes(self._directory)
        self._entries = read_notes(places, worker, sizes)
        self._new: Entries = {}
        """Entries that are not noted yet."""
        self._noted = sum(name.startswith(self._directory + NOTES) for name in sizes)
        """Number of files with notes."""
        self._copies: dict[Chunk, _Value] = {}
        """The copied chunks, by their places in the sources."""
        self._waiting: list[tuple[_Value, bytes]] = []
        """Chunks that wait for their file."""
        self._nbytes = 0
        """Bytes of the chunks that wait."""
        self._writing = 0
        """Number of files that are being written."""
        self._in_flight = BytesInFlight()
        self._lock = threading.Condition()

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        assert output.stored is not None
        prefix = array_prefix(array_name(output.leaf.key))
        named = [(i, prefix + chunk_name(i, self._zarr), c) for i, c in output.stored.chunks.items()]
        self._note({key: chunk.inline for _, key, chunk in named if chunk.inline is not None})
        stored = [(index, key, chunk) for index, key, chunk in named if chunk.inline is None]
        if output.copied:
            return TaskResult(
                {index: self._copy(key, chunk, known.get(index)) for index, key, chunk in stored}
            )
        files = dict.fromkeys(chunk.file for _, _, chunk in stored)
        links = {file: self._places.link(file, self._directory) for file in files}
        self._note({key: Chunk(links[c.file][0], c.offset, c.length) for _, key, c in stored})
        return TaskResult(files=tuple(adopted for _, adopted in links.values() if adopted is not None))

    def _copy(self, key: str, chunk: Chunk, known: int | None) -> int:
        """CRC-32C of a chunk's stored bytes, which are copied unless they are there already."""
        with self._lock:
            value = self._copies.get(chunk)
            if value is not None:
                value.keys.append(key)
                self._set_place(value, value.place)
                return value.crc
        if known is not None and self._holds(key, known):
            return known
        value = _Value([key])
        if chunk.length > FILE_BYTES:
            file = self._new_file()
            value.crc = self._places.copy(chunk, file)
            with self._lock:
                self._set_place(value, Chunk(file, 0, chunk.length))
        else:
            with self._in_flight.holding(chunk.length):
                [data] = read_ranges([chunk])
                value.crc = bytes_crc(data)
                self._add(value, data)
        with self._lock:
            self._copies[chunk] = value
        return value.crc

    def _holds(self, key: str, crc: int) -> bool:
        """Whether the stored bytes of a chunk are there, with this checksum."""
        value = self._entries.get(key)
        if value is None or isinstance(value, bytes):
            return value is not None and bytes_crc(value) == crc
        return stored_crc(self._places, value) == crc

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        prefix = array_prefix(array_name(output.leaf.key))
        with self._in_flight.holding(block.nbytes):
            for name, value in encoded(output, self._zarr, region, block):
                self._add(_Value([prefix + name]), value)

    def read(self, output: Output, region: Region) -> np.ndarray:
        prefix = array_prefix(array_name(output.leaf.key))
        names = chunk_names(region, output.chunks, self._zarr)
        with self._lock:
            values = {name: self._entries.get(prefix + name) for name in names}
        if None in values.values():
            raise damaged(f"`{shown(output.leaf.key.printed)}` was not written")
        stored = {name: value for name, value in values.items() if isinstance(value, Chunk)}
        chunks = {name: value for name, value in values.items() if isinstance(value, bytes)}
        chunks |= zip(stored, self._places.read(list(stored.values())), strict=True)
        return decoded(output, self._zarr, region, chunks)

    def flush(self) -> None:
        """Write what waits, and note what lies where."""
        self._put(self._take_waiting())
        with self._lock:  # files that other threads write can hold chunks that waited before
            self._lock.wait_for(lambda: not self._writing)
        self._places.flush()
        with self._lock:
            new, self._new = self._new, {}
            number, self._noted = self._noted, self._noted + 1
        if new:
            name = f"{self._directory}{NOTES}{number:06}-{secrets.token_hex(8)}"
            self._places.put(name, [notes_bytes(new)])

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The worker's directory, and the files that were linked."""
        if output.stored is None or output.copied:
            return self._places.paths([self._directory])
        sources = {chunk.file for chunk in output.stored.chunks.values() if chunk.inline is None}
        links = [self._places.link(file, self._directory)[0] for file in sources]
        return self._places.paths([self._directory, *links])

    def _add(self, value: _Value, data: bytes) -> None:
        """Take a chunk, and write a file of all that wait if they are enough for one."""
        with self._lock:
            if len(data) <= INLINE_BYTES:
                self._set_place(value, data)
                return
            if len(data) >= FILE_BYTES // 2:  # held no longer than it takes to write it
                full = [(value, data)]
                self._writing += 1
            else:
                self._waiting.append((value, data))
                self._nbytes += len(data)
                if self._nbytes < FILE_BYTES:
                    return
                full = self._take_waiting()
        self._put(full)

    def _take_waiting(self) -> list[tuple[_Value, bytes]]:
        """The chunks that wait, which the caller puts."""
        with self._lock:
            waiting, self._waiting, self._nbytes = self._waiting, [], 0
            self._writing += 1
        return waiting

    def _put(self, values: Sequence[tuple[_Value, bytes]]) -> None:
        """Write a file of these chunks, one after another."""
        try:
            if not values:
                return
            file = self._new_file()
            self._places.put(file, [data for _, data in values])
            at = 0
            with self._lock:
                for value, data in values:
                    self._set_place(value, Chunk(file, at, len(data)))
                    at += len(data)
        finally:
            with self._lock:
                self._writing -= 1
                self._lock.notify_all()

    def _set_place(self, value: _Value, place: bytes | Chunk | None) -> None:
        """Note where a chunk lies, unless it waits. The caller holds the lock."""
        value.place = place
        if place is not None:
            for key in value.keys:
                self._entries[key] = self._new[key] = place

    def _new_file(self) -> str:
        """A name that no data file has."""
        return f"{self._directory}d/{secrets.token_hex(16)}"

    def _note(self, entries: Mapping[str, bytes | Chunk]) -> None:
        with self._lock:
            self._entries.update(entries)
            self._new.update(entries)
