"""Codecs and manifests: what can be read in parts, what is stored in which order, what is complete."""

from dataclasses import replace

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.manifests import (
    RANGED_BYTES,
    RAW,
    Chunk,
    Codec,
    Manifest,
    bytes_codec,
    encoding_of,
    raw_codec,
)

ZSTD = {"name": "zstd", "configuration": {"level": 0}}
SHARDS = {"name": "sharding_indexed", "configuration": {"codecs": [bytes_codec("little")]}}


def manifest(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "float32") -> Manifest:
    return Manifest(ArraySpec(shape, dtype_named(dtype)), chunks, raw_codec(len(shape)), {})


def test_equal_codecs_have_equal_text_whatever_the_order_of_their_fields() -> None:
    turned = {"configuration": {"endian": "little"}, "name": "bytes"}
    assert encoding_of([turned]) == encoding_of([bytes_codec("little")]) == RAW
    assert RAW == '[{"configuration":{"endian":"little"},"name":"bytes"}]'
    assert encoding_of((ZSTD, SHARDS)) != encoding_of((SHARDS, ZSTD))


@pytest.mark.parametrize(
    ("codecs", "raw", "little", "bytewise"),
    [
        ([bytes_codec("little")], True, True, True),
        ([bytes_codec("big")], False, False, True),
        ([bytes_codec("little"), ZSTD], False, True, True),
        ([bytes_codec("big"), ZSTD], False, False, True),
        ([SHARDS], False, False, False),  # where an element lies depends on the shape
        ([{"id": "delta"}], False, False, False),
        ([{"packed": 4}], False, False, False),
    ],
)
def test_what_is_known_of_the_stored_bytes(codecs, raw, little, bytewise) -> None:
    codec = Codec("any", (0,), encoding_of(codecs))
    assert (codec.raw, codec.little, codec.bytewise) == (raw, little, bytewise)


@pytest.mark.parametrize(
    ("permutation", "order"),
    [((), "C"), ((0,), "C"), ((0, 1, 2), "C"), ((1, 0), "F"), ((2, 1, 0), "F"), ((1, 0, 2), "1,0,2")],
)
def test_orders_have_the_names_that_people_use(permutation, order) -> None:
    assert Codec("raw", permutation, RAW).order == order


def test_chunks_at_the_edge_count_in_full() -> None:
    assert manifest((10, 10), (4, 4)).chunk_nbytes == 64
    assert manifest((2,), (8,), "int16").chunk_nbytes == 16


@pytest.mark.parametrize(
    ("dtype", "elements", "in_parts"),
    [
        ("float32", RANGED_BYTES // 4, True),
        ("float32", RANGED_BYTES // 4 - 1, False),  # too small to be worth it
        ("uint8", RANGED_BYTES, True),
        ("bool", RANGED_BYTES, False),  # a byte of 2 is no value: all of them have to be looked at
        ("int4", RANGED_BYTES, False),
    ],
)
def test_large_raw_chunks_are_read_in_parts(dtype: str, elements: int, in_parts: bool) -> None:
    stored = manifest((elements,), (elements,), dtype)
    assert stored.supports_partial_reads == in_parts
    encoded = replace(stored, codec=Codec("zstd", (0,), encoding_of([bytes_codec("little"), ZSTD])))
    assert not encoded.supports_partial_reads


@pytest.mark.parametrize(
    ("shape", "chunks", "count"),
    [
        ((4, 6), (4, 6), 1),
        ((4, 6), (3, 4), 4),
        ((), (), 1),
        ((0, 3), (1, 3), 0),  # no element, no chunk
    ],
)
def test_an_array_is_complete_where_every_chunk_is_stored(shape, chunks, count) -> None:
    empty = manifest(shape, chunks)
    grid = list(np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True))))
    assert len(grid) == count
    full = replace(empty, chunks={index: Chunk("file", 0, 1) for index in grid})
    assert full.complete
    for index in grid:
        assert not replace(full, chunks={i: c for i, c in full.chunks.items() if i != index}).complete
