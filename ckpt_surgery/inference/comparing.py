"""Whether values are equal, element by element."""

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.blocks import read_regions
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.inference.formations import Formation
from ckpt_surgery.inference.reading import evaluated
from ckpt_surgery.inference.sides import Side
from ckpt_surgery.inference.values import node_of

MEMORY = 256 << 20
"""Bytes that comparing may take."""


def equal(made: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all elements are equal, bit for bit; NaN, of which there are many, equals NaN."""
    if made.tobytes() == wanted.tobytes():
        return True
    if made.dtype.kind not in "fcV":
        return False
    nan = made != made
    same = np.array_equal(nan, wanted != wanted)
    return bool(same and made[~nan].tobytes() == wanted[~nan].tobytes())


def equal_elements(one: Formation, source: Side, target: Side) -> bool:
    """Whether a formation makes its leaf of the target."""
    assert target.read is not None, "values are compared where there are values"
    leaf = target.leaves[one.target]
    assert leaf.spec is not None, "only arrays are compared"
    try:
        node = node_of(one.value, [source.leaves[key] for key in one.sources])
        if node.spec != ArraySpec(leaf.spec.shape, leaf.spec.dtype):
            return False
        return all(
            equal(evaluated(node, region, source), target.read(leaf, region))
            for region in read_regions(leaf, MEMORY)
        )
    except SurgeryError:
        return False  # an expression without a result for these leaves makes none
