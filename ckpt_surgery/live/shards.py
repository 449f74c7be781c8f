"""Regions of arrays on devices, taken out of the shards that this process holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region

LARGEST_START = 2**31 - 1
"""The largest index at which jax cuts a slice whose place it learns at run time."""


def read_shards(array: Any, spec: ArraySpec, region: Region) -> np.ndarray | None:
    """The elements of a region; None where another process holds some of them.

    `array` is a jax.Array, or an array of typed PRNG keys, of which the raw data is read. `spec` describes
    what is read. Of shards alike one is read; nothing outside the region comes to the host, and where the
    memory of the device is that of the host, a region of one shard is a view.
    """
    shards = _distinct(array, spec)
    parts = {part: box for box in shards if (part := box.common(region)) is not None}
    if sum(part.size for part in parts) < region.size:
        return None
    if len(parts) == 1:
        [(part, box)] = parts.items()
        return on_host(raw(shards[box]), part.within(box))
    block = np.empty(region.shape, spec.dtype)
    for part, box in parts.items():
        block[part.within(region)] = on_host(raw(shards[box]), part.within(box))
    return block


def _distinct(array: Any, spec: ArraySpec) -> Mapping[Region, Any]:
    """Shards by the region that they hold, replicas once."""
    return {Region.of_slices(shard.index, spec.shape): shard.data for shard in array.addressable_shards}


def raw(array: Any) -> Any:
    """The numbers that typed PRNG keys consist of; any other array as it is."""
    import jax

    is_key = jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


def on_host(shard: Any, cut: tuple[slice, ...]) -> np.ndarray:
    """A part of an array on one device, read-only."""
    import jax

    starts, sizes = [c.start for c in cut], tuple(c.stop - c.start for c in cut)
    if sizes != shard.shape and not _is_host(shard) and max(shard.shape) <= LARGEST_START:
        return np.asarray(jax.lax.dynamic_slice(shard, starts, sizes))
    # jax keeps what it has copied to the host as long as the array is there: here, that is a short time.
    passing = jax.make_array_from_single_device_arrays(shard.shape, shard.sharding, [shard])
    index: Any = (*cut, ...)  # which gives an array where there are no axes, too
    part: np.ndarray = np.asarray(passing)[index]
    return part


def _is_host(shard: Any) -> bool:
    """Whether an array is in memory of the host, which NumPy can see without a copy."""
    (device,) = shard.devices()
    return bool(device.platform == "cpu" or shard.sharding.memory_kind != device.default_memory().kind)
