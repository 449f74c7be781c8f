"""Codecs as zarr's metadata name them, and arrays that TensorStore writes with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from tests.support.heavy import ts

Codec = dict[str, Any]

LITTLE: Codec = {"name": "bytes", "configuration": {"endian": "little"}}
BIG: Codec = {"name": "bytes", "configuration": {"endian": "big"}}
CRC: Codec = {"name": "crc32c"}
ZSTD: Codec = {"name": "zstd", "configuration": {"level": 3}}
GZIP: Codec = {"name": "gzip", "configuration": {"level": 1}}
BLOSC: Codec = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}}


def transpose(*order: int) -> Codec:
    return {"name": "transpose", "configuration": {"order": list(order)}}


def shards(
    inner: Sequence[int],
    codecs: Sequence[Codec],
    index: Sequence[Codec] = (LITTLE, CRC),
    location: str = "end",
) -> Codec:
    configuration = {"chunk_shape": list(inner), "codecs": list(codecs), "index_codecs": list(index)}
    return {
        "name": "sharding_indexed",
        "configuration": configuration | {"index_location": location or "end"},
    }


def regular(*chunk_shape: int) -> Codec:
    """A grid of chunks."""
    return {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}}


TURNED = transpose(1, 0)
CHAINS: list[list[Codec]] = [
    [LITTLE],
    [BIG],
    [TURNED, LITTLE],
    [LITTLE, CRC],
    [TURNED, BIG, CRC, CRC],
    [LITTLE, ZSTD],
    [BIG, ZSTD, CRC],
    [LITTLE, CRC, ZSTD],
    [LITTLE, GZIP, ZSTD],
    [TURNED, LITTLE, GZIP],
    [LITTLE, BLOSC],
    [shards((2, 3), [LITTLE], [LITTLE])],
    [shards((2, 3), [BIG, CRC], [BIG], "start")],
    [shards((2, 3), [LITTLE, ZSTD], location="start")],
    [shards((2, 3), [LITTLE, GZIP, CRC])],
    [TURNED, shards((3, 2), [TURNED, LITTLE, ZSTD])],
    [shards((4, 6), [shards((2, 3), [LITTLE, GZIP], [LITTLE])])],
]
"""What version 3 does with arrays of two axes; the last has shards within shards."""
COMPRESSORS: list[Codec | None] = [
    None,
    {"id": "zstd", "level": 1},
    {"id": "gzip", "level": 1},
    {"id": "zlib", "level": 1},
    {"id": "bz2", "level": 1},
    {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": -1, "blocksize": 0},
]


def save(
    store: "ts.KvStore",
    version: int,
    metadata: dict[str, Any],
    value: Any = None,
    dtype: str = "",
    **spec: Any,
) -> Any:
    """An array that TensorStore makes with this metadata, and writes if there is a value."""
    spec |= {"driver": DRIVERS[version], "metadata": metadata}
    if value is not None:
        spec["metadata"] = {"shape": value.shape} | metadata
        dtype = value.dtype.name
    made = ts.open(spec, kvstore=store, create=True, dtype=ts.dtype(dtype), context=ts.Context()).result()
    if value is not None:
        made.write(value).result()
    return made


def save_file(path: Path, version: int, metadata: dict[str, Any], value: np.ndarray) -> None:
    """An array in files below a directory."""
    save(ts.KvStore.open(f"file://{path}/").result(), version, metadata, value)


def memory() -> "ts.KvStore":
    """An empty store."""
    return ts.KvStore.open("memory://", context=ts.Context()).result()


def contents(store: "ts.KvStore") -> dict[str, bytes]:
    return {key.decode(): bytes(store.read(key).result().value) for key in store.list().result()}


def stored(
    version: int, metadata: dict[str, Any], value: np.ndarray | None = None, dtype: str = ""
) -> dict[str, bytes]:
    """What is stored of an array, by name."""
    store = memory()
    save(store, version, metadata, value, dtype)
    return contents(store)
