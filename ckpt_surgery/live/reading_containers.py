"""Values of an open checkpoint, read as Orbax restores them; dicts and lists that read them at first use."""

import copy
import functools
import json
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any

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
    if value.sharding is None and value.prng_impl is None:
        return array
    import jax

    placed = jax.device_put(array, saved_sharding(value.sharding or ""))
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


if TYPE_CHECKING:
    _Dict = dict[Any, Any]
    _List = list[Any]
else:

    class _Dict(MutableMapping, dict):
        """Dict whose methods for values go through `__getitem__`."""

    class _List(MutableSequence, list):
        """List whose methods for elements go through `__getitem__`."""


class _Reading:
    """Shown and pickled as an ordinary container with the values."""

    def __repr__(self) -> str:
        return repr(settled(self))

    def __reduce__(self) -> Any:
        return copy.copy, (settled(self),)


class ReadingDict(_Reading, _Dict):
    """A dict in which a value is read when it is first used, and kept. `jax.tree` sees its own node."""

    def __getitem__(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if isinstance(value, LazyArray):
            value = restored_value(value)
            dict.__setitem__(self, key, value)
        return value

    __setitem__, __delitem__, __len__ = dict.__setitem__, dict.__delitem__, dict.__len__
    __contains__, __reversed__ = dict.__contains__, dict.__reversed__

    def __iter__(self) -> Iterator[Any]:  # defined here, so that `dict(self)` does not copy what is stored
        return dict.__iter__(self)

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def copy(self) -> dict[Any, Any]:
        """An ordinary dict with the values."""
        return dict(self.items())


class ReadingList(_Reading, _List):
    """A list in which an element is read when it is first used, and kept. `jax.tree` sees its own node."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        value = list.__getitem__(self, index)
        if isinstance(value, LazyArray):
            value = restored_value(value)
            list.__setitem__(self, index, value)
        return value

    __setitem__, __delitem__, __len__, insert = list.__setitem__, list.__delitem__, list.__len__, list.insert

    # Operators, not methods of the copy: these would see what `other` stores, and take no arrays of NumPy.
    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __add__(self, other: Any) -> Any:
        return self.copy() + other

    def __radd__(self, other: Any) -> Any:
        return other + self.copy()

    def __mul__(self, count: Any) -> Any:
        return self.copy() * count

    __rmul__ = __mul__

    def copy(self) -> list[Any]:
        """An ordinary list with the elements."""
        return [*self]


def reading(tree: Any) -> Any:
    """Wrap dicts and lists so that the LazyArrays in them are read when they are used."""
    _register()
    if isinstance(tree, dict):
        return ReadingDict({name: reading(value) for name, value in tree.items()})
    return ReadingList(map(reading, tree)) if type(tree) is list else tree


def settled(tree: Any) -> Any:
    """Read everything in a tree, and replace its reading dicts and lists by ordinary ones."""
    import jax

    if isinstance(tree, ReadingDict):
        return {name: settled(value) for name, value in tree.items()}
    if isinstance(tree, ReadingList):
        return [settled(value) for value in tree]
    if any(map(_reads, jax.tree.leaves(tree, is_leaf=_reads))):
        return jax.tree.map(lambda node: settled(node) if _reads(node) else node, tree, is_leaf=_reads)
    return tree


def _reads(node: Any) -> bool:
    return isinstance(node, _Reading)


@functools.cache
def _register() -> None:
    """Let `jax.tree` see the containers: it makes ordinary ones of them."""
    from jax.tree_util import DictKey, SequenceKey, register_pytree_with_keys

    def items(node: Mapping[Any, Any]) -> tuple[Any, Any]:
        names = tuple(sorted(node))
        return [(DictKey(name), node[name]) for name in names], names

    def elements(node: ReadingList) -> tuple[Any, Any]:
        return [(SequenceKey(i), value) for i, value in enumerate(node)], None

    def dict_of(names: Any, values: Any) -> Any:
        return dict(zip(names, values, strict=True))

    register_pytree_with_keys(ReadingDict, items, dict_of)
    register_pytree_with_keys(ReadingList, elements, lambda _, values: [*values])  # type: ignore[arg-type,return-value]
