"""Operators of expressions, and functions of operands such as `sqrt` and `maximum`, element by element.

Floating types narrower than 32 bits are computed in float32: `infer` gives the dtype of the computation,
`declared_dtype` the dtype that the user sees. Infinity and NaN follow IEEE 754, without warnings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import (
    BOOL,
    DType,
    as_float,
    computation,
    converted,
    is_integer,
    kind,
    promoted,
    rank,
)
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import MARK, Blocks, Function, Number, Specs, in_expressions
from ckpt_surgery.functions.dtypes import number_as
from ckpt_surgery.functions.integers import check_sign, exact


def broadcast_shapes(shapes: Sequence[Shape], name: str) -> Shape:
    """The broadcast shape, by NumPy's rules. Raises FunctionError if the shapes do not broadcast."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise FunctionError(f"`{name}`: shapes {listed} do not broadcast") from None


@dataclass(frozen=True)
class Elementwise(Function):
    """Base class of functions of arrays and numbers that broadcast against each other."""

    name: ClassVar[str] = ""
    widens: ClassVar[bool] = True

    elementwise: ClassVar[bool] = True

    def operands(self) -> tuple[Number | None, ...]:
        """The operands in order: a number, or None for the next input."""
        raise NotImplementedError

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        """The dtype that arrays and numbers are converted to before they are combined.

        Raises FunctionError if there is no such dtype, or if it does not hold one of the numbers.
        """
        work = promoted(dtypes, self.called())
        numbers = [number for number in self.operands() if number is not None]
        if work == BOOL:
            return np.result_type(work, *(type(number) for number in numbers))
        for number in numbers:
            number_as(number, work)
        return work

    def compute(self, operands: Sequence[Any]) -> Any:
        """The result for operands that are already converted to the work dtype."""
        raise NotImplementedError

    def infer(self, ins: Specs) -> ArraySpec:
        shape = broadcast_shapes([spec.shape for spec in ins], self.called())
        try:
            empty = self.apply(Region.whole((0,)), ins, [np.empty(0, spec.dtype) for spec in ins])
        except DataError as error:  # a number in the recipe is enough to fail: an integer divided by 0
            raise FunctionError(*error.problems) from None
        except TypeError:
            names = " and ".join(dict.fromkeys(spec.dtype.name for spec in ins))
            raise FunctionError(f"`{self.called()}` has no meaning for {names}") from None
        return ArraySpec(shape, empty.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.compute(self._converted(blocks)))

    def constant(self) -> Number:
        values = [np.asarray(number) for number in self.operands()]
        try:
            with np.errstate(all="raise", under="ignore"):
                value: Number = np.asarray(self.compute(values)).item()
        except (ArithmeticError, TypeError):
            arguments = ", ".join(map(str, self.operands()))
            raise FunctionError(f"{self.called()}({arguments}) is not a number") from None
        return value

    def _converted(self, blocks: Blocks) -> list[Any]:
        """All operands, numbers and blocks, in order and in the work dtype."""
        work = self.work_dtype([block.dtype for block in blocks])
        remaining = iter(blocks)
        return [
            converted(next(remaining), work) if number is None else number_as(number, work)
            for number in self.operands()
        ]


_FLOAT64 = np.dtype(np.float64)

_COMPARISONS: dict[str, Any] = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal}
_COMPARISONS |= {">": np.greater, ">=": np.greater_equal}
_BINARY: dict[str, Any] = (
    {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": np.floor_divide}
    | {"%": np.remainder, "**": np.power, "&": np.bitwise_and, "|": np.bitwise_or}
    | {"maximum": np.maximum, "minimum": np.minimum}
    | _COMPARISONS
)
_EXACT = ("+", "-", "*", "//", "**")
"""Operators on integers whose result can be out of the range of the operands' dtype."""


@dataclass(frozen=True)
class Binary(Elementwise):
    """`left op right`, for arrays and numbers, with NumPy's broadcasting.

    Operators are `+ - * / // % ** & |` and the comparisons, which give bool. `/` of integers gives float64.
    Raises FunctionError for dtypes that NumPy's operator does not accept. Raises DataError if an integer is
    divided by zero or raised to a negative power, and if a result is out of the range of its integer dtype.
    """

    op: str
    left: Number | None = None
    right: Number | None = None

    def operands(self) -> tuple[Number | None, ...]:
        return (self.left, self.right)

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        if self.op == "/" and all(rank(dtype) < 2 for dtype in dtypes):
            return _FLOAT64
        return super().work_dtype(dtypes)

    def compute(self, operands: Sequence[Any]) -> Any:
        left, right = operands
        if self.op in ("//", "%") and rank(left.dtype) < 2 and not right.all():
            raise DataError(f"`{self.op}`: an integer is divided by zero")
        if self.op not in _EXACT or not is_integer(left.dtype):
            return _BINARY[self.op](left, right)
        if self.op == "**" and (right < 0).any():
            message = "`**`: an integer is raised to a negative power"
            raise DataError(message, hint="Cast it to a float type first.")
        return exact(self.op, _BINARY[self.op], left, right)

    def _converted(self, blocks: Blocks) -> list[Any]:
        if self.op not in _COMPARISONS:
            return super()._converted(blocks)
        dtypes, remaining = [block.dtype for block in blocks], iter(blocks)
        work = np.result_type(*map(computation, dtypes))
        if all(rank(dtype) < 2 for dtype in dtypes):
            # NumPy compares integers exactly, whatever their dtypes, and also with Python's numbers; but bool
            # arrays only with numbers of 64 bits.
            as_bytes = (block.view(np.uint8) if block.dtype == BOOL else block for block in blocks)
            remaining = (converted(block, computation(block.dtype)) for block in as_bytes)
            return [next(remaining) if number is None else number for number in self.operands()]
        return [
            converted(next(remaining) if number is None else np.asarray(as_float(number, work)), work)
            for number in self.operands()
        ]


_FLOATING: dict[str, Any] = {"sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos}
_FLOATING |= {"arccos": np.arccos, "rsqrt": lambda x: np.reciprocal(np.sqrt(x))}
"""Functions whose result for integers is float64."""
_UNARY: dict[str, Any] = {"neg": np.negative, "not": np.logical_not, "abs": np.abs, "sign": np.sign}
_UNARY |= _FLOATING
_SIGNED = {"neg": "`neg`: -({})", "abs": "`abs`: abs({})"}
"""Operations that turn a negative integer into a positive one: their text in messages, `{}` for the
number."""


@dataclass(frozen=True)
class Unary(Elementwise):
    """`-x` for signed dtypes, and `~x` for bool arrays.

    Raises FunctionError for other dtypes, and DataError for `-x` of the smallest integer of a dtype, whose
    negative the dtype does not hold.
    """

    op: str
    x: Number | None = None

    def operands(self) -> tuple[Number | None, ...]:
        return (self.x,)

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        if kind(dtypes[0]) in {"not": "iufc", "neg": "bu", "sign": "bc"}.get(self.op, ""):
            raise FunctionError(f"`{self.op}` has no meaning for {dtypes[0].name}")
        if self.op in _FLOATING and rank(dtypes[0]) < 2:
            return _FLOAT64
        return super().work_dtype(dtypes)

    def compute(self, operands: Sequence[Any]) -> Any:
        if self.op in _SIGNED and is_integer(operands[0].dtype):
            check_sign(_SIGNED[self.op], operands[0])
        # NumPy's vector and scalar loops can differ in the last bit, so the layout is always the same.
        return _UNARY[self.op](np.asarray(operands[0], order="C"))


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
        return super().work_dtype(dtypes) if dtypes else np.result_type(*map(type, self.operands()))

    def _converted(self, blocks: Blocks) -> list[Any]:
        if blocks[0].dtype != BOOL:
            raise FunctionError(f"`where`: the condition has to be bool, it is {blocks[0].dtype.name}")
        return [blocks[0], *super()._converted(blocks[1:])]


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
