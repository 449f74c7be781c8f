"""What writing zarr arrays through TensorStore takes: their metadata, the names of chunks, and its errors."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import (
    Region,
    Shape,
)
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.manifests import (
    Manifest,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.ocdbt.reader import STORE_ERRORS, store_message
from ckpt_surgery.formats.shared.store_failures import system_error
from ckpt_surgery.formats.shared.zarr.described import zarr2_metadata, zarr3_metadata
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.storage.failures import CHECK, storage_error

DRIVERS = {2: "zarr", 3: "zarr3"}
"""Names of TensorStore's drivers, by zarr version."""


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turns what TensorStore and the system raise while something is written into StorageError."""
    try:
        yield
    except STORE_ERRORS as error:
        refused = system_error(error)
        if refused is not None:
            raise storage_error(shown(str(refused.filename or what)), refused) from error
        raise StorageError(
            f"Writing {what} failed: {store_message(error)}",
            hint=CHECK,
        ) from error


@lru_cache(maxsize=1 << 14)
def array_definition(zarr: int, dtype: str, shape: Shape, chunks: Shape) -> bytes:
    """The array's metadata as TensorStore writes it: zstd, and in version 3 a CRC-32C over each chunk."""
    import tensorstore as ts

    metadata: dict[str, Any] = {"shape": shape}
    if zarr == 2:
        metadata |= {"chunks": chunks, "compressor": {"id": "zstd", "level": 1}}
    else:
        zstd = {"name": "zstd", "configuration": {"level": 1}}
        metadata["codecs"] = [{"name": "bytes"}, zstd, {"name": "crc32c"}]
        metadata["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    spec = {"driver": DRIVERS[zarr], "kvstore": "memory://", "metadata": metadata}
    array = ts.open(spec, create=True, dtype=ts.dtype(dtype), context=ts.Context()).result()
    assert array.kvstore is not None
    return bytes(array.kvstore.read(FILE_NAMES[zarr]).result().value)


def adopted_metadata(manifest: Manifest, zarr: int) -> dict[str, Any] | None:
    """The metadata of an array of these stored bytes; None where a version of zarr cannot describe them."""
    return zarr2_metadata(manifest) if zarr == 2 else zarr3_metadata(manifest)


def chunk_name(index: Shape, zarr: int) -> str:
    """The name of a chunk of a written array: `0.1` in version 2, `c/0/1` in version 3."""
    return ".".join(map(str, index)) or "0" if zarr == 2 else "/".join(("c", *map(str, index)))


def chunk_names(region: Region, chunks: Shape, zarr: int) -> list[str]:
    """The names of the chunks that a region touches, in C order."""
    bounds = zip(region.starts, region.stops, chunks, strict=True)
    touched = (range(start // n, -(-stop // n)) for start, stop, n in bounds)
    return [chunk_name(index, zarr) for index in itertools.product(*touched)]


def fetched(array: Any, region: Region) -> np.ndarray:
    """A region as it was written. Raises what TensorStore raises where chunks are missing or damaged."""
    return np.asarray(array[region.slices].read().result())


def put(array: Any, region: Region, block: np.ndarray) -> Any:
    """Begin to write a block, which must not change until the futures that this returns are done."""
    return array[region.slices].write(block, can_reference_source_data_indefinitely=True)
