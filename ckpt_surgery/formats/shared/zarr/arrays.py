"""Reading regions of zarr arrays through TensorStore, for every format that stores zarr.

A chunk that is missing reads as the fill value only in formats that leave such chunks out.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import (
    Leaf,
)
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.ocdbt.reader import STORE_ERRORS, store_message
from ckpt_surgery.formats.shared.raw_arrays import Opaque, RawArraysSource, read_raw
from ckpt_surgery.formats.shared.store_failures import store_access_error
from ckpt_surgery.formats.shared.zarr.fetched import fetched_region, stored_chunks, touched
from ckpt_surgery.formats.shared.zarr.files import StoredArray
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.handles import Handles
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import opened

CACHE_BYTES = 32 * 2**20
"""Size of the cache of decoded chunks, for regions that share one."""
INDEX_CACHE_BYTES = 100_000_000
"""Size of the cache of B+tree nodes; Orbax writes nodes of up to this size."""
OPEN_ARRAYS = 256
"""Largest number of handles kept open."""


class ArrayReader:
    """Reads regions of zarr arrays. Thread-safe.

    A file with a chunk of a manifest must still be there, and unchanged, when the chunk is read.
    """

    def __init__(
        self,
        root: str,
        arrays: Callable[[str], StoredArray],
        listed: Mapping[str, FileStat] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ):
        self._root = root
        """The checkpoint's directory, for messages about chunks without a file of their own."""
        self._arrays = arrays
        """Arrays by the text of their keys."""
        self._listed = listed or {}
        """Size and time of files when they were listed, by path."""
        self.cache_bytes = cache_bytes
        """Most bytes of decoded chunks that are kept; a change has no effect after the first read."""
        self._handles = Handles(self._opened, OPEN_ARRAYS)

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        manifest = leaf.manifest
        assert manifest is not None
        if not region.size:
            return np.empty(region.shape, manifest.spec.dtype)
        if (
            manifest.supports_partial_reads
            and not self._takes_most(manifest, region)
            and _all_stored(manifest, region)
        ):
            return read_raw(manifest, region, self._listed)
        try:
            if urls.is_url(self._root):
                return fetched_region(self._arrays(leaf.key.text), manifest, region)
            block = self._handles.get(leaf.key.text)[region.slices].read().result()
        except STORE_ERRORS as error:
            raise store_access_error(self._root, error) or SourceError(
                f"`{shown(leaf.key.printed)}` cannot be read from {self._files_of(manifest, region)}: "
                f"{store_message(error)}",
                hint=DAMAGED,
            ) from error
        self._check_unchanged(manifest, region)
        return np.asarray(block)

    def _takes_most(self, manifest: Manifest, region: Region) -> bool:
        """Whether chunks are in an object store, and are wanted almost whole: they are fetched together."""
        if not urls.is_url(self._root):
            return False
        stored = sum(chunk.length for _, chunk in stored_chunks(manifest, region))
        return stored <= 2 * region.size * manifest.spec.dtype.itemsize

    def _check_unchanged(self, manifest: Manifest, region: Region) -> None:
        """Raise SourceError for a file that has vanished or changed since it was listed.

        TensorStore would read it as the fill value.
        """
        for _, chunk in stored_chunks(manifest, region) if self._listed else ():
            with opened(chunk.file, self._listed.get(chunk.file)):
                pass

    def _files_of(self, manifest: Manifest, region: Region) -> str:
        """The files that hold a region's chunks, for a message."""
        chunks = itertools.islice(stored_chunks(manifest, region), 1000)
        files = sorted({chunk.file or self._root for _, chunk in chunks}) or [self._root]
        return ", ".join(map(shown, files[:3])) + (f" and {len(files) - 3} more files" if files[3:] else "")

    @cached_property
    def _context(self) -> Any:
        import tensorstore as ts

        return ts.Context(
            {
                "cache_pool": {"total_bytes_limit": self.cache_bytes},
                "cache_pool#index": {"total_bytes_limit": INDEX_CACHE_BYTES},
            }
        )

    def _opened(self, text: str) -> Any:
        import tensorstore as ts

        array = self._arrays(text)
        spec = {
            "driver": DRIVERS[array.definition.version],
            "kvstore": {**array.kvstore, "path": array.path},
            "metadata": array.definition.definition,
            "fill_missing_data_reads": array.filled,
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        return ts.open(spec, open=True, read=True, assume_metadata=True, context=self._context).result()


def _all_stored(manifest: Manifest, region: Region) -> bool:
    """Whether no chunk that a region touches is missing."""
    return manifest.complete or touched(manifest, region).size == sum(
        1 for _ in stored_chunks(manifest, region)
    )


class ZarrArraysSource(RawArraysSource):
    """A checkpoint of zarr arrays, and perhaps of contiguous arrays. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        format: str,
        directory: str,
        leaves: Mapping[str, Leaf],
        arrays: Mapping[str, StoredArray],
        files: Mapping[str, FileStat],
        metadata: Mapping[str, Any],
        step: int | None = None,
        opaque: Mapping[str, Opaque] | None = None,
    ):
        super().__init__(path, format, leaves, files, metadata, step, opaque)
        self._arrays = arrays
        """Zarr arrays by the text of their keys; other arrays are contiguous."""
        self._reader = ArrayReader(directory, arrays.__getitem__, files)

    @property
    def cache_bytes(self) -> int:
        """Most bytes of decoded chunks that are kept. A change has no effect after the first read."""
        return self._reader.cache_bytes

    @cache_bytes.setter
    def cache_bytes(self, nbytes: int) -> None:
        self._reader.cache_bytes = nbytes

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        if leaf.key.text in self._arrays:
            return self._reader.read(leaf, region)
        return super().read(leaf, region)
