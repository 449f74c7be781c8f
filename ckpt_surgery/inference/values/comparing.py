"""Whether values are equal, element by element."""

from collections.abc import Iterator

import numpy as np

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Node, Read
from ckpt_surgery.inference.expressions.formations import Formation
from ckpt_surgery.inference.values.reading import budget, evaluated, node_of
from ckpt_surgery.inference.values.sides import Side
from ckpt_surgery.planner.cutting import side_by_side

ELEMENTS = 1 << 16
"""Number of elements that are compared at once."""


def equal(made: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all elements are equal, bit for bit; NaN, of which there are many, equals NaN."""
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return False
    flags = ["external_loop", "buffered", "zerosize_ok"]
    pairs = np.nditer([made, wanted], flags, buffersize=ELEMENTS)  # type: ignore[arg-type]
    return all(_equal(one, other) for one, other in pairs)


def _equal(made: np.ndarray, wanted: np.ndarray) -> bool:
    if made.tobytes() == wanted.tobytes():
        return True
    if made.dtype.kind not in "fcV":
        return False
    nan = made != made
    same = np.array_equal(nan, wanted != wanted)
    return bool(same and made[~nan].tobytes() == wanted[~nan].tobytes())


def makes(value: Node, leaf: Leaf, source: Side, target: Side) -> bool:
    """Whether a value over the leaves of the source is what a leaf of the target holds.

    Raises SurgeryError where the value has no result.
    """
    assert target.read is not None, "values are compared where there are values"
    if value.spec != leaf.spec:
        return False
    return all(
        equal(evaluated(value, region, source), target.read(leaf, region))
        for region in _regions(value, leaf, source)
    )


def _regions(value: Node, leaf: Leaf, source: Side) -> Iterator[Region]:
    block = side_by_side([value, Read("target", leaf)], budget(source))
    return chunk_regions(value.spec.shape, block)


def equal_elements(one: Formation, source: Side, target: Side) -> bool:
    """Whether a formation makes its leaf of the target."""
    leaf = target.leaves[one.target]
    try:
        node = node_of(one.value, [source.leaves[key] for key in one.sources])
        return makes(node, leaf, source, target)
    except SurgeryError:
        return False  # an expression without a result for these leaves makes none
