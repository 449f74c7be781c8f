"""Zarr metadata, against zarr-python and TensorStore as writers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr

from ckpt_surgery.errors import SourceError
from ckpt_surgery.formats.zarr_metadata import EXTENDED, FILE_NAMES, NATIVE, parse_array
from tests.checkpoints import dtype


def by_tensorstore(version: int, name: str, metadata: dict[str, Any]) -> bytes:
    spec = {"driver": "zarr" if version == 2 else "zarr3", "kvstore": "memory://", "metadata": metadata}
    array = ts.open(spec, create=True, dtype=ts.dtype(name), context=ts.Context()).result()
    assert array.kvstore is not None
    return bytes(array.kvstore.read(FILE_NAMES[version]).result().value)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", [*NATIVE, *EXTENDED])
def test_every_dtype_of_tensorstore(version: int, name: str) -> None:
    array = parse_array(by_tensorstore(version, name, {"shape": [4, 6]}), version)
    assert (array.spec.shape, array.spec.dtype) == ((4, 6), dtype(name))


@pytest.mark.parametrize(
    ("version", "options", "codec", "order", "chunk"),
    [
        (2, {"compressors": None}, "raw", "C", "1.2"),
        (2, {"order": "F"}, "zstd", "F", "1.2"),
        (2, {"chunk_key_encoding": {"name": "v2", "separator": "/"}}, "zstd", "C", "1/2"),
        (3, {}, "zstd", "C", "c/1/2"),
        (3, {"compressors": None}, "raw", "C", "c/1/2"),
        (
            3,
            {"compressors": [zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec()]},
            "gzip+crc32c",
            "C",
            "c/1/2",
        ),
        (3, {"chunk_key_encoding": {"name": "v2", "separator": "."}}, "zstd", "C", "1.2"),
        (3, {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]}, "zstd", "F", "c/1/2"),
        (3, {"shards": (4, 4)}, "sharded(zstd)", "C", "c/1/2"),
    ],
)
def test_what_zarr_python_writes(
    version: int, options: dict[str, Any], codec: str, order: str, chunk: str, tmp_path: Path
) -> None:
    zarr.create_array(
        tmp_path / "x", shape=(8, 6), chunks=(2, 2), dtype="float32", zarr_format=version, **options
    )
    array = parse_array((tmp_path / "x" / FILE_NAMES[version]).read_bytes(), version)
    assert (array.codec.name, array.codec.order, array.chunk_name((1, 2))) == (codec, order, chunk)
    assert array.chunk_shape == ((4, 4) if "shards" in options else (2, 2))
    assert array.raw == (codec == "raw")


@pytest.mark.parametrize(("version", "name"), [(2, "0"), (3, "c")])
def test_the_chunk_of_a_scalar(version: int, name: str) -> None:
    assert parse_array(by_tensorstore(version, "int64", {"shape": []}), version).chunk_name(()) == name


def test_byte_order_is_part_of_the_encoding_only() -> None:
    little, big = (
        parse_array(by_tensorstore(2, "float32", {"shape": [2], "dtype": text}), 2) for text in ("<f4", ">f4")
    )
    assert little.spec == big.spec
    assert big.spec.dtype.isnative
    assert little.codec != big.codec


def test_equal_encodings_have_equal_definitions() -> None:
    one, other = (
        parse_array(by_tensorstore(3, "bfloat16", {"shape": [n], "codecs": [{"name": "bytes"}]}), 3)
        for n in (2, 5)
    )
    assert one.codec == other.codec
    assert np.dtype(one.spec.dtype).itemsize * 2 == one.chunk_nbytes


V3 = json.loads(by_tensorstore(3, "float32", {"shape": [4]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_type": "r16"}, "`r16` cannot be read"),
        ({"data_type": {"name": "numpy.datetime64"}}, "malformed"),
        ({"chunk_grid": {"name": "rectilinear"}}, "`rectilinear` cannot be read"),
        ({"chunk_key_encoding": {"name": "fanout"}}, "`fanout`"),
        ({"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}}, "malformed"),
        ({"node_type": "group"}, "malformed"),
        ({"shape": [True]}, "malformed"),
        ({"shape": ["4"]}, "malformed"),
        ({"shape": [2**70]}, None),  # large, but a shape
        ({"codecs": 5}, "malformed"),
    ],
)
def test_malformed(change: dict[str, object], message: str | None) -> None:
    text = json.dumps(V3 | change).encode()
    if message is None:
        assert parse_array(text, 3).spec.shape == (2**70,)
    else:
        with pytest.raises(SourceError, match=message):
            parse_array(text, 3)
