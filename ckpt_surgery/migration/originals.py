"""What is known about the tree that transforms are applied to: its leaves, and how it is put together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.live.tree import LiveTree, live_tree, nested

NUMERIC = (LeafKind.ARRAY, LeafKind.SCALAR)
"""Kinds of leaves that functions can compute with."""
CONTAINERS: Mapping[str | None, Callable[[], Any]] = {"Dict": dict, "List": list, "Tuple": tuple}
"""What empty nodes of these kinds are restored as; all others as None."""


@dataclass(frozen=True, eq=False)
class Original:
    """A tree, or the listing of a checkpoint."""

    leaves: Mapping[str, Leaf]
    """All leaves by the text of the key."""
    rebuilt: Callable[[Mapping[str, Any]], Any]
    """The tree with these values by key."""
    types: Mapping[str, type]
    """Type of the value at each key: `int`, `jax.Array`. Keys of a mere listing are not named."""
    held: Callable[[str], Any]
    """The object at a key: what the tree holds, or a restored tree would hold, where there is no array."""

    @property
    def numeric(self) -> Mapping[str, Leaf]:
        """The leaves that functions can compute with."""
        return {text: leaf for text, leaf in self.leaves.items() if leaf.kind in NUMERIC}

    def number_at(self, text: str) -> bool:
        """Whether the tree holds a number of Python there, not an array."""
        known = self.types.get(text)
        return self.leaves[text].kind is LeafKind.SCALAR if known is None else known in (bool, int, float)

    def on_devices(self, text: str) -> bool:
        """Whether the tree holds an array of JAX there."""
        known = self.types.get(text)
        return known is not None and known.__module__.split(".")[0] in ("jax", "jaxlib")

    def given(self, text: str, array: np.ndarray) -> Any:
        """An array as what the tree holds at this key."""
        return array.item() if self.number_at(text) else array


def original_of_tree(tree: Any) -> Original:
    """What is known of a pytree. Raises UsageError where two of its leaves have one text."""
    return original_of_live(live_tree(tree))


def original_of_live(live: LiveTree) -> Original:
    """What is known of a pytree that has been listed."""
    types = {text: type(value) for text, value in live.values.items()}
    return Original(live.leaves, live.rebuilt, types, live.values.__getitem__)


def original_of_leaves(leaves: Mapping[str, Leaf]) -> Original:
    """What is known of a checkpoint, from its listing: it is restored as nested dicts and lists."""

    def rebuilt(values: Mapping[str, Any]) -> Any:
        return nested((leaf.key, values.get(text, _held(leaf))) for text, leaf in leaves.items())

    return Original(leaves, rebuilt, {}, lambda text: _held(leaves[text]))


def _held(leaf: Leaf) -> Any:
    """What a restored tree holds where there is no array: a text, or an empty node."""
    return leaf.string if leaf.empty not in CONTAINERS else CONTAINERS[leaf.empty]()
