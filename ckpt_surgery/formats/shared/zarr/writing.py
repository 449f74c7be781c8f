"""Metadata and chunk names of zarr arrays that are written."""

import itertools
import json
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.described import adopted_metadata
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, FILE_NAMES


def definition(output: Output, zarr: int) -> bytes:
    """The metadata of the array that an output is stored in, as JSON; `zarr`: the specification's version."""
    if output.stored is not None:
        return json.dumps(adopted_metadata(output.stored, zarr)).encode()
    spec = output.leaf.spec
    assert spec is not None
    return array_definition(zarr, spec.dtype, spec.shape, output.chunks)


ZSTD_LEVEL = 1
"""Level of compression, as Orbax's default."""


@lru_cache(maxsize=1 << 14)
def array_definition(zarr: int, dtype: np.dtype[Any], shape: Shape, chunks: Shape) -> bytes:
    """The array's metadata as TensorStore writes it: zstd, and in version 3 a CRC-32C over each chunk."""
    import tensorstore as ts

    metadata: dict[str, Any] = {"shape": shape}
    if zarr == 2:
        metadata |= {"chunks": chunks, "compressor": {"id": "zstd", "level": ZSTD_LEVEL}}
    else:
        zstd = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL}}
        metadata["codecs"] = [{"name": "bytes"}, zstd, {"name": "crc32c"}]
        metadata["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    spec = {"driver": DRIVERS[zarr], "kvstore": "memory://", "metadata": metadata}
    array = ts.open(spec, create=True, dtype=ts.dtype(dtype), context=ts.Context()).result()
    assert array.kvstore is not None
    return bytes(array.kvstore.read(FILE_NAMES[zarr]).result().value)


def chunk_name(index: Shape, zarr: int) -> str:
    """The name of a chunk of a written array: `0.1` in version 2, `c/0/1` in version 3."""
    return ".".join(map(str, index)) or "0" if zarr == 2 else "/".join(("c", *map(str, index)))


def chunk_names(region: Region, chunks: Shape, zarr: int) -> list[str]:
    """The names of the chunks that a region touches, in C order."""
    bounds = zip(region.starts, region.stops, chunks, strict=True)
    touched = (range(start // n, -(-stop // n)) for start, stop, n in bounds)
    return [chunk_name(index, zarr) for index in itertools.product(*touched)]
