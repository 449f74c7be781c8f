"""Reading regions of zarr arrays in object stores: chunks are fetched together, and decoded in memory."""

from collections.abc import Iterator, Mapping
from operator import add

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.formats.shared.zarr.files import StoredArray
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from ckpt_surgery.storage.listing import missing
from ckpt_surgery.storage.store import Range
from ckpt_surgery.storage.stores import store_of
from ckpt_surgery.storage.views import VIEW


def touched(manifest: Manifest, region: Region) -> Region:
    """The indices of the chunks that a region touches; the region is not empty."""
    grid = manifest.chunk_shape
    low = tuple(start // size for start, size in zip(region.starts, grid, strict=True))
    return Region(low, tuple(-(-stop // size) for stop, size in zip(region.stops, grid, strict=True)))


def stored_chunks(manifest: Manifest, region: Region) -> Iterator[tuple[Shape, Chunk]]:
    """The stored chunks that a region touches, with their indices; the region is not empty."""
    inside = touched(manifest, region)
    if inside.size <= len(manifest.chunks):
        cells = chunk_regions(inside.shape, (1,) * len(inside.shape))
        indices = (tuple(map(add, inside.starts, cell.starts)) for cell in cells)
        yield from ((index, manifest.chunks[index]) for index in indices if index in manifest.chunks)
    else:
        for index, chunk in manifest.chunks.items():
            if all(a <= i < b for a, i, b in zip(inside.starts, index, inside.stops, strict=True)):
                yield index, chunk


def fetched_region(stored: StoredArray, manifest: Manifest, region: Region) -> np.ndarray:
    """The elements of a region, which is not empty. Chunks are read in the version that was listed.

    Memory: the chunks as they are stored and as they are decoded, and the region. Raises SourceError,
    StorageError, and what TensorStore raises where bytes cannot be decoded.
    """
    import tensorstore as ts

    array = stored.definition
    chunks = dict(stored_chunks(manifest, region))
    context = ts.Context()
    memory = ts.KvStore.open({"driver": "memory"}, context=context).result()
    for index, data in chunk_bytes(chunks).items():
        memory.write(array.chunk_name(index), data).result()
    spec = {
        "driver": DRIVERS[array.version],
        "metadata": array.definition,
        "fill_missing_data_reads": stored.filled,
        "recheck_cached_data": False,
        "recheck_cached_metadata": False,
    }
    opened = ts.open(spec, kvstore=memory, open=True, read=True, assume_metadata=True, context=context)
    return np.asarray(opened.result()[region.slices].read().result())


def chunk_bytes(chunks: Mapping[Shape, Chunk]) -> dict[Shape, bytes]:
    """The stored bytes of chunks, which are all in one store or inline, by their indices.

    Raises SourceError where an object is missing or has changed, StorageError.
    """
    found = {index: chunk.inline for index, chunk in chunks.items() if chunk.inline is not None}
    remote = [(index, chunk) for index, chunk in chunks.items() if chunk.inline is None]
    if remote:
        store, _ = store_of(remote[0][1].file)
        read = store.read_many([_range(chunk) for _, chunk in remote])
        found |= {index: data for (index, _), data in zip(remote, read, strict=True)}
    return found


def _range(chunk: Chunk) -> Range:
    found = VIEW.stat(chunk.file)
    if found is None:
        raise missing(chunk.file)
    return Range(store_of(chunk.file)[1], chunk.offset, chunk.offset + chunk.length, found.version)
