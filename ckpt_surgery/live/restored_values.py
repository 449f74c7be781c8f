"""Values of an open checkpoint, read as Orbax restores them."""

import functools
import json
from typing import Any

import numpy as np

from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.live.lazy_arrays import LazyArray


def restored_value(value: Any) -> Any:
    """Read a value of a checkpoint as Orbax restores it without arguments.

    Arrays are JAX's, with the sharding that they were saved with, or NumPy's, as they were when they were
    saved; scalars are Python's numbers; random keys are typed. Where the devices of a sharding do not exist,
    arrays are on the default device. What is not a LazyArray is returned as it is.
    """
    if not isinstance(value, LazyArray):
        return value
    array = value.get()
    if value._kind is LeafKind.SCALAR:
        return array.item()
    return array if value.sharding is None and value.prng_impl is None else _on_devices(value, array)


def _on_devices(value: LazyArray, array: np.ndarray) -> Any:
    import jax

    sharding = None if value.sharding is None else saved_sharding(value.sharding)
    placed = jax.device_put(array, sharding)
    is_key = value.prng_impl is not None  # the sharding of keys was recorded for their raw data
    return jax.random.wrap_key_data(placed, impl=value.prng_impl) if is_key else placed


@functools.lru_cache(maxsize=256)  # most arrays of a checkpoint have one of a few
def saved_sharding(text: str) -> Any | None:
    """Sharding of Orbax's JSON text; None for text that describes none, and if its devices do not exist."""
    try:
        return _sharding_of(json.loads(text))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def _sharding_of(saved: Any) -> Any:
    """Build a recorded sharding. Raises KeyError for missing devices, others for what later Orbax may add."""
    import jax
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    if saved["sharding_type"] == "SingleDeviceSharding":
        devices = {_device_name(str(device)): device for device in jax.local_devices()}
        return SingleDeviceSharding(devices[_device_name(saved["device_str"])])
    existing = {device.id: device for device in jax.devices()}
    recorded = saved.get("device_mesh")
    numbers = list(existing) if recorded is None else _device_numbers(recorded["mesh"])
    types = {str(kind): kind for kind in AxisType}
    mesh = Mesh(
        np.array([existing[number] for number in numbers]).reshape(saved["shape"]),
        saved["axis_names"],
        axis_types=tuple(types[name] for name in saved.get("axis_types") or ()) or None,
    )
    axes = (tuple(axis) if isinstance(axis, list) else axis for axis in saved["partition_spec"])
    return NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]


def _device_name(name: str) -> str:
    """Name of a device, of the CPU as newer versions of jax write it."""
    return name.replace("TFRT_CPU_", "cpu:")


def _device_numbers(mesh: Any) -> list[int]:
    """Numbers of the devices of a recorded mesh, row by row."""
    return [mesh["id"]] if isinstance(mesh, dict) else [n for row in mesh for n in _device_numbers(row)]
