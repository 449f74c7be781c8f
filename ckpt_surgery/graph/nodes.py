"""The value of an output as a tree: leaves that are read, and functions that are applied to them.

The tree holds no data. A node knows its shape and dtype, so these are known for every output while planning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.dtypes import Rounded


@frozen(eq=False)
class Read:
    """The stored value of a leaf of a source, or of the target (then `source` is `"target"`)."""

    source: str
    leaf: Leaf

    @property
    def spec(self) -> ArraySpec:
        assert self.leaf.spec is not None, "strings and empty nodes have no array"
        return self.leaf.spec


@dataclass(frozen=True, eq=False)
class Apply:
    """A function applied to other nodes."""

    function: Function
    inputs: tuple["Node", ...]

    @cached_property
    def spec(self) -> ArraySpec:
        return self.function.infer([node.spec for node in self.inputs])


Node = Read | Apply


@dataclass(frozen=True, eq=False)
class Array:
    """An array as a value of expressions: its node, and its declared dtype.

    The dtype of the node is wider while narrow floats are computed in float32 (`Function.declared_dtype`).
    """

    node: Node
    dtype: np.dtype[Any]

    @property
    def spec(self) -> ArraySpec:
        return ArraySpec(self.node.spec.shape, self.dtype)

    def settled(self) -> Node:
        """The node, rounded to the declared dtype if it is computed in a wider one."""
        if self.node.spec.dtype == self.dtype:
            return self.node
        return Apply(Rounded(self.dtype), (self.node,))


@dataclass(frozen=True, eq=False)
class Series:
    """The value of `xs`: the leaves that one rule sends to one key, in order."""

    items: tuple[Array, ...]
    places: tuple[int, ...] | None
    """Place of each item, ascending, if `by` gave integers; otherwise None."""

    @property
    def complete(self) -> bool:
        """Whether the places are 0..N-1, without a gap."""
        return self.places is None or self.places == tuple(range(len(self.items)))


def applied(function: Function, inputs: Sequence[Array]) -> Array:
    """The lazy array of a function of arrays. Raises FunctionError if their shapes or dtypes do not fit."""
    nodes = tuple(array.settled() if function.exact_inputs else array.node for array in inputs)
    node = Apply(function, nodes)
    dtype = node.spec.dtype
    return Array(node, function.declared_dtype([array.dtype for array in inputs]) if inputs else dtype)


def reads(node: Node) -> Iterator[Read]:
    """Every read in the tree, depth first; a leaf that is read twice comes twice."""
    return iter((node,)) if isinstance(node, Read) else _reads(node)


def _reads(root: "Node") -> Iterator[Read]:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Read):
            yield node
        else:
            stack.extend(reversed(node.inputs))


def relinked(node: Node) -> Manifest | None:
    """A manifest of the node's value that refers to stored bytes of the leaves.

    None if any part has to be computed, or is not stored as chunks.
    """
    if isinstance(node, Read):
        return node.leaf.manifest
    if type(node.function).relink is Function.relink:
        return None
    manifests = [manifest for child in node.inputs if (manifest := relinked(child)) is not None]
    return node.function.relink(manifests) if len(manifests) == len(node.inputs) else None
