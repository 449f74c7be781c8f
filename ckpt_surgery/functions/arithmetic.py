"""Functions of each element that expressions call by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.dtypes import (
    converted,
    declared_dtype_of,
)
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Blocks, Number, Operand
from ckpt_surgery.functions.dtypes import (
    number_as,
)
from ckpt_surgery.functions.elementwise import Elementwise
from ckpt_surgery.functions.operators import Unary

DType = np.dtype[Any]

_BOOL = np.dtype(np.bool_)


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
