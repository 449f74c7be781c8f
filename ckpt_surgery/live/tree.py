"""A pytree of a program, as a checkpoint would list it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.paths import key_of

NUMBERS = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64)}
"""Dtypes in which Orbax stores Python's numbers."""


@frozen(eq=False)
class LiveTree:
    """A pytree, its leaves as a checkpoint lists them, and what it holds for each."""

    leaves: Mapping[str, Leaf]
    """Leaves by the text of the key, in the tree's order."""
    values: Mapping[str, Any]
    """What the tree holds at each key: an array, a ShapeDtypeStruct, a number, a text, an empty node."""
    nodes: tuple[tuple[str | None, Any], ...]
    """Key and object at each position; no key where the object, such as a function, is no leaf."""
    treedef: Any
    """Structure, in which empty nodes count as leaves."""

    def rebuilt(self, values: Mapping[str, Any]) -> Any:
        """A tree of the same structure with these values by key; what is not named stays."""
        import jax

        return jax.tree_util.tree_unflatten(
            self.treedef, [node if text is None else values.get(text, node) for text, node in self.nodes]
        )


def live_tree(tree: Any) -> LiveTree:
    """List a pytree. Raises UsageError where two leaves have one text."""
    import jax

    found, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_empty)
    leaves: dict[str, Leaf] = {}
    values: dict[str, Any] = {}
    nodes: list[tuple[str | None, Any]] = []
    for path, value in found:
        leaf = _leaf(key_of(path), value)
        nodes.append((None if leaf is None else leaf.key.text, value))
        if leaf is None:
            continue
        if leaf.key.text in leaves:
            raise UsageError(f"two leaves of the tree would be called `{shown(leaf.key.text)}`")
        leaves[leaf.key.text], values[leaf.key.text] = leaf, value
    return LiveTree(leaves, values, tuple(nodes), treedef)


def is_abstract(value: Any) -> bool:
    """Whether a leaf has shape and dtype and no value."""
    import jax

    return isinstance(value, jax.ShapeDtypeStruct)


def _is_empty(node: Any) -> bool:
    return node is None or (isinstance(node, tuple | list | Mapping) and not node)


def _leaf(key: Key, value: Any) -> Leaf | None:
    import jax

    if _is_empty(value):
        return Leaf(key, LeafKind.EMPTY, empty=_empty_kind(value))
    if isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            raw = jax.eval_shape(jax.random.key_data, value)
            spec = ArraySpec(raw.shape, np.dtype(raw.dtype))
            return Leaf(key, LeafKind.PRNG_KEY, spec, prng_impl=str(jax.random.key_impl(value)))
        return Leaf(key, LeafKind.ARRAY, ArraySpec(value.shape, np.dtype(value.dtype)))
    if isinstance(value, np.ndarray):
        return Leaf(key, LeafKind.ARRAY, ArraySpec(value.shape, value.dtype))
    if isinstance(value, np.generic):
        return Leaf(key, LeafKind.SCALAR, ArraySpec((), value.dtype))
    if isinstance(value, str):
        return Leaf(key, LeafKind.STRING, string=value)
    if type(value) in NUMBERS:
        return Leaf(key, LeafKind.SCALAR, ArraySpec((), NUMBERS[type(value)]))
    return None


def _empty_kind(value: Any) -> str:
    kinds: Iterator[tuple[type, str]] = iter(((Mapping, "Dict"), (list, "List"), (tuple, "Tuple")))
    if value is None or hasattr(value, "_fields"):
        return "None"
    return next(name for kind, name in kinds if isinstance(value, kind))
