"""A pytree in memory as a checkpoint that is read."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.live.tree import LiveTree, is_abstract

FORMAT = "tree"
"""Name of the format of trees in memory, in plans and reports."""


class TreeSource:
    """A pytree in memory, as a source. Safe to use from several threads."""

    format = FORMAT
    step: int | None = None
    item: str | None = None

    def __init__(self, tree: LiveTree, path: str):
        """`path` stands for the tree in messages, as in `(tree)`."""
        self.tree = tree
        self.path = path
        self.metadata: Mapping[str, Any] = {}

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the tree's order."""
        return self.tree.leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region. Raises SourceError for a leaf without a value."""
        import jax

        value = self.tree.values[leaf.key.text]
        if is_abstract(value):
            raise SourceError(f"`{leaf.key}` of {self.path} is abstract: it has no value")
        if leaf.kind is LeafKind.PRNG_KEY:
            value = jax.random.key_data(value)
        assert leaf.spec is not None
        return np.asarray(value, leaf.spec.dtype)[region.slices]

    def files(self) -> Iterable[str]:
        """No files: everything is in memory."""
        return ()

    def fingerprint(self) -> str:
        """A text that differs from that of every other tree of this process."""
        return f"tree {id(self)}"
