"""Arithmetic of each element: operators, functions, conditions.

Floating types narrower than 32 bits are computed in float32: `infer` says what is computed,
`declared_dtype` what the user is told. Infinity and NaN come about as IEEE 754 has it, without warnings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import (
    computation,
    converted,
    declared_dtype_of,
    is_integer,
    kind,
    promoted,
    rank,
)
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.rounding import as_float
from ckpt_surgery.functions.base import Blocks, Function, Number, Operand, Specs
from ckpt_surgery.functions.dtypes import (
    number_as,
)
from ckpt_surgery.functions.integers import check_sign, exact

DType = np.dtype[Any]
Ufunc = Callable[..., Any]

_BOOL = np.dtype(np.bool_)
_FLOAT64 = np.dtype(np.float64)


def broadcast_shapes(shapes: Sequence[Shape], name: str) -> Shape:
    """NumPy's broadcasting. FunctionError where the shapes do not go together."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        told = " and ".join(str(list(shape)) for shape in shapes)
        raise FunctionError(f"`{name}`: shapes {told} do not broadcast") from None


def broadcast_needs(region: Region, shape: Shape) -> Region:
    """The region of an input of this shape that a region of the broadcast result needs."""
    skipped = len(region.starts) - len(shape)
    starts = region.starts[skipped:]
    sizes = region.shape[skipped:]
    first = tuple(0 if length == 1 else start for start, length in zip(starts, shape, strict=True))
    taken = (min(size, length) for size, length in zip(sizes, shape, strict=True))
    return Region(first, tuple(a + n for a, n in zip(first, taken, strict=True)))


@dataclass(frozen=True)
class Elementwise(Function):
    """Base of functions of arrays and numbers that broadcast against each other."""

    elementwise: ClassVar[bool] = True

    def operands(self) -> tuple[Number | None, ...]:
        """In order: a number, or None for the next of the inputs."""
        raise NotImplementedError

    def called(self) -> str:
        """The operator or the function's name, for messages."""
        return self.name

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        """What arrays and numbers are converted to. FunctionError where a number does not go with it."""
        work = promoted(dtypes, self.called())
        numbers = [number for number in self.operands() if number is not None]
        if work == _BOOL:
            return np.result_type(work, *(type(number) for number in numbers))
        for number in numbers:
            number_as(number, work)
        return work

    def compute(self, operands: Sequence[Any]) -> Any:
        """The result, of operands that were converted."""
        raise NotImplementedError

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        """What `compute` gives for arrays of these dtypes. FunctionError where it has no meaning."""
        empty = [np.empty(0, dtype) for dtype in dtypes]
        try:
            return np.asarray(self.compute(self._converted(dtypes, empty))).dtype
        except DataError as error:  # a number alone, zero say, is enough to tell
            raise FunctionError(*error.problems) from None
        except TypeError:
            told = " and ".join(dict.fromkeys(dtype.name for dtype in dtypes))
            raise FunctionError(f"`{self.called()}` has no meaning for {told}") from None

    def infer(self, ins: Specs) -> ArraySpec:
        shape = broadcast_shapes([spec.shape for spec in ins], self.called())
        return ArraySpec(shape, self.result_dtype([spec.dtype for spec in ins]))

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return declared_dtype_of(self.result_dtype(dtypes), dtypes)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(i, broadcast_needs(region, spec.shape)) for i, spec in enumerate(ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.compute(self._converted([spec.dtype for spec in ins], blocks)))

    def constant(self) -> Number:
        values = [np.asarray(number) for number in self.operands()]
        try:
            with np.errstate(all="raise", under="ignore"):
                value: Number = np.asarray(self.compute(values)).item()
        except (ArithmeticError, TypeError):
            told = ", ".join(map(str, self.operands()))
            raise FunctionError(f"{self.called()}({told}) is not a number") from None
        return value

    def _converted(self, dtypes: Sequence[DType], blocks: Blocks) -> list[Any]:
        """Numbers and blocks in order, in the work dtype."""
        work = self.work_dtype(dtypes)
        remaining = iter(blocks)
        return [
            converted(next(remaining), work) if number is None else number_as(number, work)
            for number in self.operands()
        ]


_BINARY: dict[str, Ufunc] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
}
_EXACT = ("+", "-", "*", "//", "**")
"""Operators that can give an integer which the operands' type does not hold."""


_COMPARISONS: dict[str, Ufunc] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True)
class Binary(Elementwise):
    """`left op right`, for arrays and numbers (a side that is None is an input).

    Operators are `+ - * / // % ** & |` and the comparisons, which give bool. Integers divided with `/` are
    float64. Raises FunctionError for what NumPy has no meaning for, DataError for an integer divided by
    zero or raised to a negative power, and for a result that an integer type does not hold.
    """

    kind: ClassVar[str] = "binary"
    parameters: ClassVar[tuple[str, ...] | None] = ("left", "right")
    op: str
    left: Operand = None
    right: Operand = None

    def __post_init__(self) -> None:
        if self.op not in _BINARY and self.op not in _COMPARISONS:
            raise FunctionError(f"there is no operator `{self.op}`")

    def operands(self) -> tuple[Number | None, ...]:
        return (self.left, self.right)

    def called(self) -> str:
        return self.op

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        if self.op == "/" and all(rank(dtype) < 2 for dtype in dtypes):
            return _FLOAT64
        return super().work_dtype(dtypes)

    def compute(self, operands: Sequence[Any]) -> Any:
        left, right = operands
        if self.op in _COMPARISONS:
            return _COMPARISONS[self.op](left, right)
        if rank(left.dtype) < 2 and self.op in ("//", "%") and not right.all():
            raise DataError(f"`{self.op}`: an integer is divided by zero")
        if is_integer(left.dtype) and self.op == "**" and (right < 0).any():
            raise DataError(
                "`**`: an integer is raised to a negative power", hint="Cast it to a float type first."
            )
        if is_integer(left.dtype) and self.op in _EXACT:
            return exact(self.op, _BINARY[self.op], left, right)
        return _BINARY[self.op](left, right)

    def _converted(self, dtypes: Sequence[DType], blocks: Blocks) -> list[Any]:
        if self.op not in _COMPARISONS:
            return super()._converted(dtypes, blocks)
        work = np.result_type(*map(computation, dtypes))
        remaining = iter(blocks)
        if all(rank(dtype) < 2 for dtype in dtypes):
            # NumPy compares integers of any two types, and any number with them, exactly.
            return [
                converted(block := next(remaining), computation(block.dtype)) if number is None else number
                for number in self.operands()
            ]
        return [
            converted(next(remaining) if number is None else np.asarray(as_float(number, work)), work)
            for number in self.operands()
        ]


@dataclass(frozen=True)
class Maximum(Elementwise):
    """`maximum(a, b)`: the larger of two arrays, or of an array and a number. NaN where either is NaN."""

    name: ClassVar[str] = "maximum"
    parameters: ClassVar[tuple[str, ...] | None] = ("a", "b")
    a: Operand = None
    b: Operand = None

    def operands(self) -> tuple[Number | None, ...]:
        return (self.a, self.b)

    def compute(self, operands: Sequence[Any]) -> Any:
        return np.maximum(*operands)


@dataclass(frozen=True)
class Minimum(Elementwise):
    """`minimum(a, b)`: the smaller of two arrays, or of an array and a number. NaN where either is NaN."""

    name: ClassVar[str] = "minimum"
    parameters: ClassVar[tuple[str, ...] | None] = ("a", "b")
    a: Operand = None
    b: Operand = None

    def operands(self) -> tuple[Number | None, ...]:
        return (self.a, self.b)

    def compute(self, operands: Sequence[Any]) -> Any:
        return np.minimum(*operands)


@dataclass(frozen=True)
class Where(Elementwise):
    """`where(condition, a, b)`: `a` where the bool array is true, `b` elsewhere; both may be numbers."""

    name: ClassVar[str] = "where"
    parameters: ClassVar[tuple[str, ...] | None] = ("condition", "a", "b")
    a: Operand = None
    b: Operand = None

    def operands(self) -> tuple[Number | None, ...]:
        return (self.a, self.b)

    def compute(self, operands: Sequence[Any]) -> Any:
        condition, a, b = operands
        return np.where(condition, a, b)

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        if dtypes[0] != _BOOL:
            raise FunctionError(f"`where`: the condition has to be bool, it is {dtypes[0].name}")
        if len(dtypes) > 1:
            return super().work_dtype(dtypes[1:])
        return np.result_type(*(type(number) for number in self.operands()))

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return declared_dtype_of(self.result_dtype(dtypes), dtypes[1:])

    def _converted(self, dtypes: Sequence[DType], blocks: Blocks) -> list[Any]:
        work = self.work_dtype(dtypes)
        remaining = iter(blocks[1:])
        values = (
            next(remaining) if number is None else number_as(number, work) for number in self.operands()
        )
        return [blocks[0], *(converted(value, work) for value in values)]


@dataclass(frozen=True)
class Clip(Elementwise):
    """`clip(x, min=None, max=None)`: values below `min` become `min`, values above `max` become `max`."""

    name: ClassVar[str] = "clip"
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "min", "max")
    x: Operand = None
    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise FunctionError("`clip` needs `min`, `max` or both")

    def operands(self) -> tuple[Number | None, ...]:
        return (self.x, *(bound for bound in (self.min, self.max) if bound is not None))

    def compute(self, operands: Sequence[Any]) -> Any:
        x, *bounds = operands
        if self.min is not None:
            x = np.maximum(x, bounds[0])
        return x if self.max is None else np.minimum(x, bounds[-1])


_UNARY: dict[str, Ufunc] = {
    "neg": np.negative,
    "not": np.logical_not,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "exp": np.exp,
    "log": np.log,
}
_SIGNED = {"neg": "`neg`: -({})", "abs": "`abs`: abs({})"}
"""What loses its sign, and how it is told with a number."""


@dataclass(frozen=True)
class Unary(Elementwise):
    """`-x`, for types with a sign; `~x`, for bool arrays; and functions of one array or number.

    Roots, `exp` and `log` of integers are float64. DataError for the negative of the smallest integer.
    """

    kind: ClassVar[str] = "unary"
    parameters: ClassVar[tuple[str, ...] | None] = ("x",)
    op: str = ""
    x: Operand = None

    def __post_init__(self) -> None:
        if self.op not in _UNARY:
            raise FunctionError(f"there is no operator `{self.op}`")

    def operands(self) -> tuple[Number | None, ...]:
        return (self.x,)

    def called(self) -> str:
        return self.op

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        letter = kind(dtypes[0])
        if (self.op == "not" and letter != "b") or (self.op == "neg" and letter in "bu"):
            raise FunctionError(f"`{self.op}` has no meaning for {dtypes[0].name}")
        if self.op in ("sqrt", "rsqrt", "exp", "log") and rank(dtypes[0]) < 2:
            return _FLOAT64
        return super().work_dtype(dtypes)

    def compute(self, operands: Sequence[Any]) -> Any:
        if self.op in _SIGNED and is_integer(operands[0].dtype):
            check_sign(_SIGNED[self.op], operands[0])
        # NumPy's vector loops and its scalar ones may differ in the last bit: one layout, one loop.
        return _UNARY[self.op](np.asarray(operands[0], order="C"))


@dataclass(frozen=True)
class Abs(Unary):
    """`abs(x)`; of complex numbers their magnitude. DataError for the smallest integer of a type."""

    name: ClassVar[str] = "abs"
    op: str = "abs"

    def constant(self) -> Number:
        assert self.x is not None, "a constant has no inputs"
        return abs(self.x)


@dataclass(frozen=True)
class Sqrt(Unary):
    """`sqrt(x)`; NaN below zero."""

    name: ClassVar[str] = "sqrt"
    op: str = "sqrt"


@dataclass(frozen=True)
class Rsqrt(Unary):
    """`rsqrt(x)` is `1 / sqrt(x)`."""

    name: ClassVar[str] = "rsqrt"
    op: str = "rsqrt"


@dataclass(frozen=True)
class Exp(Unary):
    """`exp(x)`."""

    name: ClassVar[str] = "exp"
    op: str = "exp"


@dataclass(frozen=True)
class Log(Unary):
    """`log(x)`, to base e."""

    name: ClassVar[str] = "log"
    op: str = "log"
