"""Metadata and chunks that are written, encoded and decoded."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.formats.shared.zarr.encoding import BytesInFlight, decoded, definition, encoded
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from tests.formats.shared.zarr.codecs import contents, memory, save
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
    output, store = output_of("x", value, chunks), memory()
    save(store, zarr, json.loads(definition(output, zarr)), value, store_data_equal_to_fill_value=True)
    ours = dict(encoded(output, zarr, Region.whole(shape), value))
    assert ours == {key: data for key, data in contents(store).items() if key != FILE_NAMES[zarr]}
    assert same(decoded(output, zarr, Region.whole(shape), ours), value)


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
