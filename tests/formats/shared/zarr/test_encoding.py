"""Metadata and chunks that are written, encoded and decoded."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorstore as ts

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.zarr.encoding import BytesInFlight, decoded, definition, encoded
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from tests.support.arrays import array
from tests.support.comparing import same
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
    output = output_of("x", value, chunks)
    text = definition(output, zarr)
    spec = {"driver": DRIVERS[zarr], "metadata": json.loads(text), "store_data_equal_to_fill_value": True}
    theirs = ts.open(spec, kvstore=store, create=True).result()
    theirs.write(value).result()
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
