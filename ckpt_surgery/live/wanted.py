"""Leaves of a target that ask for a kind of value and have none: types, empty arrays of NumPy, `...`.

They are what `jax.ShapeDtypeStruct` is for arrays of JAX. The metadata that `metadata()` of Orbax returns, in
versions 0 and 1, is recognized by names of types and attributes: Orbax is not imported. Recorded shardings
are ignored.
"""

import functools
from collections.abc import Callable, Mapping, Set
from typing import Any, get_args, get_origin

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import DType, kind
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.planner.entries import Asked

ARRAYS = frozenset({LeafKind.ARRAY})
NUMBERS_TOO = frozenset({LeafKind.ARRAY, LeafKind.SCALAR})
KEYS_TOO = frozenset({LeafKind.ARRAY, LeafKind.PRNG_KEY})
NUMBERS: tuple[type, ...] = (bool, int, float)
"""Types of Python's numbers that a target may ask for."""
_NUMBER_TYPES = {"b": bool, "i": int, "u": int, "f": float}
"""Those types by the kind of a dtype."""


@frozen(eq=False)
class Wanted:
    """A leaf of a target that has no value."""

    type: Any
    """Type of the result: `np.ndarray`, `jax.Array`, `int`, `float`, `bool`, `str`; None: the source's."""
    kind: LeafKind
    spec: ArraySpec | None = None
    """Shape and dtype; None if the target does not say both."""
    asked: Asked | None = None
    """Values that it accepts; None if `kind` and `spec` say so."""

    def leaf(self, key: Key) -> Leaf:
        """Leaf as the target has it."""
        return Leaf(key, self.kind, self.spec, type="ellipsis" if self.kind is LeafKind.OBJECT else None)


def wanted_of(value: Any) -> Any:
    """Value of a target's leaf as the planner sees it; anything that has a value is returned as it is."""
    if value is ...:
        anything = frozenset(LeafKind) - {LeafKind.OBJECT}
        return Wanted(None, LeafKind.OBJECT, asked=Asked(anything, is_placeholder=True))
    if isinstance(value, type):
        import jax

        wanted = {
            np.ndarray: _numpy(ARRAYS),
            jax.Array: Wanted(jax.Array, LeafKind.ARRAY, asked=Asked(KEYS_TOO)),
            str: Wanted(str, LeafKind.STRING),
            **{type_: _number(type_) for type_ in NUMBERS},
        }
        return wanted.get(value, value)
    if type(value) is np.ndarray and value.shape == (0,):
        dtype = value.dtype.newbyteorder("=")
        return _numpy(NUMBERS_TOO, None if dtype == np.float64 else dtype)
    described = _of_metadata(value)
    return value if described is None else described


def type_of(like: Any) -> type:
    """Type of the value that a target wants at a leaf: that of its own value, or the one it asks for."""
    return like.type or type(None) if isinstance(like, Wanted) else type(like)


def narrowed(dtype: DType) -> DType:
    """The dtype to which JAX narrows this one, if `jax_enable_x64` is off: that of 32 bits for 64."""
    import jax

    is_wide = dtype.name in ("int64", "uint64", "float64", "complex128")
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype)) if is_wide else dtype


def _of_metadata(value: Any) -> Wanted | None:
    """Wanted for metadata of a value, else None. What JAX would narrow is NumPy's, as Orbax restores it."""
    import jax

    names = type_names(type(value))  # type: ignore[arg-type]
    if "StringMetadata" in names:
        return Wanted(str, LeafKind.STRING)
    # In version 0 a ScalarMetadata is an ArrayMetadata, too.
    of_arrays = names & {"ArrayMetadata", "NumpyMetadata", "ScalarMetadata"}
    if not (of_arrays and hasattr(value, "shape") and hasattr(value, "dtype")):
        return None
    dtype = None if value.dtype is None else np.dtype(value.dtype)
    if "ScalarMetadata" in names and dtype is not None and kind(dtype) in _NUMBER_TYPES:
        return _number(_NUMBER_TYPES[kind(dtype)], dtype)
    spec = None if value.shape is None or dtype is None else ArraySpec(tuple(value.shape), dtype)
    if "NumpyMetadata" in names or (spec is not None and narrowed(spec.dtype) != spec.dtype):
        return Wanted(np.ndarray, LeafKind.ARRAY, spec, Asked(NUMBERS_TOO, dtype))
    keys = KEYS_TOO if dtype in (None, np.uint32) else frozenset()  # keys are described as uint32
    return Wanted(jax.Array, LeafKind.ARRAY, spec, Asked(NUMBERS_TOO | keys, dtype))


def _numpy(kinds: frozenset[LeafKind], dtype: DType | None = None) -> Wanted:
    return Wanted(np.ndarray, LeafKind.ARRAY, asked=Asked(kinds, dtype))


def _number(type_: type, dtype: DType | None = None) -> Wanted:
    return Wanted(type_, LeafKind.SCALAR, ArraySpec((), np.dtype(type_) if dtype is None else dtype))


_WRAPPERS = {"StepMetadata": "item_metadata", "CheckpointMetadata": "metadata", "TreeMetadata": "tree"}
"""Types of metadata that stand for a tree, and the attribute with what they hold."""


def unwrapped(tree: Any) -> Any:
    """Replace metadata of checkpoints, and of trees, by the tree that they describe, at any depth.

    Raises UsageError for metadata of several items, and for metadata without a tree.
    """
    import jax

    wraps: Callable[[Any], bool] = lambda value: _wrapper(value) is not None  # noqa: E731
    if not any(map(wraps, jax.tree.leaves(tree, is_leaf=wraps))):
        return tree
    return jax.tree.map(_inner, tree, is_leaf=wraps)


def _wrapper(value: Any) -> str | None:
    """Name of the type of metadata that stands for a tree; None for anything else."""
    names = type_names(type(value))  # type: ignore[arg-type]
    if "Composite" in names and isinstance(value, Mapping):  # the metadata of items by name
        return "Composite"
    return next((n for n, attribute in _WRAPPERS.items() if n in names and hasattr(value, attribute)), None)


@functools.lru_cache(maxsize=256)  # a tree has leaves of few types
def type_names(type_: Any) -> Set[str]:
    """Names of a type, and of those that it derives from."""
    return {base.__name__ for base in type_.__mro__}


def _inner(value: Any) -> Any:
    """The tree that metadata describes; any other value as it is. Raises UsageError."""
    kind = _wrapper(value)
    if kind is None:
        return value
    inner = _only_item(value, "item_metadata") if kind == "Composite" else getattr(value, _WRAPPERS[kind])
    if kind == "CheckpointMetadata" and _is_of_items(value):
        inner = _only_item(inner, "metadata")
    if inner is None:
        hint = "Orbax logs why it could not read them. Give another tree as the target, or none."
        raise UsageError(f"the {type(value).__name__} given as the target describes no arrays", hint=hint)
    tree = unwrapped(inner)
    if kind != "CheckpointMetadata":
        return tree
    import jax

    # Version 1 describes numbers and texts by values, in whose place are their types.
    return jax.tree.map(lambda leaf: type(leaf) if type(leaf) in (*NUMBERS, str) else leaf, tree)


def _only_item(items: Mapping[str, Any], attribute: str) -> Any:
    """The metadata of the only item with arrays. Raises UsageError if there are several."""
    described = {name: metadata for name, metadata in items.items() if metadata is not None}
    if len(described) > 1:
        names = few_keys(sorted(described))
        raise UsageError(
            f"the metadata given as the target is that of {len(described)} items: {names}",
            hint=f"Give the metadata of one item: `target=metadata.{attribute}[NAME]`.",
        )
    return next(iter(described.values()), None)


def _is_of_items(metadata: Any) -> bool:
    """True for metadata of items by name; that of one tree is a `CheckpointMetadata[PyTreeMetadata]`."""
    if not isinstance(metadata.metadata, Mapping):
        return False
    arguments = get_args(getattr(metadata, "__orig_class__", None))
    return not arguments or get_origin(arguments[0]) is dict
