"""Shardings of jax as the texts that Orbax records for them."""

import functools
from typing import Any

from ckpt_surgery.core.shardings import Spec, named_sharding, single_device_sharding


@functools.lru_cache(maxsize=256)  # most arrays of a tree have one of a few
def recorded_sharding(sharding: Any, more_axes: int = 0) -> str | None:
    """The text that Orbax records for an array with this sharding; None for kinds that it does not record.

    `more_axes`: number of axes that the stored array has after those of the sharded one, such as the one of
    the raw data of PRNG keys; they are not divided.
    """
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    if isinstance(sharding, SingleDeviceSharding):
        (device,) = sharding.device_set
        return single_device_sharding(str(device))
    if not isinstance(sharding, NamedSharding) or isinstance(sharding.mesh, AbstractMesh):
        return None
    if any(axis is PartitionSpec.UNCONSTRAINED for axis in sharding.spec):
        return None
    spec: Spec = (*sharding.spec, *(None,) * more_axes)
    mesh = sharding.mesh
    return named_sharding(
        mesh.shape, spec, [device.id for device in mesh.devices.flat], list(map(str, mesh.axis_types))
    )
