"""Chunks of zarr arrays, encoded and decoded in memory: for stores, which take whole objects."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.formats.shared.zarr.writing import DRIVERS


class MemoryArray:
    """A zarr array in memory, whose chunks are encoded as those of the destination."""

    def __init__(self, zarr: int, definition: bytes):
        """`definition`: the metadata of the array, as JSON; `zarr`: the specification's version."""
        import tensorstore as ts

        context = ts.Context()
        self._store: Any = ts.KvStore.open({"driver": "memory"}, context=context).result()
        spec = {
            "driver": DRIVERS[zarr],
            "metadata": json.loads(definition),
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
        }
        opened = ts.open(
            spec, kvstore=self._store, open=True, read=True, write=True, assume_metadata=True, context=context
        )
        self._array: Any = opened.result()

    def encoded(self, region: Region, block: np.ndarray) -> dict[str, bytes]:
        """The stored bytes of the chunks of a region, which is made of whole chunks, by their names."""
        self._array[region.slices].write(block).result()
        keys = self._store.list().result()
        return {key.decode(): bytes(self._store.read(key).result().value) for key in keys}

    def decoded(self, region: Region, chunks: Mapping[str, bytes]) -> np.ndarray:
        """The elements of a region. Raises ValueError where chunks are missing or damaged."""
        for name, value in chunks.items():
            self._store.write(name, value).result()
        return np.asarray(self._array[region.slices].read().result())
