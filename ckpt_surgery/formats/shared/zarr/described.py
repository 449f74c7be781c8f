"""Zarr metadata of stored arrays, versions 2 and 3: a manifest becomes the document that reads it back."""

import functools
import json
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.manifests import Codec, Manifest, bytes_codec, long_axes
from ckpt_surgery.formats.shared.zarr.metadata import CHAINS_OF_SHARDS, HELD, NATIVE, SHUFFLES


def adopted_metadata(manifest: Manifest, zarr: int) -> dict[str, Any] | None:
    """The metadata with which a version of zarr reads the stored bytes as this array. Do not change it.

    None where the version has no such dtype, codec or order of axes, and where chunks are missing;
    `wholly_stored` tells whether shards lack some. Chunks are named as `chunk_name` says.
    """
    if not manifest.complete:
        return None
    described = described_in_v2 if zarr == 2 else described_in_v3
    return described(manifest.spec, manifest.chunk_shape, manifest.codec)


def described_in_v2(spec: ArraySpec, chunk_shape: Shape, codec: Codec) -> dict[str, Any] | None:
    """The `.zarray` of an array whose chunks are encoded so; None where version 2 has no such array."""
    axes = long_axes(chunk_shape, codec)
    first, *rest = json.loads(codec.encoding)
    if not codec.bytewise or list(axes) not in (sorted(axes), sorted(axes)[::-1]):
        return None
    big, compressors = first == bytes_codec("big"), [_compressor(step) for step in rest]
    name = spec.dtype.name
    dtype = spec.dtype.newbyteorder(">" if big else "<").str if name in NATIVE else name
    if name not in HELD or (big and name not in NATIVE) or None in compressors or len(compressors) > 1:
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


@functools.lru_cache(maxsize=4096)
def described_in_v3(spec: ArraySpec, chunk_shape: Shape, codec: Codec) -> dict[str, Any] | None:
    """The `zarr.json` of an array whose chunks are encoded so; None where version 3 has no such array.

    Cached: do not change it.
    """
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
