"""The regions in which whole leaves are read, a part of a budget of memory at a time."""

import math
from collections.abc import Iterator

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions
from ckpt_surgery.core.leaves import Leaf

READ_BYTES = 32 << 20
"""Largest number of bytes of one leaf that are read at once, unless a single chunk is larger."""


def read_regions(leaf: Leaf, memory: int) -> Iterator[Region]:
    """Disjoint regions that cover the leaf; each has at most an eighth of `memory` bytes, or is one chunk."""
    assert leaf.spec is not None, "only leaves with an array are read"
    return chunk_regions(leaf.spec.shape, read_block(leaf, memory))


def read_block(leaf: Leaf, memory: int) -> Shape:
    """The shape of the regions of `read_regions`."""
    assert leaf.spec is not None
    return _block(leaf.spec, _unit(leaf), min(READ_BYTES, memory // 8))


def _unit(leaf: Leaf) -> Shape:
    """Shape of the smallest region that can be read alone: a chunk, or one element if none is encoded."""
    assert leaf.spec is not None
    if leaf.manifest is None or leaf.manifest.codec.name == "raw":
        return (1,) * leaf.spec.ndim
    return leaf.manifest.chunk_shape


def _block(spec: ArraySpec, unit: Shape, nbytes: int) -> Shape:
    """Shape of a block of whole units with at most `nbytes` bytes, grown along the last axes first.

    It has at least one unit.
    """
    shape, limit = spec.shape, max(1, nbytes // spec.dtype.itemsize)
    block = [min(u, n) if n else 1 for u, n in zip(unit, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        others = math.prod(block) // block[axis]
        units = max(1, limit // (others * unit[axis]))
        block[axis] = max(1, min(shape[axis], units * unit[axis]))
    return tuple(block)
