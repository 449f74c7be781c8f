"""Decoding the stored chunks of zarr arrays in memory, from what their manifests say of the encoding.

TensorStore decodes, as a codec: it is given the bytes, and opens no file and no object. For it, a manifest
becomes zarr metadata of version 2 or 3 that reads the stored array back. Arrays are written with it too.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np
import zstandard

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, covering_chunks, grid_counts
from ckpt_surgery.core.dtypes import NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import (
    Chunk,
    Codec,
    Manifest,
    bytes_codec,
    encoding_of,
    long_axes,
    parts_of_chunks,
)
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.chunk_reading import AT_A_TIME, Fetch, assembled, elements_in, filled
from ckpt_surgery.formats.shared.ocdbt.reader import STORE_ERRORS, store_message
from ckpt_surgery.formats.shared.zarr import shards
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, chunk_name
from ckpt_surgery.formats.shared.zarr.metadata import (
    CHAINS_OF_SHARDS,
    HELD,
    SHUFFLES,
    UNKNOWN,
    fill_value,
    leading_transposes,
)
from ckpt_surgery.storage.failures import damaged

CRC32C = {"name": "crc32c"}
CRC_RESIDUE = 0x48674BC7
"""CRC-32C of any bytes that their own CRC-32C follows, little-endian."""
WHOLE_BYTES = 8 << 20
"""Shards of at most this many bytes are small. In an object store, a second request takes as long."""


def decode_region(manifest: Manifest, region: Region, fetch: Fetch) -> np.ndarray:
    """The elements of a region of a zarr array, which is not empty. Its chunks are decoded in parallel.

    Missing chunks, and those that shards lack, have the value `manifest.fill`. Where little of a shard is
    wanted, only its index and the touched chunks inside are read. Memory: the chunks as they are stored and
    as they are decoded, and the region.
    """
    layout = shards.shard_layout(manifest.codec.encoding)
    if layout is not None:
        # Metadata cannot say every value with which TensorStore, which decodes here, has to fill shards.
        unspelled = manifest.fill is not None and fill_value(manifest.fill, manifest.spec.dtype) is None
        if unspelled or _is_divided(manifest, region):
            manifest = inner_chunks(manifest, layout, region, fetch)
    touched = [index for index, _ in parts_of_chunks(manifest, region)]
    stored = [index for index in touched if index in manifest.chunks]
    if manifest.fill is None and len(stored) < len(touched):
        absent = next(index for index in touched if index not in manifest.chunks)
        raise damaged(f"its chunk {chunk_name(absent, 3)} is missing")
    wrappers = [codec.get("name") for codec in json.loads(manifest.codec.encoding)[1:]]
    if not stored or (manifest.codec.bytewise and all(name in _UNWRAP for name in wrappers)):
        return _unwrapped_region(manifest, region, fetch, wrappers[::-1])
    block = _decoded(manifest, region, stored, fetch([manifest.chunks[index] for index in stored]))
    if len(stored) < len(touched):
        for index, part in parts_of_chunks(manifest, region):
            if index not in manifest.chunks:
                block[part.within(region)] = filled(manifest, index, part.shape)
    return block


# --- shards -----------------------------------------------------------------------------------------------


def _is_divided(manifest: Manifest, region: Region) -> bool:
    """Whether the chunks inside shards are read one by one: where less than half of the shards is wanted, or
    where large ones lie in files, which saves the memory. In an object store a second request has to pay.
    """
    part = 2 * region.size < covering_chunks(region, manifest.spec.shape, manifest.chunk_shape).size
    chunks = [manifest.chunks.get(index) for index, _ in parts_of_chunks(manifest, region)]
    large = any(chunk is not None and chunk.length > WHOLE_BYTES for chunk in chunks)
    remote = any(chunk is not None and urls.is_url(chunk.file) for chunk in chunks)
    return part and large if remote else part or large


def inner_chunks(manifest: Manifest, layout: shards.ShardLayout, region: Region, fetch: Fetch) -> Manifest:
    """The manifest of the chunks inside shards that a region touches. Reads the indexes of the shards."""
    axes, [codec] = manifest.codec.permutation, json.loads(manifest.codec.encoding)
    grid = tuple(layout.inner[axes.index(axis)] for axis in range(len(axes)))
    order, chain = leading_transposes(codec["configuration"]["codecs"], len(axes))
    inner = Codec(manifest.codec.name, tuple(axes[axis] for axis in order), encoding_of(chain))
    inside = replace(manifest, chunk_shape=grid, codec=inner, chunks={})
    per_shard = grid_counts(manifest.chunk_shape, grid)
    if any(length % n for length, n in zip(manifest.chunk_shape, grid, strict=True)):
        raise damaged(f"its shards of {manifest.chunk_shape} do not consist of {grid}")
    stored = [index for index, _ in parts_of_chunks(manifest, region) if index in manifest.chunks]
    ranges = [shards.index_range(manifest, layout, manifest.chunks[index]) for index in stored]
    entries = {}
    for index, data in zip(stored, fetch([at for at in ranges if at is not None]), strict=True):
        parsed = shards.index_entries(manifest, layout, manifest.chunks[index], data)
        if parsed is None:
            raise damaged(f"the index of its shard {chunk_name(index, 3)} is damaged")
        entries[index] = parsed
    chunks: dict[Shape, Chunk] = {}
    for index, _ in parts_of_chunks(inside, region):
        shard, at = zip(*map(divmod, index, per_shard), strict=True) if index else ((), ())
        if shard not in entries:
            continue
        outer, (offsets, lengths) = manifest.chunks[shard], entries[shard]
        place = tuple(at[axis] for axis in axes)
        if offsets[place] != shards.ABSENT:
            offset, length = outer.offset + int(offsets[place]), int(lengths[place])
            chunks[index] = Chunk(outer.file, offset, length, outer.inline)
    return replace(inside, chunks=chunks)


# --- zstd and plain bytes ---------------------------------------------------------------------------------


def _unwrapped_region(
    manifest: Manifest, region: Region, fetch: Fetch, wrappers: Sequence[str]
) -> np.ndarray:
    """A region of chunks that are plain bytes once these codecs, the outermost first, are taken off."""
    codec = replace(manifest.codec, encoding=encoding_of(json.loads(manifest.codec.encoding)[:1]))
    spec = ArraySpec(manifest.chunk_shape, manifest.spec.dtype)

    def decoded(index: Shape, inner: Region, data: bytes) -> np.ndarray:
        plain: bytes | memoryview | None = data
        for name in wrappers:
            plain = _UNWRAP[name](plain, manifest.chunk_nbytes) if plain is not None else None
        if plain is None or len(plain) != manifest.chunk_nbytes:
            origin = tuple(i * length for i, length in zip(index, manifest.chunk_shape, strict=True))
            return _decoded(manifest, inner.moved(origin), [index], iter([data]))
        return elements_in(plain, spec, codec, inner)

    return assembled(manifest, region, decoded, fetch, AT_A_TIME)


def _checked(data: bytes | memoryview, nbytes: int) -> memoryview | None:
    """Bytes before a CRC-32C; None if it does not match."""
    whole = data if isinstance(data, bytes) else bytes(data)
    # With its own checksum behind it, everything has the same one: no part has to be copied.
    return memoryview(whole)[: -shards.CRC_BYTES] if google_crc32c.value(whole) == CRC_RESIDUE else None


def _inflated(data: bytes | memoryview, nbytes: int) -> bytes | None:
    """The content of one zstd frame that says how long it is; None where it is anything else."""
    try:
        if zstandard.frame_content_size(data) != nbytes:
            return None
        return OF_THREAD.decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError:
        return None


_UNWRAP = {"crc32c": _checked, "zstd": _inflated}
"""Take a codec off; None where TensorStore has to say what is wrong, or knows how to read it all the same."""


# --- TensorStore ------------------------------------------------------------------------------------------


def _decoded(
    manifest: Manifest, region: Region, stored: Sequence[Shape], data: Iterator[bytes]
) -> np.ndarray:
    """The elements of a region. `data`: the stored bytes of the chunks that it touches, by `stored`."""
    store = None
    try:
        described = (manifest.spec, manifest.chunk_shape, manifest.codec, manifest.fill)
        version, store, handle = OF_THREAD.opened(*described)
        for index in stored:
            # No name holds on to the bytes: they are in memory once more from here on.
            store.write(chunk_name(index, version), next(data)).result()
        return np.asarray(handle[region.slices].read().result())
    except STORE_ERRORS as error:
        why = store_message(error)
        # TensorStore names the chunk, of which the file is named here.
        name, _, reason = why.partition(": ")
        named = {f'"{chunk_name(i, zarr)}"': i for i in stored for zarr in (2, 3)}.get(name)
        what = "a chunk" if named is None else f"its chunk {chunk_name(named, 3)}"
        files = {manifest.chunks[index].file for index in stored if named in (None, index)} - {""}
        where = f" in {few(sorted(files))}" if files else ""
        reason = why if named is None else reason
        raise damaged(f"{what}{where} cannot be decoded: {reason}") from error
    finally:
        if store is not None:
            store.delete_range(store.KeyRange()).result()


def _open(spec: ArraySpec, chunk_shape: Shape, codec: Codec, fill: bytes | None) -> tuple[int, Any, Any]:
    """An array in memory that decodes chunks of this description, for one thread.

    The zarr version of its driver, the store for its chunks, which is empty, and the open array.
    """
    import tensorstore as ts

    described = described_in_v3(spec, chunk_shape, codec)
    version = 2 if described is None else 3
    document = described_in_v2(spec, chunk_shape, codec) if described is None else described
    if document is None:
        raise SourceError(f"its encoding `{shown(codec.name)}` cannot be read", hint=UNKNOWN)
    # Only shards need the value: missing chunks are filled outside.
    spelled = None if fill is None or codec.bytewise else fill_value(fill, spec.dtype)
    if spelled is not None:
        document = document | {"fill_value": spelled}
    fills = spelled is not None or (fill is not None and codec.bytewise)
    context = ts.Context()
    store = ts.KvStore.open({"driver": "memory"}, context=context).result()
    asked = {"driver": DRIVERS[version], "metadata": document, "fill_missing_data_reads": fills}
    handle = ts.open(asked, kvstore=store, open=True, read=True, assume_metadata=True, context=context)
    return version, store, handle.result()


class _OfThread(threading.local):
    """Codecs kept by each thread, because making one takes longer than decoding a small chunk."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1)  # as Orbax's default
        self.decompressor = zstandard.ZstdDecompressor()
        self.opened = lru_cache(64)(_open)


OF_THREAD = _OfThread()


def described_in_v2(spec: ArraySpec, chunk_shape: Shape, codec: Codec) -> dict[str, Any] | None:
    """The `.zarray` of an array whose chunks are encoded so; None where version 2 has no such array."""
    axes = long_axes(chunk_shape, codec)
    first, *rest = json.loads(codec.encoding)
    if not codec.bytewise or list(axes) not in (sorted(axes), sorted(axes)[::-1]):
        return None
    big, compressors = first == bytes_codec("big"), [_compressor(step) for step in rest]
    name = spec.dtype.name
    dtype = spec.dtype.newbyteorder(">" if big else "<").str if name in NUMPY_NAMES else name
    if name not in HELD or (big and name not in NUMPY_NAMES) or None in compressors or len(compressors) > 1:
        return None
    return {
        "zarr_format": 2,
        "shape": list(spec.shape),
        "chunks": list(chunk_shape),
        "dtype": dtype,
        "compressor": compressors[0] if compressors else None,
        "fill_value": None,
        "filters": None,
        "order": "C" if list(axes) == sorted(axes) else "F",
        "dimension_separator": ".",
    }


def _compressor(codec: dict[str, Any]) -> dict[str, Any] | None:
    """A codec as version 2 spells it; None where it has no such compressor."""
    if "id" in codec:
        return codec
    name = codec.get("name")
    configuration: dict[str, Any] = codec.get("configuration", {})
    if name in ("zstd", "gzip"):
        return {"id": name, "level": configuration.get("level", 1)}
    if name == "blosc":
        return {"id": name} | configuration | {"shuffle": SHUFFLES.index(configuration["shuffle"])}
    return None


@lru_cache(maxsize=4096)
def described_in_v3(spec: ArraySpec, chunk_shape: Shape, codec: Codec) -> dict[str, Any] | None:
    """The `zarr.json` of an array, cached: do not change it. None where version 3 has no such array."""
    codecs = [_codec_for_v3(step, spec.dtype) for step in json.loads(codec.encoding)]
    if spec.dtype.name not in HELD or None in codecs:
        return None
    axes = long_axes(chunk_shape, codec) if codec.bytewise else codec.permutation
    if list(axes) != sorted(axes):
        codecs.insert(0, {"name": "transpose", "configuration": {"order": list(codec.permutation)}})
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.shape),
        "data_type": spec.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        # Required, and never used: no chunk is missing.
        "fill_value": {"c": [0, 0], "b": False}.get(spec.dtype.kind, 0),
        "codecs": codecs,
        "attributes": {},
    }


def _codec_for_v3(codec: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any] | None:
    """A codec as version 3 spells it for this dtype; None where it has no such codec.

    It has all members that any version of TensorStore needs: before 0.1.74, zstd needs `checksum`.
    """
    if "name" not in codec:
        return None
    name, configuration = codec["name"], codec.get("configuration", {})
    if name == "bytes" and dtype.itemsize == 1:
        return {"name": "bytes"}
    if name == "blosc":
        return codec | {"configuration": configuration | {"typesize": dtype.itemsize}}
    if name == "zstd":
        return codec | {"configuration": {"level": 1, "checksum": False} | configuration}
    if name == "sharding_indexed":
        chains = {
            chain: [_codec_for_v3(inner, held or dtype) for inner in configuration[chain]]
            for chain, held in CHAINS_OF_SHARDS.items()
            if chain in configuration
        }
        return codec | {"configuration": configuration | chains}
    return codec


Describe = Callable[[ArraySpec, Shape, Codec], dict[str, Any] | None]
DESCRIBED: Mapping[int, Describe] = {2: described_in_v2, 3: described_in_v3}


def adopted_metadata(manifest: Manifest, zarr: int) -> dict[str, Any] | None:
    """The metadata with which a version of zarr reads the stored bytes as this array. Do not change it.

    None where the version has no such dtype, codec or order of axes, and where chunks are missing;
    `wholly_stored` tells whether shards lack some. Chunks are named as `chunk_name` says.
    """
    about = (manifest.spec, manifest.chunk_shape, manifest.codec)
    return DESCRIBED[zarr](*about) if manifest.complete else None
