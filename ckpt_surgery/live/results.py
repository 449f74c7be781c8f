"""Put the staged parts of a leaf together: arrays on devices, NumPy arrays, numbers, random keys."""

import itertools
import mmap
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.errors import OutOfMemoryError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.live.wanted import narrowed, type_of


def result_of(leaf: Leaf, like: Any | None, sharding: Any | None) -> "RestoredLeaf":
    """Result for a leaf of a plan. `like`: what the target has there, or asks for; None without a target.

    Without a target, arrays are JAX's, or NumPy's where JAX would narrow them, and scalars are Python's
    numbers, as Orbax restores them.
    """
    assert leaf.spec is not None
    type_, whole, dtype = type_of(like), Region.whole(leaf.spec.shape), leaf.spec.dtype
    if issubclass(type_, np.ndarray) or (like is None and leaf.kind is LeafKind.ARRAY and is_narrowed(leaf)):
        return HostValue(whole, dtype)
    if issubclass(type_, np.generic):
        return HostValue(whole, dtype, lambda array: array[()])
    if issubclass(type_, bool | int | float):
        return HostValue(whole, dtype, lambda array: type_(array.item()))
    if like is None and leaf.kind is LeafKind.SCALAR:
        return HostValue(whole, dtype, np.ndarray.item)
    return DeviceArray(leaf, sharding)


def is_narrowed(leaf: Leaf) -> bool:
    """True for an array of 64 bits that JAX would narrow, as `jax_enable_x64` is off."""
    return leaf.spec is not None and narrowed(leaf.spec.dtype) != leaf.spec.dtype


class HostValue:
    """A NumPy array with memory of its own, or the scalar or number in it. Threads may share it."""

    on_host = True
    """True if it stays in the host's memory, so that its parts need no memory of their own."""

    def __init__(self, region: Region, dtype: DType, convert: Callable[[np.ndarray], Any] = lambda a: a):
        """`region`: the part of a leaf that is made. `convert`: makes the value of the array."""
        self.regions: Sequence[Region] = (region,)
        """Disjoint regions of which it consists."""
        self._dtype, self._convert = dtype, convert

    def buffer(self, region: Region) -> np.ndarray:
        """Memory for one of the regions, to be filled by the caller: the array itself."""
        self._array: np.ndarray = np.empty(region.shape, self._dtype)
        return self._array

    def put(self, blocks: MutableMapping[Region, np.ndarray]) -> None:
        """Take over buffers that are filled; they are removed from `blocks`."""
        blocks.clear()

    def value(self) -> Any:
        """The array, or the value it was converted to, once every region was put."""
        return self._convert(self._array)


class Discarded(HostValue):
    """Result of a trial: its parts are computed and thrown away, without taking memory."""

    def __init__(self, result: "RestoredLeaf", dtype: DType):
        """`result`: the one that a real run would make."""
        self.regions, self._dtype = result.regions, dtype

    def buffer(self, region: Region) -> np.ndarray:
        """An array all of whose elements lie in one place."""
        place = np.empty((), self._dtype)
        return np.lib.stride_tricks.as_strided(place, region.shape, (0,) * len(region.shape))

    def value(self) -> None:
        """Nothing."""


def device_regions(sharding: Any | None, shape: Shape, whole_axes: int = 0) -> dict[Region, list[Any]]:
    """Devices of this process by the region of an array that they hold; the regions are disjoint.

    Without a sharding it is the default device, to which the array is not bound: None stands for it.
    `whole_axes`: number of last axes that the sharding does not know, such as the one of the raw data of
    random keys; they are never divided.
    """
    if sharding is None:
        return {Region.whole(shape): [None]}
    known = shape[: len(shape) - whole_axes]
    devices: dict[Region, list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(known).items():
        devices.setdefault(Region.of_slices(index or (), shape), []).append(device)
    return dict(sorted(devices.items(), key=lambda item: item[0].starts))


class DeviceArray:
    """An array of JAX, or of its random keys, on one or several devices; used as a `HostValue` is."""

    def __init__(self, leaf: Leaf, sharding: Any | None):
        assert leaf.spec is not None
        self._leaf, self._spec, self._sharding = leaf, leaf.spec, sharding
        self._is_key = leaf.kind is LeafKind.PRNG_KEY
        self._devices = device_regions(sharding, self._spec.shape, int(self._is_key))
        self.regions: Sequence[Region] = tuple(self._devices)
        self.on_host = _is_host(sharding, self._devices)
        self._shards: dict[Region, list[Any]] = {}

    def buffer(self, region: Region) -> np.ndarray:
        """Memory that JAX copies."""
        return staging_array(region.shape, self._spec.dtype)

    def put(self, blocks: MutableMapping[Region, np.ndarray]) -> None:
        """Copy each filled buffer to every device that holds its region, and free it.

        Raises OutOfMemoryError if a device has no room for one.
        """
        import jax
        from jax.sharding import SingleDeviceSharding

        kind = None if self._sharding is None else self._sharding.memory_kind
        under_way: deque[tuple[np.ndarray, list[Any]]] = deque()
        while blocks:
            region, block = blocks.popitem()
            try:
                places = [d and SingleDeviceSharding(d, memory_kind=kind) for d in self._devices[region]]
                shards = [jax.device_put(block, place) for place in places]
                under_way.append((block, shards))
                # Two at a time, which JAX copies side by side: more would only take more memory.
                while len(under_way) == 2 or (under_way and not blocks):
                    for shard in under_way.popleft()[1]:
                        shard.block_until_ready()
            except jax.errors.JaxRuntimeError as error:
                if not str(error).startswith("RESOURCE_EXHAUSTED"):
                    raise
                raise OutOfMemoryError(
                    f"the devices have no room for {bytes_text(block.nbytes)} of it",
                    hint="Divide it among more devices, or free what they hold: `donate=True`.",
                ) from error
            if self._is_key:
                shards = [jax.random.wrap_key_data(s, impl=self._leaf.prng_impl) for s in shards]
            self._shards[region] = shards

    def value(self) -> Any:
        """The array, made of its parts without moving them."""
        import jax

        spec, sharding = self._spec, self._sharding
        shards = [shard for region in self.regions for shard in self._shards[region]]
        if sharding is None:
            return shards[0]
        if self._is_key:
            return jax.make_array_from_single_device_arrays(spec.shape[:-1], sharding, shards)
        return jax.make_array_from_single_device_arrays(spec.shape, sharding, shards, dtype=spec.dtype)


RestoredLeaf = HostValue | DeviceArray
"""A leaf that is put together from parts."""


def _is_host(sharding: Any | None, regions: Mapping[Region, Sequence[Any]]) -> bool:
    """True if the memory of the devices is the host's own."""
    if sharding is not None and sharding.memory_kind in ("pinned_host", "unpinned_host"):
        return True
    devices = default_devices() if sharding is None else itertools.chain(*regions.values())
    return all(device.platform == "cpu" for device in devices)


def default_devices() -> set[Any]:
    """The device on which JAX puts arrays of this thread by default."""
    import jax

    config: Any = jax.config
    device = config.jax_default_device  # a device, or the name of a platform
    if device is None or isinstance(device, str):
        return {jax.local_devices(backend=device)[0]}
    return {device}


# JAX's client for CPU devices takes over NumPy memory that begins at a multiple of 64 bytes instead of
# copying it. Such an array cannot be donated: its memory belongs to NumPy. So staged arrays never begin at
# such an address, and are always copied.

MAPPED = 1 << 20
"""Arrays of at least this many bytes are mapped by themselves: freeing them returns memory to the system."""
_ALIGNED = 64
"""Alignment, in bytes, of memory that JAX takes over without a copy."""


def let_memory_be_reused() -> None:
    """Let the allocator keep freed blocks of some MiB for the next ones instead of giving each to the system.

    glibc's malloc(3) does so with blocks up to the largest one that it has seen freed, if that had at most
    32 MiB. So no setting of the program is changed, and `release_memory` gives all of it back. Getting
    blocks from the system, which clears them page by page, takes a tenth of the time of a restore.
    """
    np.empty((32 << 20) - (64 << 10), np.uint8)  # of DEFAULT_MMAP_THRESHOLD_MAX, less some for its own data


def staging_array(shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
    """An array in C order that is not initialized, and that JAX copies."""
    count = int(np.prod(shape, dtype=np.int64))
    nbytes = count * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    offset = dtype.alignment
    if nbytes < MAPPED:
        raw = np.empty(nbytes + _ALIGNED + offset, np.uint8)
    else:  # unmapped when the last array in it is freed; it begins at a page
        memory = mmap.mmap(-1, nbytes + offset, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux: a fifth of the time to get the memory
            memory.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(memory, np.uint8)
    start = -raw.ctypes.data % _ALIGNED + offset
    array: np.ndarray = raw[start : start + nbytes].view(dtype).reshape(shape)
    return array
