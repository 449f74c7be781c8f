"""Metadata and chunks that are written, encoded and decoded."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorstore as ts

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.encoding import (
    BytesInFlight,
    array_definition,
    decoded,
    definition,
    encoded,
)
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, chunk_name
from ckpt_surgery.formats.shared.zarr.metadata import HELD, parse_array
from tests.support.arrays import array
from tests.support.comparing import same
from tests.support.leaves import array_leaf
from tests.support.writing import output_of

SHAPE, CHUNKS = (7, 5), (3, 2)
WHOLE = Region.whole(SHAPE)


@pytest.mark.parametrize("zarr", [2, 3])
@pytest.mark.parametrize("dtype", sorted(HELD))
@pytest.mark.parametrize("shape", [SHAPE, (), (0, 3)])
def test_chunks_are_what_tensorstore_stores(shape: tuple[int, ...], dtype: str, zarr: int) -> None:
    value = array(shape, dtype)
    chunks = CHUNKS[: len(shape)]
    store = ts.KvStore.open("memory://", context=ts.Context()).result()
    text = array_definition(zarr, value.dtype, shape, chunks)
    spec = {"driver": DRIVERS[zarr], "metadata": json.loads(text), "store_data_equal_to_fill_value": True}
    theirs = ts.open(spec, kvstore=store, create=True).result()
    theirs.write(value).result()
    output = output_of("x", value, chunks)
    ours = dict(encoded(output, zarr, Region.whole(shape), value))
    names = [key for key in store.list().result() if key not in (b".zarray", b"zarr.json")]
    assert ours == {key.decode(): store.read(key).result().value for key in names}
    assert same(decoded(output, zarr, Region.whole(shape), ours), value)


@pytest.mark.parametrize("zarr", [2, 3])
def test_a_region_is_decoded_from_its_chunks_alone(zarr: int) -> None:
    value, output = array(SHAPE, "float32"), output_of("x", array(SHAPE, "float32"), CHUNKS)
    region, first = Region((3, 2), (6, 5)), "c/1/1" if zarr == 3 else "1.1"
    part = dict(encoded(output, zarr, region, value[region.slices]))
    assert sorted(part) == [first, first[:-1] + "2"]
    assert same(decoded(output, zarr, region, part), value[region.slices])
    whole = dict(encoded(output, zarr, WHOLE, value))
    with pytest.raises(SourceError, match="c/1/1 is missing"):
        decoded(output, zarr, WHOLE, {name: data for name, data in whole.items() if name != first})
    flipped = [whole[first][:9] + b"x" + whole[first][10:]] if zarr == 3 else []  # version 2 has no checksum
    for damaged in (whole[first][:-1], b"", whole[first][1:], *flipped):
        with pytest.raises(SourceError, match="c/1/1 cannot be decoded"):
            decoded(output, zarr, WHOLE, whole | {first: damaged})


def test_threads_encode_at_the_same_time() -> None:
    value = array((64, 1000), "float32")
    output = output_of("x", value, (1, 1000))
    whole = dict(encoded(output, 3, Region.whole(value.shape), value))

    def one(row: int) -> dict[str, bytes]:
        region = Region((row, 0), (row + 1, 1000))
        return dict(encoded(output, 3, region, value[region.slices]))

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(one, range(64)))
    assert {name: data for row in rows for name, data in row.items()} == whole


def test_blocks_wait_for_room() -> None:
    gate, entered, leave = BytesInFlight(limit=3 << 20), threading.Semaphore(0), threading.Event()

    def hold(mebibytes: int) -> None:
        with gate.holding(mebibytes << 20):
            entered.release()
            leave.wait(10)

    with ThreadPoolExecutor(3) as pool:
        held = [pool.submit(hold, n) for n in (2, 1)]
        assert entered.acquire(timeout=10)
        assert entered.acquire(timeout=10)
        with gate.holding(100):  # small ones are not counted
            pass
        held.append(pool.submit(hold, 4))  # larger than the limit
        assert not entered.acquire(timeout=0.05)
        leave.set()
        assert entered.acquire(timeout=10)
        for one in held:
            one.result()


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
