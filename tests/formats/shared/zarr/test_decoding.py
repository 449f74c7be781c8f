"""Regions decoded in memory, from manifests alone, against what TensorStore's drivers read."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import google_crc32c
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DTYPES, NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, encoding_of
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.shared.zarr import decoding
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import HELD, parse_array
from ckpt_surgery.storage.reading import read_ranges
from tests.formats.shared.zarr.codecs import (
    CHAINS,
    COMPRESSORS,
    CRC,
    LITTLE,
    ZSTD,
    contents,
    memory,
    regular,
    save,
    shards,
    stored,
)
from tests.support.conformance import random_regions

SHAPE, CHUNKS = (7, 11), (4, 6)


def documents(dtype: str) -> list[tuple[int, dict[str, Any]]]:
    """Metadata of both versions: every chain of codecs, byte order and order of axes, with several fills."""
    spelled = np.dtype(dtype).newbyteorder if dtype in NUMPY_NAMES else lambda order: np.dtype("V1")
    fills = itertools.cycle([[0, 1], ["NaN", 2]] if DTYPES[dtype].kind == "c" else fills_of(dtype))
    grid = regular(*CHUNKS)
    three = [{"data_type": dtype, "chunk_grid": grid, "codecs": chain} for chain in CHAINS]
    two = [
        {
            "dtype": spelled(order).str if dtype in NUMPY_NAMES else dtype,
            "chunks": CHUNKS,
            "compressor": compressor,
            "order": axes,
        }
        for compressor, order, axes in itertools.product(COMPRESSORS, "<>", "CF")
    ]
    common = [(3, one) for one in three] + [(2, one) for one in two]
    return [(version, {"shape": SHAPE, "fill_value": next(fills), **one}) for version, one in common]


def fills_of(dtype: str) -> list[Any]:
    if dtype == "bool":
        return [True, False]
    return [1, 0, "NaN", "-Infinity"] if dtype in NUMPY_NAMES and "float" in dtype else [1, 0]


def written(version: int, document: dict[str, Any], value: np.ndarray) -> tuple[Any, Manifest]:
    """An array of which some chunks, and some within shards, are missing; and what is listed of it."""
    store = memory()
    array = save(store, version, document, dtype=value.dtype.name)
    for part in (np.s_[:4, :6], np.s_[4:7, 7:9], np.s_[0:2, 9:11]):
        array[part].write(value[part]).result()
    data = contents(store)
    found = parse_array(data[FILE_NAMES[version]], version)
    chunks = {
        index: Chunk("", 0, len(data[name]), data[name])
        for index, name in ((index, found.chunk_name(index)) for index in np.ndindex(*found.counts))
        if name in data
    }
    return array, found.manifest(chunks, filled=True)


def decoded(manifest: Manifest, region: Region) -> np.ndarray:
    return read_stored(manifest, region, {}, decode_region)


@pytest.mark.parametrize("dtype", sorted(HELD))
def test_every_encoding_gives_the_bits_that_the_drivers_read(dtype: str) -> None:
    random = np.random.default_rng(0)
    value = random.integers(0, 2 if dtype == "bool" else 7, SHAPE).astype(DTYPES[dtype])
    regions = [Region.whole(SHAPE), *random_regions(SHAPE, 3)]
    for version, document in documents(dtype):
        if version == 2 and dtype == "float4_e2m1fn":
            document["fill_value"] = None  # version 2 spells no such value
        array, manifest = written(version, document, value)
        for region in regions if document["fill_value"] is not None else [Region((0, 0), CHUNKS)]:
            wanted = np.asarray(array[region.slices].read().result())
            found = decoded(manifest, region)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            assert found.tobytes() == wanted.tobytes(), document


def placed(value: np.ndarray, chain: list[Any], fill: bytes | None = None) -> Manifest:
    """An array as version 3 stores it in one chunk, without a place for missing values but by request."""
    held = stored(3, {"chunk_grid": regular(*value.shape), "codecs": chain}, value)
    found = parse_array(held["zarr.json"], 3)
    ((index, name),) = ((index, found.chunk_name(index)) for index in np.ndindex(*found.counts))
    data = held[name]
    return Manifest(found.spec, found.chunk_shape, found.codec, {index: Chunk("", 0, len(data), data)}, fill)


def test_nothing_has_to_spell_the_fill_value_of_chunks_that_are_no_shards(monkeypatch) -> None:
    """Spelling it takes TensorStore, which decodes none of these bytes."""
    monkeypatch.setattr(decoding, "fill_value", lambda element, dtype: pytest.fail("it is spelled"))
    found = decoded(placed(VALUE, [LITTLE, ZSTD], np.int32(7).tobytes()), ROWS)
    np.testing.assert_array_equal(found, VALUE[ROWS.slices])


def changed(manifest: Manifest, change: Callable[[bytes], bytes]) -> Manifest:
    ((index, chunk),) = manifest.chunks.items()
    data = change(chunk.inline)
    chunks = {index: Chunk("", 0, len(data), data)}
    return Manifest(manifest.spec, manifest.chunk_shape, manifest.codec, chunks, manifest.fill)


VALUE = np.arange(1, 65, dtype=np.int32).reshape(8, 8)
ROWS = Region((2, 0), (4, 8))
SHARDED = [shards((2, 8), [LITTLE, ZSTD])]
NESTED = [shards((4, 8), [shards((2, 8), [LITTLE], [LITTLE])], [LITTLE])]


@pytest.mark.parametrize("chain", [SHARDED, NESTED])
def test_a_chunk_that_a_shard_lacks_has_the_fill_value_or_is_an_error(chain: list[Any]) -> None:
    value = VALUE.copy()
    value[2:4] = 0
    for region in (ROWS, Region.whole((8, 8))):
        found = decoded(placed(value, chain, np.int32(7).tobytes()), region)
        wanted = np.where(value == 0, 7, value)
        np.testing.assert_array_equal(found, wanted[region.slices])
        with pytest.raises(SourceError):
            decoded(placed(value, chain), region)
    np.testing.assert_array_equal(decoded(placed(value, chain), Region((4, 0), (6, 8))), value[4:6])


@pytest.mark.parametrize(
    ("chain", "change"),
    [
        ([LITTLE, ZSTD], lambda data: data[:-1]),
        ([LITTLE, ZSTD], lambda data: b"x" + data),
        ([LITTLE, CRC], lambda data: bytes([data[0] ^ 1]) + data[1:]),
        ([LITTLE, CRC], lambda data: data[:-5] + google_crc32c.value(data[:-5]).to_bytes(4, "little")),
        (SHARDED, lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]),
        (SHARDED, lambda data: data[1:]),
        (NESTED, lambda data: data[:-1]),
    ],
)
def test_damaged_bytes_are_an_error(chain: list[Any], change: Callable[[bytes], bytes]) -> None:
    manifest = placed(VALUE, chain)
    np.testing.assert_array_equal(decoded(manifest, ROWS), VALUE[2:4])
    with pytest.raises(SourceError):
        decoded(changed(manifest, change), ROWS)
    np.testing.assert_array_equal(decoded(manifest, ROWS), VALUE[2:4])  # nothing of the damaged one is kept


def test_an_encoding_without_a_codec_is_an_error() -> None:
    codec = Codec("lzma", (0,), encoding_of([LITTLE, {"id": "lzma"}, CRC]))
    manifest = Manifest(ArraySpec((1,), np.dtype(np.int8)), (1,), codec, {(0,): Chunk("", 0, 1, b"x")})
    with pytest.raises(SourceError, match="`lzma` cannot be read"):
        decoded(manifest, Region((0,), (1,)))


@pytest.mark.parametrize(("file", "reads"), [("/x", 2), ("s3://bucket/x", 1)])
def test_a_small_shard_in_an_object_store_takes_one_request(file: str, reads: int) -> None:
    manifest = placed(VALUE, SHARDED)
    [shard] = manifest.chunks.values()
    data, asked = shard.inline, []

    def fetch(chunks: Sequence[Chunk]) -> Any:
        asked.append(len(chunks))
        return (data[chunk.offset : chunk.offset + chunk.length] for chunk in chunks)

    located = replace(manifest, chunks={(0, 0): Chunk(file, 0, len(data))})
    np.testing.assert_array_equal(decode_region(located, ROWS, fetch), VALUE[2:4])
    assert len(asked) == reads


@pytest.mark.parametrize("location", ["start", "end"])
def test_of_a_shard_only_the_index_and_the_touched_chunks_are_read(location: str) -> None:
    chain = [shards((1, 8), [LITTLE, ZSTD], location=location)]
    manifest = placed(VALUE, chain)
    asked: list[Chunk] = []

    def fetch(chunks: Sequence[Chunk]) -> Any:
        asked.extend(chunks)
        return read_ranges(chunks, {})

    np.testing.assert_array_equal(decode_region(manifest, ROWS, fetch), VALUE[2:4])
    [shard] = manifest.chunks.values()
    index = 8 * 16 + 4
    assert (asked[0].offset, asked[0].length) == (
        0 if location == "start" else shard.length - index,
        index,
    )
    assert len(asked) == 3
    assert all(one.length < 100 for one in asked[1:])
