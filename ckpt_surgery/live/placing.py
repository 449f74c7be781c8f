"""Which regions of an array this process holds, and on which devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.frozen import frozen

ANYWHERE: Sequence[Any] = (None,)
"""The default device, to which an array is not bound."""


@frozen(eq=False)
class Placement:
    """The regions of an array that this process holds, each with the devices that hold it."""

    sharding: Any | None
    """A `jax.sharding.Sharding`; None for the default device, without being bound to it."""
    devices: Mapping[Region, Sequence[Any]]
    """Devices of this process by the region that they hold; regions are listed once, and are disjoint."""


def placement(sharding: Any | None, shape: Shape, whole_axes: int = 0) -> Placement:
    """Where the parts of an array of this shape go.

    `whole_axes`: number of last axes that the sharding does not know, such as the one of the raw data of
    random keys; they are never divided.
    """
    if sharding is None:
        return Placement(None, {Region.whole(shape): ANYWHERE})
    known = shape[: len(shape) - whole_axes]
    found: dict[Region, list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(known).items():
        found.setdefault(Region.of_slices(index or (), shape), []).append(device)
    return Placement(sharding, dict(sorted(found.items(), key=lambda item: item[0].starts)))
