"""Weights as few-bit values with scales."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import computation, converted, is_integer, kind, limits
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.selections import Selection, as_array, broadcast, distinct
from ckpt_surgery.functions.axes import axes_of
from ckpt_surgery.functions.base import Blocks, Function, Specs

DType = np.dtype[Any]

_TARGETS = (
    *("int8", "int4", "int2"),
    *("float8_e4m3fn", "float8_e4m3", "float8_e5m2", "float8_e3m4"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float4_e2m1fn"),
)

_PER_CHANNEL = "A scale that broadcasts, as `quantize` makes it, goes without `block`."
_BY_BLOCKS = "A scale of one number per block, as DeepSeek-V3 stores it, goes with block=(128, 128)."


@dataclass(frozen=True)
class Quantize(Function):
    """`quantize(x, dtype, axis=None)` gives `[values, scale]`: symmetric, without a zero point.

    `scale = max|x| / largest value of dtype` over `axis` (an axis, several, or all), which stays with length
    1; for int8 the largest value is 127. `values = x / scale`, rounded to nearest even. Where all of `x` is
    zero so are scale and values. The scale is float32, float64 where `x` is.

    Raises FunctionError where `x` is not of a float type, DataError where it holds NaN or infinity.
    """

    name: ClassVar[str] = "quantize"
    parts: ClassVar[tuple[str, ...]] = ("values", "scale")
    dtype: DType
    axis: int | tuple[int, ...] | None = None
    part: str = "values"

    def __post_init__(self) -> None:
        if self.part not in self.parts:
            raise FunctionError(f"`quantize` has no part `{self.part}`")
        if self.dtype.name not in _TARGETS:
            raise FunctionError(
                f"`quantize` to {self.dtype.name} is not known; it can be {', '.join(_TARGETS)}"
            )

    def infer(self, ins: Specs) -> ArraySpec:
        spec = ins[0]
        if kind(spec.dtype) != "f":
            raise FunctionError(f"`quantize` is for float types, not {spec.dtype.name}")
        axes = self._axes(spec.ndim)
        if any(spec.shape[axis] == 0 for axis in axes):
            raise FunctionError(f"`quantize`: there is no largest value of no elements: {spec}")
        if self.part == "values":
            return ArraySpec(spec.shape, self.dtype)
        shape = tuple(1 if axis in axes else length for axis, length in enumerate(spec.shape))
        return ArraySpec(shape, computation(spec.dtype))

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return self.dtype if self.part == "values" else computation(dtypes[0])

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axes = self._axes(ins[0].ndim)
        return [(0, tuple(range(ins[0].shape[i]) if i in axes else p for i, p in enumerate(selection)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        [(_, read)] = self.needs(region, ins)
        block = converted(blocks[0], computation(ins[0].dtype))
        if not np.isfinite(block).all():
            raise DataError("`quantize`: there are NaN or infinite values; replace them first (`where`)")
        largest = limits(self.dtype)[1]
        axes = self._axes(ins[0].ndim)
        scale = np.asarray(np.abs(block).max(axis=axes, keepdims=True, initial=0) / block.dtype.type(largest))
        if self.part == "scale":
            return scale[tuple(slice(length) for length in region.shape)]
        # A scale of zero has values of zero, whatever they are divided by.
        ratio = block[region.within(read)] / np.where(scale == 0, 1, scale)
        clipped = np.clip(np.rint(ratio) if is_integer(self.dtype) else ratio, -largest, largest)
        return converted(clipped, self.dtype)

    def _axes(self, ndim: int) -> tuple[int, ...]:
        if self.axis is None:
            return tuple(range(ndim))
        return axes_of(self.axis if isinstance(self.axis, tuple) else (self.axis,), ndim, self.name)


@dataclass(frozen=True)
class Dequantize(Function):
    """`dequantize(x, scale, block=None)`: values times their scale, in the scale's dtype.

    The scale broadcasts against `x`, as `quantize` makes it. With `block` the last axes of `x` are cut into
    blocks of these lengths, the last ones maybe smaller, and the scale has one number for each: of
    `block=(128, 128)` it is `[ceil(m/128), ceil(n/128)]`, for `x[i, j] * scale[i // 128, j // 128]`. That is
    what DeepSeek-V3 stores as float8_e4m3fn `weight` and float32 `weight_scale_inv` (its README_WEIGHTS.md,
    "FP8 Weight Documentation"). Axes before those are the same in both.

    Raises FunctionError where shapes do not agree, or where the scale is not of a float type.
    """

    name: ClassVar[str] = "dequantize"
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "scale", "block")
    block: tuple[int, ...] | None = None

    def infer(self, ins: Specs) -> ArraySpec:
        x, scale = ins
        if kind(scale.dtype) != "f" or kind(x.dtype) not in "iuf":
            raise FunctionError(f"`dequantize` is for numbers and float scales, not {x} and {scale}")
        expected = self._scale_shape(x.shape)
        fits = scale.shape == expected if self.block else _broadcasts(scale.shape, x.shape)
        if not fits:
            told = (
                f"of shape {list(expected)} for blocks of {self.block}" if self.block else "that broadcasts"
            )
            raise FunctionError(
                f"`dequantize`: {x} needs a scale {told}, this one is {list(scale.shape)}",
                hint=_PER_CHANNEL if self.block else _BY_BLOCKS,
            )
        return ArraySpec(x.shape, self._work(ins))

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return dtypes[1]

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        if self.block is None:
            return [(0, selection), (1, broadcast(selection, ins[1].shape))]
        lengths = self._lengths(ins[0].ndim)
        blocks = tuple(
            distinct(as_array(p) // n) if n > 1 else p for p, n in zip(selection, lengths, strict=True)
        )
        return [(0, selection), (1, blocks)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        values, scale = (converted(block, self._work(ins)) for block in blocks)
        if self.block is not None:
            for axis, length in enumerate(self._lengths(ins[0].ndim)):
                start, stop = region.starts[axis], region.stops[axis]
                scale = np.take(scale, np.arange(start, stop) // length - start // length, axis=axis)
        with np.errstate(all="ignore"):
            return np.asarray(values * scale)

    def _work(self, ins: Specs) -> DType:
        return np.result_type(*(computation(spec.dtype) for spec in ins))

    def _lengths(self, ndim: int) -> Shape:
        """The block's length along every axis of `x`."""
        block = self.block or ()
        if len(block) > ndim or min(block, default=1) < 1:
            raise FunctionError(
                f"`dequantize`: blocks of {block} for an array of {ndim} axes",
                hint=_PER_CHANNEL if len(block) > ndim else None,
            )
        return (1,) * (ndim - len(block)) + block

    def _scale_shape(self, shape: Shape) -> Shape:
        return tuple(-(-n // length) for n, length in zip(shape, self._lengths(len(shape)), strict=True))


def _broadcasts(scale: Shape, shape: Shape) -> bool:
    """Whether a scale of this shape broadcasts against an array without making it larger."""
    tail = shape[len(shape) - len(scale) :]
    return len(scale) <= len(shape) and all(s in (1, n) for s, n in zip(scale, tail, strict=True))
