"""Functions that change the dtype of an array: `cast` converts values, `bitcast` reinterprets bytes."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import (
    BOOL,
    DType,
    as_float,
    bits,
    computation,
    converted,
    dtype_named,
    has_infinity,
    has_nan,
    is_integer,
    kind,
    limits,
)
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites.axes import reinterpreted
from ckpt_surgery.core.selections import Selection, bounds
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import Blocks, Function, Number, Specs, in_expressions


@in_expressions
def is_inexact(dtype: DType) -> bool:
    """`is_inexact('bfloat16')`: whether a dtype has fractions, as floating-point and complex numbers have.

    False for integers and bool: `require(is_inexact(dtype), 'quantize weights, do not truncate them')`.
    """
    return kind(dtype_named(str(dtype))) in "fc"  # Python can give the name, too


def number_as(value: Number, dtype: DType) -> np.ndarray:
    """A number of the recipe as a read-only array of this dtype without axes.

    Raises FunctionError for a fraction as an integer dtype, and for a number out of the range of the dtype.
    """
    return _number_as(value, isinstance(value, float) and math.copysign(1, value) < 0, dtype)


@functools.lru_cache(maxsize=1024, typed=True)  # a rule has the same few numbers at thousands of leaves
def _number_as(value: Number, negative: bool, dtype: DType) -> np.ndarray:
    """The same; `negative` tells -0.0 and 0.0 apart, which are equal."""
    if is_integer(dtype) or kind(dtype) == "b":
        if not math.isfinite(value) or value != int(value):
            message = f"{value} is not an integer, but the array is {dtype.name}"
            raise FunctionError(message, hint="Cast the array first.")
        low, high = limits(dtype) if is_integer(dtype) else (0, 1)
        if not low <= value <= high:
            raise FunctionError(f"{value} is out of range of {dtype.name}, {low} to {high}")
        number = np.array(int(value), np.int64 if value < 0 else np.uint64).astype(dtype)
    else:
        try:
            number = Cast(dtype).apply(Region((), ()), (), [np.array(as_float(value, dtype))])
        except (DataError, OverflowError):
            raise FunctionError(f"{dtype.name} cannot represent {value}") from None
    number.flags.writeable = False
    return number


@functools.cache
def _always_fits(source: DType, target: DType) -> bool:
    """Whether no value of `source` is out of the range of `target`, NaN and infinity included."""
    if kind(target) == "b" or kind(source) == "b":
        return target.name != "float8_e8m0fnu"  # a dtype without zero
    if "c" in (kind(source), kind(target)):  # `infer` refuses casts of complex to real numbers
        return target.name == "complex128" or source.name in ("complex64", "float32")
    if (has_nan(source) and not has_nan(target)) or (has_infinity(source) and not has_infinity(target)):
        return False
    (low, high), (target_low, target_high) = limits(source), limits(target)
    return target_low <= low and high <= target_high


@dataclass(frozen=True)
class Cast(Function):
    """The values of the input converted to another dtype."""

    elementwise: ClassVar[bool] = True
    dtype: DType
    on_overflow: str = "error"

    def __post_init__(self) -> None:
        if self.on_overflow not in (known := ("error", "saturate", "inf")):
            guess = did_you_mean(self.on_overflow, known)
            message = f"on_overflow should be 'error', 'saturate' or 'inf', not '{self.on_overflow}'{guess}"
            raise FunctionError(f"`cast`: {message}")
        if self.on_overflow == "inf" and not (has_nan(self.dtype) or has_infinity(self.dtype)):
            message = f"`cast`: {self.dtype.name} has neither infinity nor NaN for on_overflow='inf'"
            raise FunctionError(message, hint="Use on_overflow='saturate'.")

    def infer(self, ins: Specs) -> ArraySpec:
        if kind(ins[0].dtype) == "c" and kind(self.dtype) not in "bc":
            names = f"{ins[0].dtype.name} to {self.dtype.name}"
            raise FunctionError(f"`cast` from {names} would drop the imaginary part")
        return ArraySpec(ins[0].shape, self.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = blocks[0]
        if block.dtype == self.dtype:
            return block
        # ml_dtypes cannot cast between some of its dtypes, so the values go through a dtype of NumPy's own.
        wide = converted(block, computation(block.dtype))
        if _always_fits(block.dtype, self.dtype) or _within_limits(wide, self.dtype):
            return converted(wide, self.dtype)
        return self._cast_checked(region, wide)

    def keeps_finite(self) -> bool:
        return self.on_overflow != "inf"

    def permits(self, result: np.ndarray) -> np.ndarray | None:
        if self.on_overflow != "inf":
            return None
        return np.asarray(~np.isfinite(converted(result, computation(self.dtype))))

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return manifests[0] if manifests[0].spec.dtype == self.dtype else None

    def _cast_checked(self, region: Region, wide: np.ndarray) -> np.ndarray:
        result = converted(wide, self.dtype)
        if self.on_overflow == "inf":
            return result
        lost = _lost(wide, result)
        if not lost.any():
            return result
        nan_is_lost = not has_nan(self.dtype) and bool(np.isnan(wide).any())
        if self.on_overflow == "error" or nan_is_lost or kind(self.dtype) == "c":
            places = np.flatnonzero(lost)
            offending = wide.ravel()[places]
            # The one of largest magnitude, or a NaN. Integers are compared as floats because abs(-128) of an
            # int8 overflows.
            sizes = np.abs(offending if kind(wide.dtype) in "fc" else offending.astype(np.float64))
            worst = np.unravel_index(places[np.argmax(sizes)], wide.shape)
            place = [start + int(i) for start, i in zip(region.starts, worst, strict=True)]
            where = f"{len(places):,} of {wide.size:,} values here"
            raise self.out_of_range(wide[worst], f"{where}, at {place}" if place else where)
        low, high = limits(self.dtype)
        result[lost] = np.where(wide[lost] < low, low, high).astype(self.dtype)
        return result

    def out_of_range(self, number: np.ndarray, where: str) -> DataError:
        """The error for a number that the dtype does not hold. `where`: how many there are, and its place."""
        clamps = not np.isnan(number).any() and kind(self.dtype) != "c"
        advice = "; on_overflow='saturate' clamps" if clamps else ""
        return DataError(f"cast to {self.dtype.name}: {overflow_reason(number, where, self.dtype)}{advice}")


@in_expressions
def cast(x: Array, dtype: DType, on_overflow: str = "error") -> Array:
    """`cast(x, dtype, on_overflow='error')`: the values of `x` converted to another dtype.

    Floats are rounded once, to the nearest value, ties to even. Floats cast to integers lose their fraction.
    As bool, zero is false and everything else is true. NaN and infinity are kept. `on_overflow` says what
    happens to values that are out of the range of `dtype` after rounding, and to NaN and infinity if `dtype`
    lacks them:

    - `error`: DataError, with the value that is furthest out of range;
    - `saturate`: the nearest value of `dtype`; DataError for NaN, which has none;
    - `inf`: infinity, or NaN if `dtype` has no infinity. Raises FunctionError if `dtype` has neither.
    """
    return apply(Cast(dtype, on_overflow), x)


@dataclass(frozen=True)
class Rounded(Cast):
    """The result of an expression, computed in a wider dtype, rounded to its declared dtype.

    No call makes one. The planner adds it where such a result is stored or reinterpreted as bytes.
    """

    def permits(self, result: np.ndarray) -> np.ndarray | None:
        return None  # numbers out of range are infinite for now, and refused in results

    def out_of_range(self, number: np.ndarray, where: str) -> DataError:
        hint = f"Write cast(…, '{number.dtype.name}') around the value to keep it as it was computed."
        if kind(self.dtype) != "c" and not np.isnan(number).any():
            hint += f" To clamp it, write cast(…, '{self.dtype.name}', on_overflow='saturate')."
        message = f"the result is {self.dtype.name}: {overflow_reason(number, where, self.dtype)}"
        return DataError(message, hint=hint)


def overflow_reason(number: np.ndarray, where: str, dtype: DType) -> str:
    """The reason why `dtype` does not hold a number."""
    if np.isnan(number).any():
        return f"the dtype has no NaN ({where}); replace it first (`where`)"
    low, high = limits(np.empty(0, dtype).real.dtype)
    return f"{number.item()!r} is out of range, {low} to {high} ({where})"


def _within_limits(block: np.ndarray, dtype: DType) -> bool:
    """Whether all values fit because the smallest and the largest do. False: each has to be checked."""
    if block.size == 0 or kind(block.dtype) == "c" or dtype.name == "float8_e8m0fnu":
        return block.size == 0
    lowest, highest = block.min().item(), block.max().item()
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        return False
    if is_integer(dtype):
        lowest, highest = math.trunc(lowest), math.trunc(highest)
    low, high = limits(dtype)
    return bool(low <= lowest and highest <= high)


def _lost(wide: np.ndarray, result: np.ndarray) -> np.ndarray:
    """A mask of the values of `wide` that are out of the range of the dtype of `result`, their cast."""
    dtype = result.dtype
    if has_nan(dtype):
        gone: np.ndarray = ~np.isfinite(result) & np.isfinite(wide)
        return gone if has_infinity(dtype) else gone | np.isinf(wide)
    low, high = limits(dtype)
    if not is_integer(dtype):
        # Rounding takes values beyond `high` from half-way between it and the next power of two on.
        half_way = (high + 2.0 ** math.ceil(math.log2(high))) / 2
        return np.asarray(~((wide > -half_way) & (wide < half_way)))
    if is_integer(wide.dtype):
        return np.asarray((wide < low) | (wide > high))
    whole = np.trunc(wide)
    # high + 1 is a power of two, exact as a float. NaN compares false, so it counts as outside.
    return np.asarray(~((whole >= float(low)) & (whole < float(high + 1))))


@dataclass(frozen=True)
class Bitcast(Function):
    """The bytes of the input interpreted as another dtype."""

    exact_inputs: ClassVar[bool] = True
    reinterprets: ClassVar[bool] = True
    dtype: DType

    def infer(self, ins: Specs) -> ArraySpec:
        spec = ins[0]
        if self.dtype == BOOL or any(bits(d) != 8 * d.itemsize for d in (spec.dtype, self.dtype)):
            names = f"{spec.dtype.name} to {self.dtype.name}"
            raise FunctionError(f"`bitcast` from {names}: not every byte is a value of both")
        old, new = spec.dtype.itemsize, self.dtype.itemsize
        if old == new:
            return ArraySpec(spec.shape, self.dtype)
        if not spec.shape or spec.shape[-1] * old % new:
            items = f"items of {self.dtype.name} ({new} bytes)"
            raise FunctionError(f"`bitcast`: the last axis of {spec} does not divide into {items}")
        return ArraySpec((*spec.shape[:-1], spec.shape[-1] * old // new), self.dtype)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        old, new = ins[0].dtype.itemsize, self.dtype.itemsize
        if old == new:
            return [(0, selection)]
        low, high = bounds(selection[-1])
        return [(0, (*selection[:-1], range(low * new // old, -(-high * new // old))))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        old, new = ins[0].dtype.itemsize, self.dtype.itemsize
        if old == new:
            return blocks[0].view(self.dtype)
        seen = np.ascontiguousarray(blocks[0]).view(self.dtype)
        first = region.starts[-1] * new // old * old // new
        return seen[..., region.starts[-1] - first : region.stops[-1] - first]

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return reinterpreted(manifests[0], self.infer([manifests[0].spec]))


@in_expressions
def bitcast(x: Array, dtype: DType) -> Array:
    """`bitcast(x, dtype)`: the bytes of `x` interpreted as another dtype, like `numpy.ndarray.view`.

    If the item sizes differ, the last axis becomes longer or shorter, as the bytes stay the same. Bytes are
    little-endian. Raises FunctionError for a cast to bool, for dtypes of less than a byte (int4,
    float4_e2m1fn), and for a last axis whose bytes are not a multiple of the new item size.
    """
    return apply(Bitcast(dtype), x)
