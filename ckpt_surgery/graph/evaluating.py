"""Evaluation of one region of a value."""

from collections.abc import Callable

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.graph.fusion import fused
from ckpt_surgery.graph.nodes import Node, Read

Reader = Callable[[str, Leaf, Region], np.ndarray]
"""Reads the elements of a region: (source name, leaf, region) → array."""


def evaluate(node: Node, region: Region, read: Reader) -> np.ndarray:
    """The elements of one region of a node, large ones in C order. Raises DataError as functions do."""
    return to_c_order(_block(node, region, read))


def _block(node: Node, region: Region, read: Reader) -> np.ndarray:
    if isinstance(node, Read):
        return read(node.source, node.leaf, region)
    block = _block_in_tiles(node, region, read)
    if block is not None:
        return block
    specs = [n.spec for n in node.inputs]
    blocks = [_block(node.inputs[i], part, read) for i, part in node.function.needs(region, specs)]
    return node.function.apply(region, specs, blocks)


def _block_in_tiles(node: Node, region: Region, read: Reader) -> np.ndarray | None:
    """The region's elements, evaluated in tiles; None if it must be evaluated as a whole."""
    together = fused(node, region)
    if together is None:
        return None
    blocks = [_block(part, needed, read) for part, needed in together.parts]
    try:
        return together.apply(blocks)
    except DataError:
        return None  # evaluated as a whole, so that the message names the largest value of the region
