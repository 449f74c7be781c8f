"""Regions of an array that a process holds, and their devices."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.live.results import device_regions

DEVICES = np.array(jax.devices())
MESH = Mesh(DEVICES.reshape(4, 2), ("x", "y"))


def placed(shape: tuple[int, ...], *axes: Any, whole_axes: int = 0) -> dict[Region, list[int]]:
    found = device_regions(NamedSharding(MESH, PartitionSpec(*axes)), shape, whole_axes)
    return {region: [device.id for device in devices] for region, devices in found.items()}


def test_replicas_are_one_region() -> None:
    assert placed((4, 6), None, "y") == {
        Region((0, 0), (4, 3)): [0, 2, 4, 6],
        Region((0, 3), (4, 6)): [1, 3, 5, 7],
    }
    assert placed((4, 6)) == {Region.whole((4, 6)): list(range(8))}
    assert placed(()) == {Region.whole(()): list(range(8))}


def test_regions_are_in_the_order_of_the_array() -> None:
    found = list(placed((8, 2), ("y", "x")))
    assert found == [Region((i, 0), (i + 1, 2)) for i in range(8)]


def test_axes_that_the_sharding_does_not_know_are_whole() -> None:
    assert placed((4, 2), "x", whole_axes=1) == {
        Region((i, 0), (i + 1, 2)): [2 * i, 2 * i + 1] for i in range(4)
    }


def test_shards_without_elements_are_one_region() -> None:
    assert placed((0, 4), "x") == {Region((0, 0), (0, 4)): list(range(8))}


@pytest.mark.parametrize("shape", [(), (3, 2)])
def test_without_a_sharding_it_is_one_region_anywhere(shape: tuple[int, ...]) -> None:
    assert device_regions(None, shape) == {Region.whole(shape): [None]}


def test_one_device() -> None:
    assert device_regions(SingleDeviceSharding(DEVICES[5]), (3,)) == {Region.whole((3,)): [DEVICES[5]]}
