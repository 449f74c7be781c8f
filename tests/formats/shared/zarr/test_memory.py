"""Chunks that are encoded and decoded in memory."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorstore as ts

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from ckpt_surgery.formats.shared.zarr.memory import BytesInFlight, MemoryArray, memory_array
from ckpt_surgery.formats.shared.zarr.writing import array_definition
from tests.support.arrays import array
from tests.support.comparing import same
from tests.support.writing import output_of

SHAPE, CHUNKS = (7, 5), (3, 2)
WHOLE = Region.whole(SHAPE)


@pytest.mark.parametrize("zarr", [2, 3])
@pytest.mark.parametrize("shape", [SHAPE, (), (0, 3)])
def test_chunks_are_what_tensorstore_stores(zarr: int, shape: tuple[int, ...]) -> None:
    value = array(shape, "float32")
    chunks = CHUNKS[: len(shape)]
    store = ts.KvStore.open("memory://", context=ts.Context()).result()
    text = array_definition(zarr, value.dtype, shape, chunks)
    spec = {"driver": DRIVERS[zarr], "metadata": json.loads(text), "store_data_equal_to_fill_value": True}
    theirs = ts.open(spec, kvstore=store, create=True).result()
    theirs.write(value).result()
    ours = dict(MemoryArray(zarr, value.dtype, shape, chunks).encoded(Region.whole(shape), value))
    names = [key for key in store.list().result() if key not in (b".zarray", b"zarr.json")]
    assert ours == {key.decode(): store.read(key).result().value for key in names}


def test_a_region_is_decoded_from_its_chunks_alone() -> None:
    value, memory = array(SHAPE, "float32"), memory_array(output_of("x", array(SHAPE, "float32"), CHUNKS), 3)
    region = Region((3, 2), (6, 5))
    part = dict(memory.encoded(region, value[region.slices]))
    assert sorted(part) == ["c/1/1", "c/1/2"]
    assert same(memory.decoded(region, part), value[region.slices])
    whole = dict(memory.encoded(WHOLE, value))
    assert same(memory.decoded(WHOLE, whole), value)
    with pytest.raises(ValueError, match="c/1/1"):
        memory.decoded(WHOLE, {name: data for name, data in whole.items() if name != "c/1/1"})
    with pytest.raises(ValueError, match="c/1/1"):
        memory.decoded(WHOLE, whole | {"c/1/1": whole["c/1/1"][:-1]})


def test_nothing_is_left_of_what_was_encoded_before() -> None:
    memory = memory_array(output_of("x", array(SHAPE, "float32"), CHUNKS), 2)
    next(memory.encoded(WHOLE, array(SHAPE, "float32")))  # the writing of the others failed
    region = Region((0, 0), (3, 2))
    assert list(dict(memory.encoded(region, np.zeros(region.shape, np.float32)))) == ["0.0"]


def test_each_thread_has_one_array_for_a_description() -> None:
    output, other = output_of("x", array(SHAPE, "float32"), CHUNKS), output_of("y", array(SHAPE, "int8"))
    alike = output_of("z", array(SHAPE, "float32"), CHUNKS)
    assert memory_array(output, 3) is memory_array(alike, 3)
    assert memory_array(output, 3) is not memory_array(output, 2)
    assert memory_array(output, 3) is not memory_array(other, 3)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(memory_array, output, 3).result() is not memory_array(output, 3)


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
