"""Quantization: weights as values of few bits, with floating-point scales."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, bits, computation, converted, is_integer, kind, limits
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.selections import Selection, as_array, distinct
from ckpt_surgery.functions.arrays import Array, apply, axes_of, broadcasts_to
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions
from ckpt_surgery.functions.dtypes import cast
from ckpt_surgery.functions.indexing import Copies
from ckpt_surgery.functions.operators import Binary

QUANTIZED = (
    *("int8", "int4", "int2"),
    *("float8_e4m3fn", "float8_e4m3", "float8_e5m2", "float8_e3m4"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float4_e2m1fn"),
)

PARTS = ("values", "scale")
_PER_CHANNEL = "Leave out `block` for a scale that broadcasts, such as `quantize` gives."
_BY_BLOCKS = "Give block=(128, 128) for a scale with one number per block, such as DeepSeek-V3 stores."


@dataclass(frozen=True)
class Quantize(Function):
    """A part of the symmetric quantization of the input: its `values` or its `scale`."""

    dtype: DType
    axis: int | tuple[int, ...] | None = None
    part: str = "values"

    def __post_init__(self) -> None:
        if self.dtype.name not in QUANTIZED:
            known = ", ".join(QUANTIZED)
            raise FunctionError(f"`quantize` does not support {self.dtype.name}; use one of {known}")

    def infer(self, ins: Specs) -> ArraySpec:
        spec = ins[0]
        if kind(spec.dtype) != "f":
            raise FunctionError(f"`quantize` needs a float dtype, not {spec.dtype.name}")
        axes = axes_of(self.axis, spec.ndim, self.name)
        if any(spec.shape[axis] == 0 for axis in axes):
            raise FunctionError(f"`quantize`: {spec} has no elements to compute a scale from")
        if self.part == "values":
            return ArraySpec(spec.shape, self.dtype)
        shape = tuple(1 if axis in axes else length for axis, length in enumerate(spec.shape))
        return ArraySpec(shape, computation(spec.dtype))

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axes = axes_of(self.axis, ins[0].ndim, self.name)
        return [(0, tuple(range(ins[0].shape[i]) if i in axes else p for i, p in enumerate(selection)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        [(_, read)] = self.needs(region, ins)
        block = converted(blocks[0], computation(ins[0].dtype))
        if not np.isfinite(block).all():
            raise DataError("`quantize`: the array has NaN or infinite values; replace them first (`where`)")
        largest = limits(self.dtype)[1]
        axes = axes_of(self.axis, ins[0].ndim, self.name)
        scale = np.asarray(np.abs(block).max(axis=axes, keepdims=True, initial=0) / block.dtype.type(largest))
        if self.part == "scale":
            return scale[tuple(slice(length) for length in region.shape)]
        # Where the scale is zero all values are zero, and dividing them by one keeps them so.
        ratio = block[region.within(read)] / np.where(scale == 0, 1, scale)
        clipped = np.clip(np.rint(ratio) if is_integer(self.dtype) else ratio, -largest, largest)
        return converted(clipped, self.dtype)


@in_expressions
def quantize(x: Array, dtype: DType, axis: int | tuple[int, ...] | None = None) -> list[Array]:
    """`quantize(x, dtype, axis=None)`: symmetric quantization without a zero point, as `[values, scale]`.

    `scale = max(abs(x)) / m` over an axis, several, or (None) all, which stay with length 1; `m` is the
    largest value of `dtype`, 127 for int8. `values = x / scale`, rounded to the nearest value of `dtype`,
    ties to even. Where all of `x` is zero, values and scale are zero. The scale is float32, or float64 if
    `x` is.

    Raises FunctionError if `x` does not have a float dtype, DataError if it contains NaN or infinity.
    """
    return [apply(Quantize(dtype, axis, part), x) for part in PARTS]


@in_expressions
def dequantize(
    x: Array, scale: Array, block: tuple[int, ...] | None = None, dtype: DType | None = None
) -> Array:
    """`dequantize(x, scale, block=None, dtype=None)`: the values `x` times their scale.

    The result has the dtype of the scale, or the float `dtype`: it is needed where the scale has powers of
    two alone, as float8_e8m0fnu. Without `block` the scale broadcasts against `x`, like the one that
    `quantize` gives. With `block`, the last axes of `x` are divided into blocks of these lengths (the last
    block of an axis can be shorter), and the scale has one number for each block. Leading axes are the same
    in both. For `block=(128, 128)` and `x` of shape `[m, n]` the scale has the shape `[ceil(m / 128),
    ceil(n / 128)]`, and the result is `x[i, j] * scale[i // 128, j // 128]`. DeepSeek-V3 stores its weights
    like this, as float8_e4m3fn `weight` and float32 `weight_scale_inv` (see its README_WEIGHTS.md, "FP8
    Weight Documentation").

    Raises FunctionError if the shapes do not fit together, or if the scale does not have a float dtype.
    """
    if dtype is not None and kind(dtype) != "f":
        raise FunctionError(f"`dequantize` gives a float dtype, not {dtype.name}")
    if kind(scale.dtype) != "f" or kind(x.dtype) not in "iuf":
        given = f"{x.spec} and {scale.spec}"
        raise FunctionError(f"`dequantize` needs integers or floats with a float scale, not {given}")
    block = block or ()
    if len(block) > x.ndim or min(block, default=1) < 1:
        message = f"`dequantize`: blocks of {block} do not fit an array of {x.ndim} axes"
        raise FunctionError(message, hint=_PER_CHANNEL)
    lengths = (1,) * (x.ndim - len(block)) + block  # leading axes are not divided
    expected = tuple(-(-n // length) for n, length in zip(x.shape, lengths, strict=True))
    if scale.shape != expected if block else not broadcasts_to(scale.shape, x.shape):
        wanted = f"of shape {list(expected)} for blocks of {block}" if block else "that broadcasts"
        message = f"`dequantize`: {x.spec} needs a scale {wanted}, but this one has shape {list(scale.shape)}"
        raise FunctionError(message, hint=_PER_CHANNEL if block else _BY_BLOCKS)
    # A block that is as long as the axis broadcasts.
    each = tuple(length if length < n else 1 for n, length in zip(x.shape, lengths, strict=True))
    factor = apply(Copies(each, (1,) * x.ndim), scale) if max(each, default=1) > 1 else scale
    if any(length > n for n, length in zip(x.shape, factor.shape[-x.ndim :], strict=False)):
        factor = factor[tuple(map(slice, map(min, x.shape, factor.shape)))]
    dtypes = [x.node.spec.dtype, scale.node.spec.dtype, dtype or scale.dtype]
    work = np.result_type(*map(computation, dtypes))
    values, factor = (a if a.node.spec.dtype == work else cast(a, work) for a in (x, factor))
    return Array(apply(Binary("*"), values, factor).node, dtype or scale.dtype)


PACKED = ("float4_e2m1fn", "int4", "uint4", "int2", "uint2")


@dataclass(frozen=True)
class Unpack(Function):
    """Numbers that bytes hold, several in each, those in the low bits first."""

    exact_inputs: ClassVar[bool] = True
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype.name not in PACKED:
            known = ", ".join(PACKED)
            raise FunctionError(f"`unpack` does not support {self.dtype.name}; use one of {known}")

    def infer(self, ins: Specs) -> ArraySpec:
        if ins[0].dtype.name not in ("uint8", "int8") or not ins[0].ndim:
            raise FunctionError(f"`unpack` needs bytes, uint8 or int8, along an axis, not {ins[0]}")
        return ArraySpec((*ins[0].shape[:-1], ins[0].shape[-1] * 8 // bits(self.dtype)), self.dtype)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, (*selection[:-1], distinct(as_array(selection[-1]) * bits(self.dtype) // 8)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        width = bits(self.dtype)
        count = 8 // width
        shifts = np.arange(0, 8, width, dtype=np.uint8)
        stored = blocks[0].view(np.uint8)
        parts = (stored[..., None] >> shifts) & np.uint8((1 << width) - 1)
        numbers = parts.reshape(*stored.shape[:-1], stored.shape[-1] * count)
        first = region.starts[-1] // count * count
        numbers = numbers[..., region.starts[-1] - first : region.stops[-1] - first]
        if kind(self.dtype) == "f":
            return numbers.view(self.dtype)
        if kind(self.dtype) == "i":
            sign = np.uint8(1 << (width - 1))
            numbers = ((numbers ^ sign) - sign).view(np.int8)
        return numbers.astype(self.dtype)


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
