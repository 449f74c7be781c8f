"""Functions that compare arrays, for what only their values can tell."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import computation, converted, kind
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions


@dataclass(frozen=True)
class RequireEqual(Function):
    """The first input, if the second has the same values; otherwise an error."""

    name: ClassVar[str] = "require_equal"
    elementwise: ClassVar[bool] = True
    message: str

    def infer(self, ins: Specs) -> ArraySpec:
        first, other = ins
        if first.shape != other.shape:
            raise FunctionError(f"{self.message}: {first} is not {other}")
        return first

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        first, other = (converted(block, computation(block.dtype)) for block in blocks)
        differs = first != other
        if kind(first.dtype) in "fc" and kind(other.dtype) in "fc":
            differs &= ~(np.isnan(first) & np.isnan(other))
        count = int(np.count_nonzero(differs))
        if count:
            raise DataError(f"{self.message} ({count:,} of {differs.size:,} values here differ)")
        return blocks[0]


@in_expressions
def require_equal(x: Array, other: Array, message: str) -> Array:
    """`require_equal(x, other, message)`: `x`, if `other` has the same values; otherwise an error.

    Use it where a rule leaves out `other` because it is a copy of `x`, as the head of a model with tied
    embeddings is: `require_equal(x, source['lm_head.weight'], 'the head is not the embedding')`. Dtypes may
    differ, values may not; NaN equals NaN. Raises FunctionError for different shapes, and DataError, with the
    message and the number of elements that differ, for different values.
    """
    return apply(RequireEqual(message), x, other)
