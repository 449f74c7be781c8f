"""Elementwise functions that expressions call by name, and a comparison that fails where values differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import BOOL, DType, computation, converted, kind
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import MARK, Blocks, Function, Number, Specs, in_expressions
from ckpt_surgery.functions.dtypes import number_as
from ckpt_surgery.functions.operators import Binary, Elementwise, Unary


def _combined(function: Elementwise, *operands: Array | Number | None) -> Any:
    """An elementwise function of those operands that are arrays; a number if none is."""
    arrays = [operand for operand in operands if isinstance(operand, Array)]
    return apply(function, *arrays) if arrays else function.constant()


def _number(operand: Array | Number) -> Number | None:
    return None if isinstance(operand, Array) else operand


@in_expressions
def maximum(a: Array | Number, b: Array | Number) -> Any:
    """`maximum(a, b)`: the larger of two arrays, or of an array and a number, for each element.

    The result is NaN where either is NaN.
    """
    return _combined(Binary("maximum", _number(a), _number(b)), a, b)


@in_expressions
def minimum(a: Array | Number, b: Array | Number) -> Any:
    """`minimum(a, b)`: the smaller of two arrays, or of an array and a number, for each element.

    The result is NaN where either is NaN.
    """
    return _combined(Binary("minimum", _number(a), _number(b)), a, b)


@in_expressions
def clip(x: Array | Number, min: Number | None = None, max: Number | None = None) -> Any:
    """`clip(x, min=None, max=None)`: values below `min` become `min`, values above `max` become `max`.

    At least one of the two has to be given. NaN stays NaN.
    """
    if min is None and max is None:
        raise FunctionError("`clip` needs `min`, `max` or both")
    raised = x if min is None else maximum(x, min)
    return raised if max is None else minimum(raised, max)


def selected(condition: np.ndarray, a: Any, b: Any) -> Any:
    """`np.where` for values of one dtype, in a tenth of the time where the condition follows no pattern.

    Its bits are chosen by masks, as processors guess wrong in every second branch.
    """
    first, second = np.asarray(a), np.asarray(b)
    shape = np.broadcast_shapes(condition.shape, first.shape, second.shape)
    alike = first.dtype == second.dtype and condition.shape == shape and bool(shape)
    if not alike or first.dtype.itemsize > 8:
        return np.where(condition, a, b)
    signed = np.dtype(f"i{first.dtype.itemsize}")
    chosen = np.negative(condition.view(np.int8), dtype=signed)
    chosen &= first.view(signed) ^ second.view(signed)
    chosen ^= second.view(signed)
    return chosen.view(first.dtype)


@dataclass(frozen=True)
class Where(Elementwise):
    """The element of `a` where the condition, the first input, is true, that of `b` elsewhere."""

    name: ClassVar[str] = "where"
    a: Number | None = None
    b: Number | None = None

    def operands(self) -> tuple[Number | None, ...]:
        return (self.a, self.b)

    def compute(self, operands: Sequence[Any]) -> Any:
        return selected(*operands)

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        remaining = iter(marks[1:])
        first, second = (next(remaining) if number is None else MARK.type(0) for number in self.operands())
        return np.array(np.broadcast_to(np.where(blocks[0], first, second), region.shape))

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        if dtypes[0] != BOOL:
            raise FunctionError(f"`where`: the condition has to be bool, it is {dtypes[0].name}")
        if len(dtypes) > 1:
            return super().work_dtype(dtypes[1:])
        return np.result_type(*(type(number) for number in self.operands()))

    def _converted(self, dtypes: Sequence[DType], blocks: Blocks) -> list[Any]:
        if len(dtypes) > 1:
            return [blocks[0], *super()._converted(dtypes, blocks[1:])]
        work = self.work_dtype(dtypes)
        return [blocks[0], *(number_as(number or 0, work) for number in self.operands())]


@in_expressions
def where(condition: Array, a: Array | Number, b: Array | Number) -> Array:
    """`where(condition, a, b)`: the element of `a` where the condition is true, that of `b` elsewhere.

    The condition is a bool array; `a` and `b` are arrays or numbers. All broadcast against each other.
    """
    return apply(Where(_number(a), _number(b)), *[v for v in (condition, a, b) if isinstance(v, Array)])


@in_expressions
def abs_(x: Array | Number) -> Any:
    """`abs(x)`: the absolute value; for complex numbers, the magnitude.

    Raises DataError for the smallest integer of a dtype, whose absolute value the dtype does not hold.
    """
    return apply(Unary("abs"), x) if isinstance(x, Array) else abs(x)


def _unary(name: str, text: str) -> Callable[[Array | Number], Any]:
    """The function of this name, whose documentation continues with `text`."""

    def function(x: Array | Number) -> Any:
        return _combined(Unary(name, _number(x)), x)

    function.__name__, function.__doc__ = name, f"`{name}(x)`: {text}"
    return in_expressions(function)


sqrt = _unary("sqrt", "the square root; NaN for negative numbers. The square root of integers is float64.")
rsqrt = _unary("rsqrt", "one divided by the square root, `1 / sqrt(x)`. For integers it is float64.")
exp = _unary("exp", "e to the power of `x`. For integers it is float64.")
log = _unary(
    "log", "the natural logarithm; -inf for 0 and NaN for negative numbers. For integers it is\nfloat64."
)
sin = _unary("sin", "the sine of an angle in radians. For integers it is float64.")
cos = _unary("cos", "the cosine of an angle in radians. For integers it is float64.")
arccos = _unary(
    "arccos",
    "the angle in radians, from 0 to π, whose cosine is `x`; NaN outside of -1 to 1.\n\n"
    "For integers it is float64. A cosine that was computed can be a little above 1: "
    "`arccos(clip(x, -1, 1))`.",
)
sign = _unary("sign", "-1, 0 or 1, with the dtype of `x`; NaN for NaN. Not for bools and complex numbers.")


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
