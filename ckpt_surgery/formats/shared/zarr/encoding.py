"""Metadata and chunks of written zarr arrays as TensorStore has them: zstd, in version 3 with a CRC-32C."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import google_crc32c
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, encoding_of, parts_of_chunks
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.decoding import CRC32C, DESCRIBED, OF_THREAD, decode_region
from ckpt_surgery.formats.shared.zarr.layout import chunk_name
from ckpt_surgery.formats.shared.zarr.shards import CRC_BYTES
from ckpt_surgery.storage.failures import about_key
from ckpt_surgery.storage.reading import read_ranges

_ENCODINGS = {
    2: encoding_of([bytes_codec("little"), {"name": "zstd"}]),
    3: encoding_of([bytes_codec("little"), {"name": "zstd"}, CRC32C]),
}


def definition(output: Output, zarr: int) -> bytes:
    """The metadata of the array that an output is stored in, as JSON; `zarr`: the specification's version."""
    manifest = output.stored or _manifest(output, zarr)
    return array_definition(zarr, manifest.spec, manifest.chunk_shape, manifest.codec)


@lru_cache(maxsize=1 << 14)
def array_definition(zarr: int, spec: ArraySpec, chunks: Shape, codec: Codec) -> bytes:
    """The metadata of an array whose chunks are encoded so, which the version must have, as JSON."""
    return json.dumps(DESCRIBED[zarr](spec, chunks, codec)).encode()


def encoded(output: Output, zarr: int, region: Region, block: np.ndarray) -> Iterator[tuple[str, bytes]]:
    """Names and stored bytes of a region's chunks, which are whole; beyond the array they are zero."""
    manifest = _manifest(output, zarr)
    assert (block.dtype, block.shape) == (manifest.spec.dtype, region.shape)
    for index, part in parts_of_chunks(manifest, region):
        chunk = block[part.within(region)]
        if chunk.shape != output.chunks:
            padded = np.zeros(output.chunks, block.dtype)
            padded[tuple(map(slice, chunk.shape))] = chunk
            chunk = padded
        stored = OF_THREAD.compressor.compress(np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data)
        if zarr == 3:
            stored += google_crc32c.value(stored).to_bytes(CRC_BYTES, "little")
        yield chunk_name(index, zarr), stored


def decoded(output: Output, zarr: int, region: Region, chunks: Mapping[str, bytes]) -> np.ndarray:
    """The elements of a region, from the stored bytes of its chunks by their names. Errors have the key."""
    manifest = _manifest(output, zarr)
    if not region.size:
        return np.empty(region.shape, manifest.spec.dtype)
    indices = (index for index, _ in parts_of_chunks(manifest, region))
    named = {index: chunks[name] for index in indices if (name := chunk_name(index, zarr)) in chunks}
    stored = {index: Chunk("", 0, len(data), data) for index, data in named.items()}
    with about_key(output.leaf.key):
        return decode_region(replace(manifest, chunks=stored), region, read_ranges)


def _manifest(output: Output, zarr: int) -> Manifest:
    spec = output.leaf.spec
    assert spec is not None
    codec = Codec("zstd", tuple(range(spec.ndim)), _ENCODINGS[zarr])
    return Manifest(spec, output.chunks, codec, {})


class BytesInFlight:
    """Limit on the bytes of the blocks that are encoded and written at the same time."""

    def __init__(self, limit: int = 64 << 20):
        self._limit = limit
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """Wait until a block fits. One that is larger than the limit waits for all others."""
        if nbytes < 1 << 20:  # not counted
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
