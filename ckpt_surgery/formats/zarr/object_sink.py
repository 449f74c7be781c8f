"""Writing a zarr group to a store: each chunk is an object, put at once; the root's metadata comes last."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.zarr.memory import MemoryArray
from ckpt_surgery.formats.shared.zarr.outputs import definition
from ckpt_surgery.formats.shared.zarr.writing import chunk_name, chunk_names, store_errors
from ckpt_surgery.formats.zarr.documents import documents, with_record
from ckpt_surgery.storage.copy_sources import PIECE, read_chunk, upload_chunk
from ckpt_surgery.storage.draft import documents_follow
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.record_files import put_record
from ckpt_surgery.storage.store import Range
from ckpt_surgery.storage.stores import store_of

AT_A_TIME = 8
"""Largest number of chunks that a thread puts, or copies, at a time."""
TOGETHER_BYTES = 16 << 20
"""Stored bytes that are copied at a time; a larger chunk is copied alone."""


class ZarrObjectSink:
    """Writes a group below a URL. There is no group before `finish`."""

    def __init__(self, url: str, zarr: int, attributes: Mapping[str, Any], outputs: Sequence[Output]):
        self.outputs = outputs
        self._url = url
        self._zarr = zarr
        self._attributes = attributes

    def create(self) -> None:
        """Do nothing: a store has no directories, and workers share no objects."""

    def attach(self, worker: str) -> "ZarrObjectWriter":
        """A writer of chunks. Each chunk is an object of its own."""
        return ZarrObjectWriter(self._url, self._zarr, self.outputs)

    def finish(self, workers: Sequence[str]) -> None:
        """Put the metadata, that of the root last. Raises StorageError."""
        store, name = store_of(self._url)
        documents_follow(store)
        found = documents(self._zarr, self._attributes, self.outputs)
        for document, data in reversed(found.items()):
            store.put(_below(name, document), data)

    def record(self, text: str) -> bool:
        """Put the record among the group's attributes. Raises StorageError."""
        name, content = with_record(self._zarr, self._attributes, text)
        put_record(f"{self._url}/{name}", content)
        return True


class ZarrObjectWriter:
    """Writes chunks. It buffers nothing. Safe to use from several threads."""

    def __init__(self, url: str, zarr: int, outputs: Sequence[Output]):
        self._store, self._prefix = store_of(url)
        self._zarr = zarr
        self._computed = {o.leaf.key.text: o for o in outputs if o.stored is None}

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Copy stored bytes. Raises StorageError, SourceError."""
        assert output.stored is not None
        text, crcs = output.leaf.key.text, {}

        def copy(one: tuple[Shape, Chunk]) -> None:
            index, chunk = one
            name = self._name(text, chunk_name(index, self._zarr))
            crcs[index] = known[index] if self._holds(name, known.get(index)) else self._copy(name, chunk)

        for together in _batches(output.stored.chunks.items()):
            _each(copy, together)
        return TaskResult(crcs)

    def _copy(self, name: str, chunk: Chunk) -> int:
        if chunk.inline is None and chunk.length > PIECE:
            return upload_chunk(chunk, self._store, name)
        data = read_chunk(chunk)
        self._store.put(name, data)
        return bytes_crc(data)

    def _holds(self, name: str, crc: int | None) -> bool:
        """Whether an object is there with this checksum."""
        if crc is None or self._store.stat(name) is None:
            return False
        return bytes_crc(self._store.read(name)) == crc

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks. Raises StorageError."""
        text, spec = output.leaf.key.text, output.leaf.spec
        assert spec is not None
        assert (block.dtype, block.shape) == (spec.dtype, region.shape)
        if region.size:
            with store_errors(f"`{shown(text)}`"):
                chunks = self._array(text).encoded(region, block)
            _each(lambda one: self._store.put(self._name(text, one[0]), one[1]), chunks.items())

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region. Raises SourceError where chunks are missing or damaged."""
        text = output.leaf.key.text
        touched = chunk_names(region, output.chunks, self._zarr)
        names = {name: self._name(text, name) for name in touched}
        stats = {name: self._store.stat(place) for name, place in names.items()}
        lacking = [name for name, stat in stats.items() if stat is None]
        if lacking:
            raise SourceError(f"`{shown(text)}` lacks {len(lacking)} of its chunks", hint=DAMAGED)
        ranges = [Range(names[name], 0, stat.size) for name, stat in stats.items() if stat is not None]
        chunks = dict(zip(names, self._store.read_many(ranges), strict=True))
        try:
            return self._array(text).decoded(region, chunks)
        except ValueError as error:
            raise SourceError(f"`{shown(text)}` is damaged: {shown(str(error))}", hint=DAMAGED) from error

    def flush(self) -> None:
        """Return at once: `write` returns when its chunks are in the store."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """None: chunks are objects."""
        return ()

    def _array(self, text: str) -> MemoryArray:
        return MemoryArray(self._zarr, definition(self._computed[text], self._zarr))

    def _name(self, text: str, chunk: str) -> str:
        return _below(self._prefix, f"{text}/{chunk}")


def _below(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _batches(chunks: Iterable[tuple[Shape, Chunk]]) -> Iterable[list[tuple[Shape, Chunk]]]:
    """Chunks that are held in memory at the same time."""
    batch: list[tuple[Shape, Chunk]] = []
    for one in chunks:
        if batch and sum(chunk.length for _, chunk in batch) + one[1].length > TOGETHER_BYTES:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _each(work: Callable[[Any], object], items: Iterable[Any]) -> None:
    found = list(items)
    if len(found) < 2:
        for one in found:
            work(one)
        return
    with ThreadPoolExecutor(min(AT_A_TIME, len(found)), thread_name_prefix="chunks") as pool:
        list(pool.map(work, found))
