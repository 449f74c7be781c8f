"""Metadata and chunk names of zarr arrays that are written."""

import json

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.metadata import parse_array
from ckpt_surgery.formats.shared.zarr.writing import (
    array_definition,
    chunk_name,
    definition,
)
from tests.support.leaves import array_leaf


@pytest.mark.parametrize(("version", "codec"), [(2, "zstd"), (3, "zstd+crc32c")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int4"])
def test_arrays_are_compressed_and_in_version_3_checked(version: int, codec: str, dtype: str) -> None:
    found = parse_array(array_definition(version, DTYPES[dtype], (4, 6), (2, 3)), version)
    assert (found.codec.name, found.codec.order) == (codec, "C")
    assert (str(found.spec), found.chunk_shape) == (f"{dtype}[4,6]", (2, 3))


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_are_named_as_tensorstore_names_them(version: int) -> None:
    for shape, index in (((4, 6), (1, 0)), ((), ())):
        chunks = tuple(2 for _ in shape)
        text = array_definition(version, np.dtype(np.int8), shape, chunks)
        assert parse_array(text, version).chunk_name(index) == chunk_name(index, version)


@pytest.mark.parametrize("version", [2, 3])
def test_an_output_is_described_by_its_grid_or_by_its_stored_bytes(version: int) -> None:
    leaf = array_leaf("w", (4, 6))
    computed = parse_array(definition(Output(leaf, (2, 3)), version), version)
    assert (computed.chunk_shape, computed.raw) == ((2, 3), False)
    stored = contiguous(ArraySpec((4, 6), np.dtype(np.float32)), "x", 8)
    adopted = parse_array(definition(Output(leaf, (4, 6), stored), version), version)
    assert (adopted.chunk_shape, adopted.raw) == ((4, 6), True)
    assert json.loads(definition(Output(leaf, (4, 6), stored), version))["zarr_format"] == version
