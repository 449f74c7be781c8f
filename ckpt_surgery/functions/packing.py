"""Numbers of fewer than 8 bits that a checkpoint keeps several to a byte."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, bits, kind
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Selection, as_array, distinct
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions

PACKED = ("float4_e2m1fn", "int4", "uint4", "int2", "uint2")


@dataclass(frozen=True)
class Unpack(Function):
    """Numbers that bytes hold, several in each, those in the low bits first."""

    name: ClassVar[str] = "unpack"
    exact_inputs: ClassVar[bool] = True
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype.name not in PACKED:
            raise FunctionError(
                f"`unpack` does not support {self.dtype.name}; use one of {', '.join(PACKED)}"
            )

    def infer(self, ins: Specs) -> ArraySpec:
        if ins[0].dtype.name not in ("uint8", "int8") or not ins[0].ndim:
            raise FunctionError(f"`unpack` needs bytes, uint8 or int8, along an axis, not {ins[0]}")
        return ArraySpec((*ins[0].shape[:-1], ins[0].shape[-1] * self._count), self.dtype)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, (*selection[:-1], distinct(as_array(selection[-1]) // self._count)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        width, count = bits(self.dtype), self._count
        shifts = np.arange(0, 8, width, dtype=np.uint8)
        stored = blocks[0].view(np.uint8)
        numbers = ((stored[..., None] >> shifts) & np.uint8((1 << width) - 1)).reshape(
            *stored.shape[:-1], stored.shape[-1] * count
        )
        first = region.starts[-1] // count * count
        numbers = numbers[..., region.starts[-1] - first : region.stops[-1] - first]
        if kind(self.dtype) == "f":
            return numbers.view(self.dtype)
        if kind(self.dtype) == "i":
            sign = np.uint8(1 << (width - 1))
            numbers = ((numbers ^ sign) - sign).view(np.int8)
        return numbers.astype(self.dtype)

    @property
    def _count(self) -> int:
        """Numbers in a byte."""
        return 8 // bits(self.dtype)


@in_expressions
def unpack(x: Array, dtype: DType) -> Array:
    """`unpack(x, dtype)`: the numbers that bytes hold, several in each, those in the low bits first.

    `x` is uint8 or int8; `dtype` is float4_e2m1fn, int4 or uint4 (two to a byte), int2 or uint2 (four). The
    last axis becomes as many times longer. MXFP4 weights (Open Compute Project, "Microscaling Formats (MX)
    Specification", version 1.0) are `unpack(x, 'float4_e2m1fn')` times a power of two for each 32 elements,
    of which a byte has the exponent: `bitcast(scales, 'float8_e8m0fnu')`.

    Raises FunctionError for other dtypes, and for an array without axes.
    """
    return apply(Unpack(dtype), x)
