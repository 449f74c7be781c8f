"""List a pytree of a program as a checkpoint would list it, and build such trees.

Keys are the names under which Orbax saves leaves: observed by saving every kind of container with
orbax-checkpoint 0.12.8, which tests/live/test_tree.py repeats.
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.shardings import Spec, named_sharding, single_device_sharding
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.wanted import Wanted, unwrapped, wanted_of


@frozen(eq=False)
class LiveTree:
    """A pytree, its leaves as a checkpoint lists them, and the object that it holds for each."""

    leaves: Mapping[str, Leaf]
    """Leaves by the text of the key, in the tree's order."""
    values: Mapping[str, Any]
    """Object at each key: an array, a ShapeDtypeStruct, a number, a text, an empty node, a Wanted."""
    nodes: tuple[tuple[str | None, Any], ...]
    """Key and object at each position; no key if the object, such as a function, is not a leaf."""
    treedef: Any
    """Structure, in which empty nodes count as leaves, and modules of NNX are their states."""
    with_modules: Callable[[Any], Any]
    """Makes modules of the states in a tree of this structure."""
    tuple_dicts: frozenset[tuple[str, ...]] = frozenset()
    """Keys of the dicts whose own keys are tuples of texts."""

    def rebuilt(self, values: Mapping[str, Any]) -> Any:
        """A tree of the same structure with these values by key; all other objects stay the tree's own."""
        return self.with_modules(self.listed(values))

    def listed(self, values: Mapping[str, Any]) -> Any:
        """The same, with states of NNX in place of its modules."""
        import jax

        return jax.tree_util.tree_unflatten(
            self.treedef, [node if text is None else values.get(text, node) for text, node in self.nodes]
        )


def live_tree(tree: Any, is_target: bool = False) -> LiveTree:
    """List a pytree.

    Leaves are arrays, ShapeDtypeStructs, typed PRNG keys, numbers, texts, and nodes that hold nothing.
    Functions and other callable objects without data belong to the structure. Everything else, such as
    a tensor of PyTorch and the placeholder `...`, is an object, which only rules that drop it accept. Raises
    UsageError for two leaves with the same text, for trees that jax cannot flatten, and for values that a
    transformation of jax traces; MissingLibraryError without jax.

    In a target (`is_target`), types, `np.array([])`, `...` and metadata of Orbax say what is wanted: see
    `wanted_of`. Metadata of checkpoints stands for the tree that it describes.
    """
    with report_missing("jax", "a tree in memory needs jax"):
        import jax

    try:
        states, with_modules = with_states(unwrapped(tree) if is_target else tree)
        nodes_with_paths, treedef = jax.tree_util.tree_flatten_with_path(states, is_leaf=_is_empty)
    except (TypeError, ValueError) as error:  # such as for keys of a dict that have no order
        raise UsageError(f"jax cannot flatten the tree: {shown(str(error))}") from error
    leaves: dict[str, Leaf] = {}
    values: dict[str, Any] = {}
    nodes: list[tuple[str | None, Any]] = []
    tuples: set[tuple[str, ...]] = set()
    for path, node in nodes_with_paths:
        key = key_of(path)
        value = wanted_of(node) if is_target else node
        if path and is_flat_key(getattr(path[-1], "key", None)):
            tuples.add(key.names[:-1])
        leaf = _leaf(key, value)
        nodes.append((None if leaf is None else key.text, node))
        if leaf is None:
            continue
        if key.text in leaves:
            both = f"{shown(repr(leaves[key.text].key.names))} and {shown(repr(key.names))}"
            hint = "Rename a container whose name has a slash."
            raise UsageError(f"Two leaves would be called `{shown(key.text)}`: {both}", hint=hint)
        leaves[key.text], values[key.text] = leaf, value
    return LiveTree(leaves, values, tuple(nodes), treedef, with_modules, frozenset(tuples))


def is_abstract(value: Any) -> bool:
    """True if a leaf has no value: a ShapeDtypeStruct, a Wanted, or an array that was deleted."""
    import jax

    return isinstance(value, jax.ShapeDtypeStruct | Wanted) or is_deleted(value)


def is_deleted(value: Any) -> bool:
    """True if the memory of an array was given away, as by `donate_argnums`."""
    import jax

    return isinstance(value, jax.Array) and value.is_deleted()


@functools.lru_cache(maxsize=256)  # most arrays of a tree have one of a few
def recorded_sharding(sharding: Any, more_axes: int = 0) -> str | None:
    """Text that Orbax records for an array with this sharding; None for kinds that it does not record.

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


EMPTY_NODES: Mapping[str | None, Callable[[], Any]] = {"Dict": dict, "List": list, "Tuple": tuple}
"""Makes an empty node of each kind; one of any other kind is None."""


def plain_value(leaf: Leaf) -> Any:
    """Value of a leaf without elements: a text, or an empty node."""
    if leaf.kind is LeafKind.STRING:
        return leaf.string
    return EMPTY_NODES.get(leaf.empty, lambda: None)()


def _is_empty(node: Any) -> bool:
    """True if an object is a node of pytrees without children, such as None and `{}`."""
    import jax

    structure: Any = jax.tree_util.tree_structure(node, is_leaf=lambda inner: inner is not node)
    return bool(structure.num_leaves == 0)


def _leaf(key: Key, value: Any) -> Leaf | None:
    """Leaf for an object; None for a function. Raises UsageError for a value that jax traces."""
    import jax

    if isinstance(value, LazyArray):
        spec = ArraySpec(value.shape, value.dtype)
        return Leaf(key, value._kind, spec, sharding=value.sharding, prng_impl=value.prng_impl)
    if isinstance(value, Wanted):
        return value.leaf(key)
    if isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        if isinstance(value, jax.core.Tracer):
            hint = "Call this outside of functions that jax transforms, such as with `jax.jit`."
            raise UsageError(f"`{shown(key.printed)}` has no value yet: jax traces it", hint=hint)
        return _array(key, value)
    if isinstance(value, str):
        return Leaf(key, LeafKind.STRING, string=str(value))
    if isinstance(value, np.ndarray):
        return Leaf(key, LeafKind.ARRAY, ArraySpec(value.shape, _native(value.dtype)))
    if isinstance(value, bool | int | float | complex | np.generic):
        return Leaf(key, LeafKind.SCALAR, ArraySpec((), _native(np.asarray(value).dtype)))
    if _is_empty(value):
        kinds: Mapping[str | None, Any] = {**EMPTY_NODES, "Dict": Mapping}
        plain = (kind for kind, type_ in kinds.items() if isinstance(value, type_))
        is_none = hasattr(value, "_fields")  # as `EmptyState` and other types without fields
        return Leaf(key, LeafKind.EMPTY, empty="None" if is_none else next(plain, "None"))
    if callable(value) and not any(hasattr(type(value), name) for name in _DATA):
        return None
    type_ = type(value)
    module = "" if type_.__module__ in ("builtins", "__main__") else f"{type_.__module__}."
    return Leaf(key, LeafKind.OBJECT, type=f"{module}{type_.__qualname__}")  # such as torch.Tensor


_DATA = ("shape", "__array__", "state_dict")
"""Attributes by which types that can be called have data, such as modules of PyTorch."""


def _array(key: Key, value: Any) -> Leaf:
    """Leaf for an array on devices, or for a description of one."""
    import jax

    if not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        spec = ArraySpec(tuple(value.shape), np.dtype(value.dtype))
        return Leaf(key, LeafKind.ARRAY, spec, sharding=recorded_sharding(value.sharding))
    impls: list[str] = []

    def key_data(traced: Any) -> Any:
        impls.append(str(jax.random.key_impl(traced)))
        return jax.random.key_data(traced)

    numbers = jax.eval_shape(key_data, value)  # typed keys may have no values
    if is_abstract(value):
        sharding = recorded_sharding(value.sharding, len(numbers.shape) - len(value.shape))
    else:
        sharding = recorded_sharding(jax.random.key_data(value).sharding)
    spec = ArraySpec(numbers.shape, np.dtype(numbers.dtype))
    return Leaf(key, LeafKind.PRNG_KEY, spec, sharding=sharding, prng_impl=impls[0])


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype in the byte order of this machine, in which arrays are read."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def with_states(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Replace modules of flax's NNX by their states; also return a function that makes modules of them again.

    Each is listed as its `nnx.state`, in which a shared part appears once. The modules that are made are new
    ones, and share what the given ones share. Raises the error of jax for a tree that it cannot flatten.
    """
    import jax

    nnx = sys.modules.get("flax.nnx")  # where a tree has its modules, the program has imported it
    if nnx is None:
        return tree, lambda listed: listed
    treedef: Any
    nodes, treedef = jax.tree_util.tree_flatten(tree, is_leaf=lambda node: isinstance(node, nnx.Pytree))
    places = [i for i, node in enumerate(nodes) if isinstance(node, nnx.Pytree)]
    if not places:
        return tree, lambda listed: listed
    graph, states = nnx.split(tuple(nodes[i] for i in places))
    for number, i in enumerate(places):
        nodes[i] = states.get(number, nnx.State({}))  # without a state: all of it is another module's too

    def with_modules(listed: Any) -> Any:
        parts = treedef.flatten_up_to(listed)
        modules = nnx.merge(graph, nnx.State({number: parts[i] for number, i in enumerate(places)}))
        for number, i in enumerate(places):
            parts[i] = modules[number]
        return treedef.unflatten(parts)

    return treedef.unflatten(nodes), with_modules


def key_of(path: Sequence[Any]) -> Key:
    """Key under which Orbax saves a leaf with this path of `jax.tree_util`.

    Lists, tuples and nodes that were registered without names are sequences; NamedTuples, dataclasses and
    modules are dicts of their attributes. Numbers as keys of dicts, which NNX has for its lists, stay keys
    of dicts. A tuple of texts as a key of a dict, which Orbax does not save, is its parts joined by slashes.
    """
    names, sequences = [], []
    for entry in path:
        name, is_index = _name_of(entry)
        names.append(SEPARATOR.join(name) if is_flat_key(name) else str(name))
        sequences.append(is_index)
    return Key(tuple(names), tuple(sequences))


def orbax_name(path: Sequence[Any]) -> str:
    """Name that `apply_transformations` of Orbax matches: parts joined by slashes, each as `str` gives it.

    It differs from the text of `key_of` for tuples as keys of dicts: `('a', 'b')`, not `a/b`.
    """
    return SEPARATOR.join(str(_name_of(entry)[0]) for entry in path)


def _name_of(entry: Any) -> tuple[Any, bool]:
    """Name of a path's entry in its container; True if that is an index of a sequence."""
    attribute, is_index = _ENTRIES.get(type(entry).__name__, (None, False))
    return entry if attribute is None else getattr(entry, attribute), is_index


_ENTRIES = {
    "DictKey": ("key", False),
    "GetAttrKey": ("name", False),
    "SequenceKey": ("idx", True),
    "FlattenedIndexKey": ("key", True),
}
"""Attribute with the name of an entry of a path of jax, and True for an index of a sequence, by its type."""


def is_flat_key(name: Any) -> bool:
    """True if the key of a dict is a whole path, as `flax.traverse_util.flatten_dict` makes them."""
    return isinstance(name, tuple) and bool(name) and all(isinstance(part, str) for part in name)
