"""Evaluation of one region of a value."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.graph.fusion import Fused, Step, fused, steps_of
from ckpt_surgery.graph.nodes import Apply, Node, Read
from ckpt_surgery.graph.parts import Part, last_uses, parts_of

Reader = Callable[[str, Leaf, Region], np.ndarray]
"""Reads the elements of a region: (source name, leaf, region) → array."""


def evaluate(node: Node, region: Region, read: Reader) -> np.ndarray:
    """The elements of one region of a node, large ones in C order. Raises DataError as functions do."""
    return to_c_order(evaluate_in_any_order(node, region, read))


def evaluate_in_any_order(node: Node, region: Region, read: Reader) -> np.ndarray:
    """The same, for a caller that copies the elements anyway: they are in the order that takes least.

    Every part is computed once, and held until no other needs it.
    """
    if isinstance(node, Read):
        return read(node.source, node.leaf, region)
    parts = parts_of(node, region)
    together = fused(parts)
    try:
        return _block(parts, together, read)
    except _FailedInTiles:
        # Evaluated as a whole, so that the message names the largest value of the region.
        return _block(parts, {}, read)


class _FailedInTiles(Exception):
    """One tile has a value without a result."""


def _block(parts: Sequence[Part], together: Mapping[int, Fused], read: Reader) -> np.ndarray:
    """The result of the last part. Raises _FailedInTiles, or DataError if a part is evaluated as a whole."""
    steps = steps_of(parts, together)
    blocks: dict[int, np.ndarray] = {}
    for step, unused in zip(steps, last_uses([step.inputs for step in steps]), strict=True):
        blocks[step.number] = _computed(step, parts, blocks, read)
        for number in unused:
            del blocks[number]
    return blocks[len(parts) - 1]


def _computed(
    step: Step, parts: Sequence[Part], blocks: Mapping[int, np.ndarray], read: Reader
) -> np.ndarray:
    part, tiles = parts[step.number], step.together
    if not isinstance(part.node, Apply):
        return read(part.node.source, part.node.leaf, part.region)
    if tiles is not None:
        try:
            return tiles.apply([blocks[number] for number in step.inputs])
        except DataError as error:
            raise _FailedInTiles from error
    specs = [child.spec for child in part.node.inputs]
    taken = [_taken(blocks[number], parts[number].region, region) for number, region in part.inputs]
    return part.node.function.apply(part.region, specs, taken)


def _taken(block: np.ndarray, whole: Region, region: Region) -> np.ndarray:
    """A region of a block; all of it, usually."""
    return block if region == whole else np.asarray(block[region.within(whole)])
