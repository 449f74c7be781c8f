"""Lazy arrays as expressions have them: leaves that nothing reads."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Array, Node, Read, apply
from ckpt_surgery.functions.base import Function
from ckpt_surgery.language.expressions.scope import Leaves


def lazy(shape: tuple[int, ...] = (4, 6), dtype: Any = np.float32, key: str = "a/b") -> Array:
    """An array that stands for a leaf of `source`."""
    spec = ArraySpec(shape, np.dtype(dtype))
    return Array(Read("source", Leaf(Key.parse(key), LeafKind.ARRAY, spec)), spec.dtype)


Changed = Function | Callable[..., Array]
"""A function, or a Python function of lazy arrays."""


def by(function: Callable[..., Array], *arguments: Any, **keywords: Any) -> Callable[[Array], Array]:
    """A Python function of one lazy array, from one that takes further arguments."""
    return lambda x: function(x, *arguments, **keywords)


def changed(function: Changed, *nodes: Node) -> Node:
    """The node that a function of these nodes gives."""
    if isinstance(function, Function):
        return Apply(function, nodes)
    return function(*(Array(node, node.spec.dtype) for node in nodes)).node


def declared_by(function: Function, *dtypes: Any, shape: tuple[int, ...] = (2, 2)) -> np.dtype[Any]:
    """The declared dtype of a function of arrays of these dtypes."""
    return apply(function, *(lazy(shape, dtype) for dtype in dtypes)).dtype


@dataclass(frozen=True)
class ArrayLeaves(Leaves):
    """The leaves of a source, all of them arrays."""

    arrays: Mapping[str, Array]
    name: str = "source"

    def lookup(self, text: str) -> Array | None:
        return self.arrays.get(text)

    def kind(self, text: str) -> str | None:
        return "array" if text in self.arrays else None

    def keys(self) -> Collection[str]:
        return self.arrays.keys()
