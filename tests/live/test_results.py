"""Arrays of results: regions that a process holds, and memory that JAX copies instead of taking it over."""

import gc
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.live.results import MAPPED, device_regions, let_memory_be_reused, staging_array

DEVICES = np.array(jax.devices())
MESH = Mesh(DEVICES.reshape(4, 2), ("x", "y"))


def placed(shape: tuple[int, ...], *axes: Any) -> dict[Region, list[int]]:
    found = device_regions(NamedSharding(MESH, PartitionSpec(*axes)), shape)
    return {region: [device.id for device in devices] for region, devices in found.items()}


def test_regions_are_in_the_order_of_the_array() -> None:
    found = list(placed((8, 2), ("y", "x")))
    assert found == [Region((i, 0), (i + 1, 2)) for i in range(8)]


def test_shards_without_elements_are_one_region() -> None:
    assert placed((0, 4), "x") == {Region((0, 0), (0, 4)): list(range(8))}


SHAPES = [(), (3,), (5, 7), (MAPPED // 8 + 3,), (3, MAPPED)]


@pytest.mark.parametrize("dtype", ["bool", "int4", "bfloat16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_aligned_for_numpy_and_not_for_jax(dtype: str, shape: tuple[int, ...]) -> None:
    array = staging_array(shape, DTYPES[dtype])
    assert (array.shape, array.dtype) == (shape, DTYPES[dtype])
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.flags.writeable
    assert array.ctypes.data % 16
    array[...] = 1
    assert (array == np.ones((), array.dtype)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_jax_does_not_take_it_over(shape: tuple[int, ...]) -> None:
    array = staging_array(shape, DTYPES["float32"])
    array[...] = 1
    put = jax.device_put(array, jax.devices()[3])
    put.block_until_ready()
    array[...] = 2
    assert put.unsafe_buffer_pointer() != array.ctypes.data
    assert float(put.min()) == 1


def test_arrays_without_elements_are_arrays() -> None:
    assert staging_array((0, 3), DTYPES["float32"]).shape == (0, 3)


MAPS = Path("/proc/self/maps")


def mapped_bytes() -> int:
    """Bytes of memory that belongs to no file."""
    ranges = [line.split()[0].split("-") for line in MAPS.read_text().splitlines() if len(line.split()) == 5]
    return sum(int(stop, 16) - int(start, 16) for start, stop in ranges)


@pytest.mark.skipif(not MAPS.exists(), reason="Linux lists what is mapped")
def test_large_ones_return_to_the_system_at_once() -> None:
    let_memory_be_reused()
    gc.collect()
    before = mapped_bytes()
    arrays = [staging_array((16 << 20,), DTYPES["uint8"]) for _ in range(16)]
    assert mapped_bytes() - before >= 256 << 20
    del arrays
    assert mapped_bytes() - before < 64 << 20
