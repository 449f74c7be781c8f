"""The metadata that describes stored bytes as a zarr array: whole documents, and what neither version has."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, grid_counts
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, encoding_of, raw_codec
from ckpt_surgery.formats.shared.zarr.described import adopted_metadata
from tests.support.stored_arrays import sharded_codec

LITTLE, BIG = bytes_codec("little"), bytes_codec("big")
ZSTD = {"name": "zstd", "configuration": {"level": 3}}
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "blocksize": 0}


def manifest(
    dtype: Any = np.float32, codecs: Any = (LITTLE,), permutation: tuple[int, ...] = (0, 1)
) -> Manifest:
    """A whole array of shape 4 × 6 in chunks of 2 × 3; nobody looks at its bytes."""
    codec = Codec("x", permutation, encoding_of(codecs))
    chunks = {index: Chunk("x", 0, 1) for index in np.ndindex(*grid_counts((4, 6), (2, 3)))}
    return Manifest(ArraySpec((4, 6), np.dtype(dtype)), (2, 3), codec, chunks)


def test_a_whole_document_of_version_2() -> None:
    assert adopted_metadata(manifest(codecs=(BIG, ZSTD), permutation=(1, 0)), 2) == {
        "zarr_format": 2,
        "shape": [4, 6],
        "chunks": [2, 3],
        "dtype": ">f4",
        "compressor": {"id": "zstd", "level": 3},
        "fill_value": None,
        "filters": None,
        "order": "F",
        "dimension_separator": ".",
    }


def test_a_whole_document_of_version_3() -> None:
    assert adopted_metadata(manifest(codecs=(BIG, ZSTD), permutation=(1, 0)), 3) == {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 6],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [
            {"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
        ],
        "attributes": {},
    }


@pytest.mark.parametrize(
    ("codec", "version_2", "version_3"),
    [
        (
            {"name": "gzip", "configuration": {"level": 6}},
            {"id": "gzip", "level": 6},
            {"name": "gzip", "configuration": {"level": 6}},
        ),
        # Without a level, version 2 needs one.
        (
            {"name": "zstd"},
            {"id": "zstd", "level": 1},
            {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
        ),
        # Version 2 numbers the shuffles, version 3 needs the size of an element.
        (
            {"name": "blosc", "configuration": BLOSC},
            {"id": "blosc"} | BLOSC | {"shuffle": 2},
            {"name": "blosc", "configuration": BLOSC | {"typesize": 4}},
        ),
        ({"id": "bz2", "level": 1}, {"id": "bz2", "level": 1}, None),  # only version 2 has it
        ({"name": "crc32c"}, None, {"name": "crc32c"}),  # only version 3 has it
    ],
)
def test_codecs_are_spelled_as_each_version_does(
    codec: dict[str, Any], version_2: dict[str, Any] | None, version_3: dict[str, Any] | None
) -> None:
    found = manifest(codecs=(LITTLE, codec))
    two, three = adopted_metadata(found, 2), adopted_metadata(found, 3)
    assert (two and two["compressor"]) == version_2
    assert (three and three["codecs"]) == (version_3 and [LITTLE, version_3])


def test_version_2_has_one_compressor_and_no_shards() -> None:
    assert adopted_metadata(manifest(codecs=(LITTLE, ZSTD, ZSTD)), 2) is None
    sharded = replace(manifest(), codec=sharded_codec((1, 3), (1, 0), (0, 1)))
    assert adopted_metadata(sharded, 2) is None
    found = adopted_metadata(sharded, 3)
    assert found is not None
    [shards] = found["codecs"]
    assert shards["name"] == "sharding_indexed"


def test_the_index_of_a_shard_is_made_of_long_integers_whatever_its_elements_are() -> None:
    found = adopted_metadata(replace(manifest(np.uint8), codec=sharded_codec((1, 3), (1, 0), (0, 1))), 3)
    assert found is not None
    [shards] = found["codecs"]
    assert shards["configuration"]["codecs"][1] == {"name": "bytes"}
    assert shards["configuration"]["index_codecs"] == [LITTLE, {"name": "crc32c"}]


@pytest.mark.parametrize(
    ("dtype", "codec", "name"),
    [
        (np.bool_, LITTLE, "|b1"),
        (np.int8, BIG, "|i1"),  # one byte has no order
        (np.complex64, BIG, ">c8"),
        (ml_dtypes.bfloat16, LITTLE, "bfloat16"),
        (ml_dtypes.bfloat16, BIG, None),  # its name cannot say so
        (ml_dtypes.int4, LITTLE, "int4"),
        (ml_dtypes.uint4, LITTLE, None),  # neither version has it
        (ml_dtypes.float6_e2m3fn, LITTLE, None),
    ],
)
def test_types_are_named_as_version_2_does(dtype: Any, codec: dict[str, Any], name: str | None) -> None:
    found = adopted_metadata(manifest(dtype, (codec,)), 2)
    assert (found and found["dtype"]) == name


@pytest.mark.parametrize(
    ("dtype", "name", "fill"),
    [
        (np.bool_, "bool", False),
        (np.complex128, "complex128", [0, 0]),
        (ml_dtypes.bfloat16, "bfloat16", 0),
        (np.uint64, "uint64", 0),
    ],
)
def test_fill_values_are_of_the_type_in_version_3(dtype: Any, name: str, fill: Any) -> None:
    found = adopted_metadata(manifest(dtype), 3)
    assert found is not None
    assert (found["data_type"], repr(found["fill_value"])) == (name, repr(fill))  # False is not 0 in JSON


def test_types_that_version_3_does_not_have() -> None:
    assert adopted_metadata(manifest(ml_dtypes.uint4), 3) is None
    assert adopted_metadata(manifest(ml_dtypes.float8_e4m3), 3) is None


def test_an_array_with_a_missing_chunk_is_not_described() -> None:
    """What is missing would read as the fill value."""
    whole = manifest()
    part = replace(whole, chunks=dict([*whole.chunks.items()][:-1]))
    assert adopted_metadata(whole, 2) is not None
    assert adopted_metadata(whole, 3) is not None
    assert adopted_metadata(part, 2) is adopted_metadata(part, 3) is None


def test_axes_along_which_chunks_have_the_length_1_make_no_order() -> None:
    spec = ArraySpec((1, 4, 1), np.dtype(np.int8))
    found = Manifest(
        spec, spec.shape, Codec("raw", (1, 2, 0), raw_codec(3).encoding), {(0, 0, 0): Chunk("x", 0, 4)}
    )
    two, three = adopted_metadata(found, 2), adopted_metadata(found, 3)
    assert two is not None
    assert three is not None
    assert (two["order"], three["codecs"]) == ("C", [{"name": "bytes"}])


def test_a_transpose_has_all_axes_also_those_of_length_1() -> None:
    spec = ArraySpec((2, 1, 3), np.dtype(np.int8))
    found = Manifest(
        spec, spec.shape, Codec("raw", (2, 1, 0), raw_codec(3).encoding), {(0, 0, 0): Chunk("x", 0, 6)}
    )
    two, three = adopted_metadata(found, 2), adopted_metadata(found, 3)
    assert two is not None
    assert three is not None
    assert two["order"] == "F"
    assert three["codecs"][0]["configuration"] == {"order": [2, 1, 0]}
