"""Metadata, names and errors of zarr arrays that are written."""

import json
from typing import Any

import numpy as np
import pytest
import tensorstore as ts

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.formats.shared.zarr.metadata import parse_array
from ckpt_surgery.formats.shared.zarr.writing import (
    DRIVERS,
    array_definition,
    chunk_name,
    put,
    store_errors,
)


@pytest.mark.parametrize(("version", "codec"), [(2, "zstd"), (3, "zstd+crc32c")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int4"])
def test_arrays_are_compressed_and_in_version_3_checked(version: int, codec: str, dtype: str) -> None:
    found = parse_array(array_definition(version, dtype, (4, 6), (2, 3)), version)
    assert (found.codec.name, found.codec.order) == (codec, "C")
    assert (str(found.spec), found.chunk_shape) == (f"{dtype}[4,6]", (2, 3))


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_are_named_as_tensorstore_names_them(version: int) -> None:
    for shape, index in (((4, 6), (1, 0)), ((), ())):
        chunks = tuple(2 for _ in shape)
        text = array_definition(version, "int8", shape, chunks)
        assert parse_array(text, version).chunk_name(index) == chunk_name(index, version)


@pytest.mark.parametrize("version", [2, 3])
def test_a_region_is_written_where_it_belongs(version: int) -> None:
    metadata = json.loads(array_definition(version, "int8", (4, 6), (2, 3)))
    spec = {"driver": DRIVERS[version], "kvstore": "memory://", "metadata": metadata}
    store: Any = ts.open(spec, create=True, context=ts.Context()).result()
    put(store, Region((2, 3), (4, 6)), np.full((2, 3), 7, np.int8)).result()
    wanted = np.zeros((4, 6), np.int8)
    wanted[2:, 3:] = 7
    np.testing.assert_array_equal(store.read().result(), wanted)
    names = {key.decode() for key in store.kvstore.list().result()}
    assert chunk_name((1, 1), version) in names
    assert chunk_name((0, 0), version) not in names


def test_errors_of_the_store_say_what_was_written_and_other_errors_pass() -> None:
    error = OSError("No space left [source locations='file.cc:1']")
    with (
        pytest.raises(StorageError, match=r"^Writing `w` failed: No space left\n") as caught,
        store_errors("`w`"),
    ):
        raise error
    assert caught.value.problems[0].hint == "Check the free space and the permissions of the destination."
    with pytest.raises(ZeroDivisionError), store_errors("`w`"):
        raise ZeroDivisionError
