"""Arrays stored in chunks, in memory: an encoder and a decoder as simple as they can be."""

import itertools
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape, chunk_regions, grid_counts
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, encoding_of

Files = dict[str, bytes]

CHAINS: dict[str, list[dict[str, Any]]] = {
    "raw": [bytes_codec("little")],
    "big": [bytes_codec("big")],
    "zlib": [bytes_codec("little"), {"id": "zlib", "level": 1}],
    "gzip": [bytes_codec("little"), {"name": "gzip", "configuration": {"level": 1}}],
}


def codec_of(name: str, permutation: tuple[int, ...]) -> Codec:
    return Codec(name, permutation, encoding_of(CHAINS[name]))


def sharded_codec(inner: Shape, order: tuple[int, ...], permutation: tuple[int, ...]) -> Codec:
    """The codec of shards of chunks of shape `inner` (in stored axes), which are transposed by `order`."""
    transpose = {"name": "transpose", "configuration": {"order": list(order)}}
    configuration = {
        "chunk_shape": list(inner),
        "codecs": [transpose, bytes_codec("little")],
        "index_codecs": [bytes_codec("little"), {"name": "crc32c"}],
    }
    shards = {"name": "sharding_indexed", "configuration": configuration}
    return Codec("sharded(raw)", permutation, encoding_of([shards]))


def store(array: np.ndarray, chunk_shape: Shape, codec: Codec, file: str, files: Files) -> Manifest:
    """Store an array as chunks, one after another, in a file; bytes beyond its edges are 0xA5."""
    spec = ArraySpec(array.shape, array.dtype)
    data, chunks = bytearray(b"header"), {}
    for region, index in zip(
        chunk_regions(spec.shape, chunk_shape),
        itertools.product(*map(range, grid_counts(spec.shape, chunk_shape))),
        strict=True,
    ):
        chunk: np.ndarray = np.frombuffer(b"\xa5" * math.prod(chunk_shape) * spec.dtype.itemsize, spec.dtype)
        chunk = chunk.reshape(chunk_shape).copy()
        chunk[tuple(slice(length) for length in region.shape)] = array[region.slices]
        stored = encoded(chunk.transpose(codec.permutation), json.loads(codec.encoding))
        inline = stored if sum(index) % 3 == 2 else None
        offset = 0 if inline else len(data)
        chunks[index] = Chunk("" if inline else file, offset, len(stored), inline)
        data += b"" if inline else stored
    files[file] = bytes(data)
    return Manifest(spec, chunk_shape, codec, chunks)


def encoded(chunk: np.ndarray, codecs: list[dict[str, Any]]) -> bytes:
    first, *rest = codecs
    if first["name"] == "transpose":
        return encoded(chunk.transpose(first["configuration"]["order"]), rest)
    if first["name"] == "sharding_indexed":
        configuration = first["configuration"]
        regions = chunk_regions(chunk.shape, tuple(configuration["chunk_shape"]))
        return b"".join(encoded(chunk[r.slices], configuration["codecs"]) for r in regions)
    data = swapped(chunk.tobytes(), chunk.dtype.itemsize, first)
    return zlib.compress(data, 1) if rest else data


def decoded(manifest: Manifest, files: Mapping[str, bytes]) -> np.ndarray:
    """The array of a manifest. Fails unless every chunk is stored and decodes to exactly its elements."""
    spec, codec = manifest.spec, manifest.codec
    grid = itertools.product(*map(range, grid_counts(spec.shape, manifest.chunk_shape)))
    found: np.ndarray = np.empty(spec.shape, spec.dtype)
    indices = list(grid)
    assert set(manifest.chunks) == set(indices)
    assert sorted(codec.permutation) == list(range(spec.ndim))
    stored_shape = tuple(manifest.chunk_shape[axis] for axis in codec.permutation)
    for index, region in zip(indices, chunk_regions(spec.shape, manifest.chunk_shape), strict=True):
        stored = decoded_chunk(
            content(manifest.chunks[index], files), stored_shape, spec.dtype, json.loads(codec.encoding)
        )
        chunk = stored.transpose(np.argsort(codec.permutation))
        found[region.slices] = chunk[tuple(slice(length) for length in region.shape)]
    return found


def content(chunk: Chunk, files: Mapping[str, bytes]) -> bytes:
    if chunk.inline is not None:
        assert len(chunk.inline) == chunk.length
        return chunk.inline
    assert 0 <= chunk.offset <= chunk.offset + chunk.length <= len(files[chunk.file])
    return files[chunk.file][chunk.offset : chunk.offset + chunk.length]


def decoded_chunk(
    data: bytes, shape: Shape, dtype: np.dtype[Any], codecs: list[dict[str, Any]]
) -> np.ndarray:
    first, *rest = codecs
    if first["name"] == "transpose":
        order = first["configuration"]["order"]
        inner = decoded_chunk(data, tuple(shape[axis] for axis in order), dtype, rest)
        return inner.transpose(np.argsort(order))
    if first["name"] == "sharding_indexed":
        return joined_shards(data, shape, dtype, first["configuration"])
    data = swapped(zlib.decompress(data) if rest else data, dtype.itemsize, first)
    return np.frombuffer(data, dtype).reshape(shape)


def joined_shards(
    data: bytes, shape: Shape, dtype: np.dtype[Any], configuration: dict[str, Any]
) -> np.ndarray:
    inner = tuple(configuration["chunk_shape"])
    size = math.prod(inner) * dtype.itemsize
    found: np.ndarray = np.empty(shape, dtype)
    regions = list(chunk_regions(shape, inner))
    assert len(data) == size * len(regions)
    for i, region in enumerate(regions):
        part = data[i * size : (i + 1) * size]
        found[region.slices] = decoded_chunk(part, inner, dtype, configuration["codecs"])
    return found


def swapped(data: bytes, itemsize: int, codec: dict[str, Any]) -> bytes:
    """Elements turned from little endian to the byte order of the codec, or back."""
    if codec == bytes_codec("little"):
        return data
    return np.frombuffer(data, np.uint8).reshape(-1, itemsize)[:, ::-1].tobytes()
