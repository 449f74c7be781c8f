"""One worker's part of an Orbax item: the chunks it computes, in an OCDBT database of its own.

Chunks carry a CRC-32C (zarr 3), and chunks of zeros are stored like any other, because Orbax refuses an array
that lacks chunks.
"""

import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, grid_counts
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.orbax.tree import array_name, array_prefix
from ckpt_surgery.formats.shared.ocdbt.reader import read_database
from ckpt_surgery.formats.shared.orbax_layout import MANIFEST
from ckpt_surgery.formats.shared.zarr.outputs import definition
from ckpt_surgery.formats.shared.zarr.writing import DRIVERS, fetched, put, store_errors
from ckpt_surgery.storage.adopting import AdoptedFiles
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.handles import Handles
from ckpt_surgery.storage.listing import is_file, real_path

INLINE_BYTES = 1024
"""Values up to this size are in the index itself, as Orbax writes them."""
NODE_BYTES = 2**20
"""Decoded size of a B+tree node. Every commit rewrites the nodes between the root and what changed."""
DIRECT_BYTES = 4 * 2**20
"""Blocks from this size on are written at once. Smaller ones are gathered into one commit."""
BATCH_BYTES = 32 * 2**20
"""Gathered blocks are committed when they have this size together."""
IN_FLIGHT_BYTES = 64 * 2**20
"""Total size of blocks that are encoded and written at the same time. A larger block is written alone."""
OPEN_ARRAYS = 256
"""Number of handles that are kept open."""


class OrbaxWriter:
    """Writes chunks into a database, and brings stored bytes into the item. Thread-safe."""

    def __init__(
        self, database: Path, zarr: int, outputs: Sequence[Output], adopted: AdoptedFiles, worker: str
    ):
        self._database = database
        self._zarr = zarr
        self._computed = {
            array_name(o.leaf.key): o for o in outputs if o.leaf.spec is not None and o.stored is None
        }
        self._adopted = adopted
        self._worker = worker
        self._store: _Store | None = None
        self._store_lock = threading.Lock()
        self._handles = Handles(self._opened, OPEN_ARRAYS)
        self._gate = _ByteGate(IN_FLIGHT_BYTES)
        self._batch = _Batch()
        self._batch_lock = threading.Lock()

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Link or copy stored bytes. Raises StorageError, SourceError."""
        return self._adopted.adopt(output, known, self._worker)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks; `block` must not change before `flush` returns.

        Small blocks are gathered, so that many of them make one commit. Raises StorageError.
        """
        name = array_name(output.leaf.key)
        assert output.leaf.spec is not None
        assert block.dtype == output.leaf.spec.dtype
        assert block.shape == region.shape
        with store_errors(f"`{shown(output.leaf.key.printed)}`"):
            if block.nbytes >= DIRECT_BYTES:
                with self._gate.holding(block.nbytes):
                    put(self._handles.get(name), region, block).result()
            else:
                self._gather(name, output, region, block)

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region, as the database has them. Raises StorageError where it has not."""
        with store_errors(f"`{shown(output.leaf.key.printed)}`"):
            return fetched(self._handles.get(array_name(output.leaf.key)), region)

    def flush(self) -> None:
        """Commit what is gathered: everything written so far is in the database. Raises StorageError."""
        with self._batch_lock, store_errors("gathered blocks"):
            self._commit_batch()

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The directory of the database, or the files that stored bytes are in."""
        return [str(self._database)] if output.stored is None else self._adopted.files(output)

    def _gather(self, name: str, output: Output, region: Region, block: np.ndarray) -> None:
        import tensorstore as ts

        with self._batch_lock:
            if self._batch.transaction is None:
                self._batch.transaction = ts.Transaction()
            assert output.leaf.spec is not None
            single = max(grid_counts(output.leaf.spec.shape, output.chunks), default=1) == 1
            handle = self._opened(name) if single else self._handles.get(name)
            writing = put(handle.with_transaction(self._batch.transaction), region, block)
            self._batch.writing.append(writing.copy)
            self._batch.nbytes += block.nbytes
            if self._batch.nbytes >= BATCH_BYTES:
                self._commit_batch()

    def _commit_batch(self) -> None:
        batch, self._batch = self._batch, _Batch()
        for copied in batch.writing:
            copied.result()
        if batch.transaction is not None:
            batch.transaction.commit_async().result()

    def _opened(self, name: str) -> Any:
        import tensorstore as ts

        with self._store_lock:
            # Opened for the first chunk: a worker that computes nothing leaves no database.
            if self._store is None:
                self._store = _open_store(self._database)
            store = self._store
        spec = {
            "driver": DRIVERS[self._zarr],
            "metadata": json.loads(definition(self._computed[name], self._zarr)),
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        kvstore = store.kvstore / array_prefix(name)
        opened = ts.open(
            spec,
            kvstore=kvstore,
            open=True,
            read=True,
            write=True,
            assume_metadata=True,
            context=store.context,
        )
        return opened.result()


@dataclass(frozen=True)
class _Store:
    """An open database."""

    kvstore: Any
    context: Any


def _open_store(database: Path) -> _Store:
    """The OCDBT database in a directory, which is made where it is not there."""
    import tensorstore as ts

    _remove_damaged(database)
    # Publication synchronizes the files with the disk, all at once.
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False})
    base = {"driver": "file", "path": f"{real_path(os.fspath(database))}/"}
    config = {
        "max_inline_value_bytes": INLINE_BYTES,
        "max_decoded_node_bytes": NODE_BYTES,
        "manifest_kind": "single",
    }
    spec = {"driver": "ocdbt", "base": base, "config": config, "assume_config": True}
    return _Store(ts.KvStore.open(spec, context=context).result(), context)


def _remove_damaged(database: Path) -> None:
    """Remove the database of an earlier process if a power cut has left it unusable."""
    try:
        if is_file(os.path.join(database, MANIFEST)):
            read_database(os.fspath(database))
    except SourceError:
        with storage_errors(database):
            shutil.rmtree(database)


@dataclass
class _Batch:
    """Small blocks that will be committed together."""

    transaction: Any = None
    writing: list[Any] = field(default_factory=list)
    """Futures that are done once the transaction has copied the blocks."""
    nbytes: int = 0


class _ByteGate:
    """Lets blocks through while the sum of their sizes stays within a limit."""

    def __init__(self, limit: int):
        self._limit = limit
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """Wait until the block fits. A block that is larger than the limit waits for all others."""
        with self._changed:
            self._changed.wait_for(lambda: self._held == 0 or self._held + nbytes <= self._limit)
            self._held += nbytes
        try:
            yield
        finally:
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()
