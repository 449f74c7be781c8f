"""Codecs as zarr's metadata name them."""

from collections.abc import Sequence
from typing import Any

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
