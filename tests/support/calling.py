"""Values of Python functions of lazy arrays, computed from arrays in memory, region by region."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.graph.evaluating import evaluate


def lazily(arrays: list[np.ndarray]) -> list[Array]:
    """Lazy arrays that stand for these, by their numbers."""
    specs = [ArraySpec(array.shape, array.dtype) for array in arrays]
    leaves = [Leaf(Key.parse(str(i)), LeafKind.ARRAY, spec) for i, spec in enumerate(specs)]
    return [Array(Read("source", leaf), leaf.spec.dtype) for leaf in leaves if leaf.spec is not None]


def computed(value: Array, arrays: list[np.ndarray], region: Region | None = None) -> np.ndarray:
    """A region of a value of `lazily(arrays)`, by default all of it."""

    def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        block = np.array(arrays[int(leaf.key.text)][region.slices])
        block.flags.writeable = False
        return block

    node = value.rounded_to_declared()
    whole = Region.whole(node.spec.shape)
    found = evaluate(node, region or whole, read)
    assert (found.shape, found.dtype) == ((region or whole).shape, value.dtype)
    return found


def result_of(
    function: Callable[..., Array], *arrays: np.ndarray, region: Region | None = None, **more: Any
) -> np.ndarray:
    """A region of what a function gives for these arrays, by default all of it."""
    return computed(function(*lazily(list(arrays)), **more), list(arrays), region)
