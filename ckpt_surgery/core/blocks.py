"""The regions in which whole leaves are read, a part of a budget of memory at a time."""

from collections.abc import Iterator

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grown
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
    unit = tuple(min(length, max(1, n)) for length, n in zip(_unit(leaf), leaf.spec.shape, strict=True))
    return grown(unit, leaf.spec.shape, min(READ_BYTES, memory // 8) // leaf.spec.dtype.itemsize)


def _unit(leaf: Leaf) -> Shape:
    """Shape of the smallest region that can be read alone: a chunk, or one element if none is encoded."""
    assert leaf.spec is not None
    if leaf.manifest is None or leaf.manifest.codec.name == "raw":
        return (1,) * leaf.spec.ndim
    return leaf.manifest.chunk_shape
