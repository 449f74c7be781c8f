"""Chunks of written zarr arrays, encoded and decoded in memory: TensorStore is the codec, and does no I/O."""

import functools
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from ckpt_surgery.formats.shared.zarr.writing import array_definition, chunk_names

OPEN_ARRAYS = 64
"""Number of arrays that a thread keeps open, the last used ones."""
IN_FLIGHT_BYTES = 64 << 20
"""Total size of the blocks that are encoded and written at the same time. A larger block is written alone."""
SMALL_BYTES = 1 << 20
"""Blocks below this size are not counted."""


class MemoryArray:
    """A zarr array in memory, whose chunks are encoded as those of the destination. For one thread."""

    def __init__(self, zarr: int, dtype: np.dtype[Any], shape: Shape, chunks: Shape):
        """`zarr`: the specification's version; `chunks`: shape of each chunk."""
        import tensorstore as ts

        context = ts.Context()
        self._zarr = zarr
        self._chunks = chunks
        self._store: Any = ts.KvStore.open({"driver": "memory"}, context=context).result()
        spec = {
            "driver": DRIVERS[zarr],
            "metadata": json.loads(array_definition(zarr, dtype, shape, chunks)),
            # Some readers refuse arrays that lack chunks.
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
        }
        opened = ts.open(
            spec, kvstore=self._store, open=True, read=True, write=True, assume_metadata=True, context=context
        )
        self._array: Any = opened.result()

    def encoded(self, region: Region, block: np.ndarray) -> Iterator[tuple[str, bytes]]:
        """Names and stored bytes of the chunks of a region, which consists of whole chunks.

        The block must not change until the last one is taken. What was taken is held here no longer.
        """
        self._array[region.slices].write(block, can_reference_source_data_indefinitely=True).result()
        for name in chunk_names(region, self._chunks, self._zarr):
            value = self._store[name]
            self._store[name] = None
            yield name, value

    def decoded(self, region: Region, chunks: Mapping[str, bytes]) -> np.ndarray:
        """The elements of a region. Raises ValueError where chunks are missing or damaged."""
        try:
            for name, value in chunks.items():
                self._store[name] = value
            return np.asarray(self._array[region.slices].read().result())
        finally:
            for name in chunks:
                self._store[name] = None


class _OpenArrays(threading.local):
    """The arrays that a thread has open: opening one takes as long as encoding a small chunk."""

    def __init__(self) -> None:
        self.of = functools.lru_cache(OPEN_ARRAYS)(MemoryArray)


_OPEN = _OpenArrays()


def memory_array(output: Output, zarr: int) -> MemoryArray:
    """The calling thread's array for the chunks of an output that is computed."""
    spec = output.leaf.spec
    assert spec is not None
    return _OPEN.of(zarr, spec.dtype, spec.shape, output.chunks)


class BytesInFlight:
    """Limit on the bytes of the blocks that are encoded and written at the same time."""

    def __init__(self, limit: int = IN_FLIGHT_BYTES):
        self._limit = limit
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """Wait until a block fits. One that is larger than the limit waits for all others."""
        if nbytes < SMALL_BYTES:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: self._held == 0 or self._held + nbytes <= self._limit)
            self._held += nbytes
        try:
            yield
        finally:
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()
