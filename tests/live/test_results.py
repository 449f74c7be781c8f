"""Regions of an array that a process holds, and their devices."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.live.results import device_regions

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
