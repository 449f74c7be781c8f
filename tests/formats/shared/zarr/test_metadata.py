"""Zarr metadata, against zarr-python and TensorStore as writers, and TensorStore as reader."""

import itertools
import json
import re
from dataclasses import replace
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Shape, grid_counts
from ckpt_surgery.core.dtypes import NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import RAW, Chunk, Codec, Manifest, encoding_of, raw_codec
from ckpt_surgery.core.rewrites.axes import reinterpreted, reshaped, transposed
from ckpt_surgery.core.rewrites.taking import stacked
from ckpt_surgery.formats.shared.zarr.decoding import adopted_metadata
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import EXTENDED, parse_array
from tests.formats.shared.zarr.codecs import (
    BLOSC,
    CRC,
    LITTLE,
    ZSTD,
    memory,
    regular,
    shards,
    stored,
    transpose,
)
from tests.support.checkpoints import dtype
from tests.support.heavy import ts


def metadata_of(version: int, name: str, metadata: dict[str, Any]) -> bytes:
    return stored(version, metadata, dtype=name)[FILE_NAMES[version]]


V3 = json.loads(metadata_of(3, "float32", {"shape": [4]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_type": "r16"}, "`r16` cannot be read"),
        ({"data_type": {"name": "numpy.datetime64"}}, "cannot be read"),
        ({"chunk_grid": {"name": "rectilinear"}}, "`rectilinear` cannot be read"),
        ({"chunk_grid": regular(0)}, "malformed"),
        ({"surprise": {"must_understand": True}}, "cannot be read"),
        ({"shape": [4, 2]}, "chunks of shape"),
        ({"shape": [-4]}, "malformed"),
        ({"chunk_key_encoding": {"name": "fanout"}}, "`fanout`"),
        ({"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}}, "malformed"),
        ({"node_type": "group"}, "malformed"),
        ({"shape": [True]}, "malformed"),
        ({"shape": ["4"]}, "malformed"),
        ({"shape": [2**70]}, None),  # large, but a shape
        ({"codecs": 5}, "malformed"),
        ({"codecs": [shards([1], [{"name": "lz77"}])]}, "its codec `lz77` cannot be read"),
        ({"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}]}, "malformed"),
        ({"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 2]}}]}, "malformed"),
    ],
)
def test_malformed(change: dict[str, object], message: str | None) -> None:
    text = json.dumps(V3 | change).encode()
    if message is None:
        assert parse_array(text, 3).spec.shape == (2**70,)
    else:
        with pytest.raises(SourceError, match=message):
            parse_array(text, 3)


def test_a_group_is_told_as_no_array() -> None:
    """It has none of the members of an array."""
    with pytest.raises(SourceError, match="it is not a zarr v3 array"):
        parse_array(b'{"zarr_format": 3, "node_type": "group", "attributes": {}}', 3)


def manifest_of(version: int, stored: dict[str, bytes]) -> Manifest:
    array = parse_array(stored[FILE_NAMES[version]], version)
    indices = list(itertools.product(*map(range, grid_counts(array.spec.shape, array.chunk_shape))))
    data = {index: stored[array.chunk_name(index)] for index in indices}
    chunks = {index: Chunk("", 0, len(chunk), chunk) for index, chunk in data.items()}
    return Manifest(array.spec, array.chunk_shape, array.codec, chunks)


def read_back(version: int, metadata: dict[str, Any], manifest: Manifest) -> np.ndarray:
    """The array that TensorStore reads from this metadata and the manifest's bytes."""
    kvstore, text = memory(), json.dumps(metadata).encode()
    kvstore.write(FILE_NAMES[version], text).result()
    for index, chunk in manifest.chunks.items():
        kvstore.write(parse_array(text, version).chunk_name(index), chunk.inline).result()
    spec = {"driver": DRIVERS[version], "fill_missing_data_reads": False}
    return np.asarray(ts.open(spec, kvstore=kvstore, open=True).result().read().result())


Version = Literal[2, 3]
V2 = {"chunks": [2, 3]}
STORES: list[tuple[Version, dict[str, Any]]] = [
    (2, V2 | {"compressor": None}),
    (2, V2 | {"compressor": None, "order": "F"}),
    (2, V2 | {"compressor": {"id": "zstd", "level": 1}, "order": "F"}),
    (2, V2 | {"compressor": {"id": "gzip", "level": 1}, "dtype": ">f4"}),
    (2, V2 | {"compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": -1, "blocksize": 0}}),
    (2, V2 | {"compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 2, "blocksize": 0}}),
    (2, V2 | {"compressor": {"id": "zlib", "level": 1}}),
    (2, V2 | {"compressor": {"id": "bz2", "level": 1}}),
    (3, {"codecs": [LITTLE]}),
    (3, {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}),
    (3, {"codecs": [transpose(1, 0), LITTLE, ZSTD]}),
    (3, {"codecs": [transpose(1, 0), transpose(1, 0), LITTLE, BLOSC]}),
    (3, {"codecs": [LITTLE, ZSTD, CRC]}),
    (3, {"codecs": [shards([2, 1], [LITTLE, ZSTD])]}),
    (3, {"codecs": [transpose(1, 0), shards([2, 1], [transpose(1, 0), LITTLE, CRC])]}),
]


def described(manifest: Manifest) -> dict[Version, dict[str, Any]]:
    both: dict[Version, dict[str, Any] | None] = {
        2: adopted_metadata(manifest, 2),
        3: adopted_metadata(manifest, 3),
    }
    return {version: metadata for version, metadata in both.items() if metadata is not None}


@pytest.mark.parametrize(("version", "metadata"), STORES, ids=str)
def test_what_is_rewritten_is_what_tensorstore_reads(version: Version, metadata: dict[str, Any]) -> None:
    if version == 3:
        metadata = metadata | {"chunk_grid": regular(4, 2)}
    values = np.arange(1, 41, dtype=np.float32).reshape(5, 8)
    manifest = manifest_of(version, stored(version, metadata, values))
    stack = stacked([manifest, transposed(transposed(manifest, (1, 0)), (1, 0))], 1, (1, 0))
    rewritten = [
        (manifest, values),
        (transposed(manifest, (1, 0)), values.T),
        (stack, np.stack([values, values], 1)),
        (transposed(stack, (2, 1, 0)), np.stack([values, values], 1).T),
        (transposed(stack, (1, 0, 2)), np.stack([values, values], 0)),
    ]
    for found, expected in rewritten:
        forms = described(found)
        assert (2 in forms) != (re.search("crc32c|sharded", manifest.codec.name) is not None)
        assert (3 in forms) != (manifest.codec.name in ("zlib", "bz2"))
        for form, text in forms.items():
            np.testing.assert_array_equal(read_back(form, text, found), expected)


@pytest.mark.parametrize("name", [*NUMPY_NAMES, *EXTENDED])
def test_bytes_of_every_dtype_are_described(name: str) -> None:
    spec = ArraySpec((3, 2), dtype(name))
    values = np.arange(6).astype(spec.dtype).reshape(spec.shape)
    manifest = Manifest(spec, (3, 2), raw_codec(2), {(0, 0): Chunk("", 0, spec.nbytes, values.tobytes())})
    forms = described(transposed(manifest, (1, 0)))
    assert set(forms) == {2, 3}
    for version, metadata in forms.items():
        found = read_back(version, metadata, transposed(manifest, (1, 0)))
        assert (found.dtype, found.tobytes()) == (spec.dtype, values.T.tobytes())


def test_scalars_and_empty_arrays_are_described() -> None:
    one = Manifest(ArraySpec((), dtype("int32")), (), raw_codec(0), {(): Chunk("", 0, 4, b"\x07\0\0\0")})
    none = Manifest(ArraySpec((0, 3), dtype("int32")), (1, 3), raw_codec(2), {})
    for version, metadata in described(one).items():
        assert read_back(version, metadata, one).tolist() == 7
    for version, metadata in described(none).items():
        assert read_back(version, metadata, none).shape == (0, 3)
    assert set(described(one)) == set(described(none)) == {2, 3}


def test_compressed_bytes_of_another_type_and_shape() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    manifest = reshaped(manifest_of(3, stored(3, {"codecs": [LITTLE, BLOSC]}, values)), (2, 12))
    found = reinterpreted(manifest, ArraySpec((2, 24), dtype("bfloat16")))
    expected = values.view(dtype("bfloat16")).reshape(2, 24)
    for version, metadata in described(found).items():
        assert read_back(version, metadata, found).tobytes() == expected.tobytes()


def test_transposes_one_after_another() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    metadata = {"codecs": [transpose(1, 2, 0), transpose(0, 2, 1), LITTLE]}
    manifest = manifest_of(3, stored(3, metadata, values))
    assert manifest.codec.permutation == (1, 0, 2)
    assert manifest.chunks[0, 0, 0].inline == values.transpose(1, 0, 2).tobytes()


@pytest.mark.parametrize(("name", "shuffle"), [("uint8", "bitshuffle"), ("float32", "shuffle")])
def test_the_shuffle_that_blosc_chooses(name: str, shuffle: str) -> None:
    text = metadata_of(2, name, {"shape": [4], "compressor": {"id": "blosc"}})
    assert json.loads(text)["compressor"]["shuffle"] == -1
    assert f'"shuffle":"{shuffle}"' in parse_array(text, 2).codec.encoding


def test_axes_of_chunk_length_1_are_in_order_anyway() -> None:
    manifest = Manifest(
        ArraySpec((1, 4), dtype("int8")),
        (1, 4),
        Codec("raw", (1, 0), RAW),
        {(0, 0): Chunk("", 0, 4, b"abcd")},
    )
    forms = described(manifest)
    assert (forms[2]["order"], forms[3]["codecs"]) == ("C", [{"name": "bytes"}])


def test_encodings_are_the_same_in_both_versions() -> None:
    one = metadata_of(2, "float32", {"shape": [4], "compressor": {"id": "zstd", "level": 3}})
    other = metadata_of(3, "float32", {"shape": [4], "codecs": [LITTLE, ZSTD]})
    assert parse_array(one, 2).codec == parse_array(other, 3).codec


def test_zstd_says_that_it_has_no_checksum() -> None:
    """TensorStore before 0.1.74 refuses an array where zstd does not say so, and all of its checkpoint."""
    of_v2 = {"chunks": [5, 8], "compressor": {"id": "zstd", "level": 3}}
    within = shards([2, 1], [shards([2, 1], [LITTLE, ZSTD])])
    for version, metadata in ((2, of_v2), (3, {"codecs": [LITTLE, ZSTD]}), (3, {"codecs": [within]})):
        found = manifest_of(version, stored(version, metadata, np.ones((5, 8), np.float32)))
        said = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
        assert zstds(adopted_metadata(found, 3)) == [said]


def zstds(node: Any) -> list[Any]:
    """Every zstd codec in metadata, however deep."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [node] if isinstance(node, dict) and node.get("name") == "zstd" else []
    return own + [codec for member in inner for codec in zstds(member)]


@pytest.mark.parametrize("name", ["float32", "int8"])
@pytest.mark.parametrize(
    ("codec", "ignored"),
    [
        (ZSTD, {"checksum": True}),
        (BLOSC | {"configuration": {**BLOSC["configuration"], "blocksize": 0}}, {"typesize": 2}),
    ],
)
def test_what_chunks_say_themselves_is_no_difference_within_shards(
    name: str, codec: dict[str, Any], ignored: dict[str, Any]
) -> None:
    values = np.arange(40).reshape(5, 8).astype(name)
    grid = regular(4, 2)
    other = codec | {"configuration": {**codec["configuration"], **ignored}}
    one, two = (
        manifest_of(3, stored(3, {"codecs": [shards([2, 1], [LITTLE, c])], "chunk_grid": grid}, values))
        for c in (codec, other)
    )
    assert one.codec == two.codec
    for manifest in (one, two):
        metadata = adopted_metadata(manifest, 3)
        np.testing.assert_array_equal(read_back(3, metadata, manifest), values)


def test_what_metadata_cannot_describe() -> None:
    data: dict[Shape, Chunk] = {(0,): Chunk("", 0, 4, b"abcd")}
    manifest = Manifest(ArraySpec((4,), dtype("int8")), (4,), raw_codec(1), data)
    assert set(described(manifest)) == {2, 3}
    packed = Codec("packed", (0,), encoding_of([{"packed": 4}]))
    for wrong in (
        replace(manifest, chunks={}),  # what is missing would read as a fill value
        replace(manifest, spec=ArraySpec((4,), np.dtype(ml_dtypes.float8_e4m3))),
        replace(manifest, codec=packed),
    ):
        assert described(wrong) == {}


@pytest.mark.parametrize(
    ("name", "codecs"),
    [
        ("float32", [LITTLE, ZSTD, ZSTD]),  # version 2 has one compressor
        ("bfloat16", [{"name": "bytes", "configuration": {"endian": "big"}}]),  # and no name for this
    ],
)
def test_what_version_2_cannot_describe(name: str, codecs: list[dict[str, Any]]) -> None:
    spec = ArraySpec((4,), dtype(name))
    manifest = Manifest(spec, (4,), Codec("x", (0,), encoding_of(codecs)), {(0,): Chunk("", 0, 1, b"x")})
    assert set(described(manifest)) == {3}


def test_the_fill_value_is_no_part_of_how_shards_are_encoded() -> None:
    """Where a shard lacks a chunk, that is for `wholly_stored` to find out."""
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    grid = regular(4, 2)
    metadata = {"codecs": [shards([2, 1], [LITTLE])], "data_type": "float32", "chunk_grid": grid}
    one, other = (manifest_of(3, stored(3, metadata | {"fill_value": fill}, values)) for fill in (0, 9))
    assert one.codec == other.codec
    assert set(described(one)) == {3}
