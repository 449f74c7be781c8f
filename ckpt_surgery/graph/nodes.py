"""The tree that an expression becomes: leaves that are read, functions that are applied.

Nothing here holds data. A node knows its spec, so everything about an output is known while planning.
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
    """The stored value of one leaf of one source, or of the target (`source == "target"`)."""

    source: str
    leaf: Leaf

    @property
    def spec(self) -> ArraySpec:
        assert self.leaf.spec is not None, "strings and empty nodes have no array"
        return self.leaf.spec


@dataclass(frozen=True, eq=False)
class Apply:
    """A function of other nodes."""

    function: Function
    inputs: tuple["Node", ...]

    @cached_property
    def spec(self) -> ArraySpec:
        return self.function.infer([node.spec for node in self.inputs])


Node = Read | Apply


@dataclass(frozen=True, eq=False)
class Array:
    """What an expression sees of an array: the node, and the dtype that the user is told.

    The two dtypes differ while narrow floats are computed in float32 (`Function.declared_dtype`).
    """

    node: Node
    dtype: np.dtype[Any]

    @property
    def spec(self) -> ArraySpec:
        return ArraySpec(self.node.spec.shape, self.dtype)

    def settled(self) -> Node:
        """The node, rounded to the declared dtype where it was computed wider."""
        if self.node.spec.dtype == self.dtype:
            return self.node
        return Apply(Rounded(self.dtype), (self.node,))


@dataclass(frozen=True, eq=False)
class Series:
    """`xs`: the leaves that one rule sends to one key, in order."""

    items: tuple[Array, ...]
    places: tuple[int, ...] | None
    """Where `by` gave integers: the place of each item, ascending. None: the items are simply in order."""

    @property
    def complete(self) -> bool:
        """No gap: the places are 0..N-1."""
        return self.places is None or self.places == tuple(range(len(self.items)))


def applied(function: Function, inputs: Sequence[Array]) -> Array:
    """A function of arrays as an array that is not computed yet; its shapes are checked here."""
    nodes = tuple(array.settled() if function.exact_inputs else array.node for array in inputs)
    node = Apply(function, nodes)
    dtype = node.spec.dtype
    return Array(node, function.declared_dtype([array.dtype for array in inputs]) if inputs else dtype)


def reads(node: Node) -> Iterator[Read]:
    """Every leaf that a node reads, depth first; a leaf that is read twice comes twice."""
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
    """The node's value over bytes that are stored already.

    None where any of it has to be computed, or has no stored bytes yet.
    """
    if isinstance(node, Read):
        return node.leaf.manifest
    if type(node.function).relink is Function.relink:
        return None
    manifests = [manifest for child in node.inputs if (manifest := relinked(child)) is not None]
    return node.function.relink(manifests) if len(manifests) == len(node.inputs) else None
