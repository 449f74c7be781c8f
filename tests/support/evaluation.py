"""Evaluating one function on arrays, region by region, as the engine does."""

from collections.abc import Sequence

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.functions.base import Function


def spec_of(array: np.ndarray) -> ArraySpec:
    return ArraySpec(array.shape, array.dtype)


def evaluate(function: Function, arrays: Sequence[np.ndarray], region: Region | None = None) -> np.ndarray:
    """A region of the result, by default all of it, from copies of only the regions that it needs."""
    specs = [spec_of(array) for array in arrays]
    result = function.infer(specs)
    region = Region.whole(result.shape) if region is None else region
    blocks = []
    for i, needed in function.needs(region, specs):
        bounds = zip(needed.starts, needed.stops, specs[i].shape, strict=True)
        assert all(0 <= start <= stop <= length for start, stop, length in bounds), (needed, specs[i])
        block = np.array(arrays[i][needed.slices])
        block.flags.writeable = False  # functions are pure
        blocks.append(block)
    found = function.apply(region, specs, blocks)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == (region.shape, result.dtype)
    return found
