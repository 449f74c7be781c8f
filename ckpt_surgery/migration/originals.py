"""Knowledge about the tree that transforms are applied to: its leaves and its structure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.live.tree import LiveTree, plain_value
from ckpt_surgery.migration.literals import is_of_jax

NUMERIC = (LeafKind.ARRAY, LeafKind.SCALAR)
"""Kinds of leaves that functions can compute with."""


@dataclass(frozen=True, eq=False)
class Original:
    """Description of a tree, or of a checkpoint by its listing."""

    leaves: Mapping[str, Leaf]
    """All leaves by the text of the key."""
    rebuilt: Callable[[Mapping[str, Any]], Any]
    """Rebuilds the tree with these values by key."""
    types: Mapping[str, type]
    """Type of the value at each key: `int`, `jax.Array`. Empty for a listing."""
    held: Callable[[str], Any]
    """Returns the object at a key without an array, as in the tree or in a restored one."""

    @property
    def numeric(self) -> Mapping[str, Leaf]:
        """The leaves that functions can compute with."""
        return {text: leaf for text, leaf in self.leaves.items() if leaf.kind in NUMERIC}

    def spec(self, text: str) -> ArraySpec:
        """Shape and dtype of an array or number."""
        spec = self.leaves[text].spec
        assert spec is not None
        return spec

    def number_at(self, text: str) -> bool:
        """True if the tree holds a number of Python there, not an array."""
        known = self.types.get(text)
        return self.leaves[text].kind is LeafKind.SCALAR if known is None else known in (bool, int, float)

    def on_devices(self, text: str) -> bool:
        """True if the tree holds an array of JAX there."""
        return is_of_jax(self.types.get(text))

    def given(self, text: str, array: np.ndarray) -> Any:
        """Convert an array to the type that the tree holds at this key."""
        return array.item() if self.number_at(text) else array


def original_of_live(live: LiveTree) -> Original:
    """Describe a listed pytree."""
    types = {text: type(value) for text, value in live.values.items()}
    return Original(live.leaves, live.rebuilt, types, live.values.__getitem__)


def original_of_leaves(leaves: Mapping[str, Leaf]) -> Original:
    """Describe a checkpoint by its listing: it is restored as nested dicts and lists."""

    def rebuilt(values: Mapping[str, Any]) -> Any:
        return nested((leaf.key, values.get(text, plain_value(leaf))) for text, leaf in leaves.items())

    return Original(leaves, rebuilt, {}, lambda text: plain_value(leaves[text]))
