"""Functions that sum or compare over axes: reductions, matrix products, `einsum`.

Every element of a result is computed from whole axes in an order that depends on nothing else, so a result
is the same, bit for bit, for any chunking. That rules BLAS out: its order depends on the block's shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import computation, converted, declared_dtype_of, is_integer, rank
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Selection
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.axes import axes_of
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.integers import bound, check_sums, summation
from ckpt_surgery.functions.list_reductions import MaxOfList, MeanOfList, MinOfList, SumOfList

DType = np.dtype[Any]
T = TypeVar("T")

_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Reduction(Function):
    """Base of functions over one axis, several, or all (None); `keepdims` leaves them at length 1."""

    parameters: ClassVar[tuple[str, ...] | None] = ("x", "axis", "keepdims")
    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False

    def work_dtype(self, dtype: DType) -> DType:
        """What the input is converted to."""
        return computation(dtype)

    def reduced(self, rows: np.ndarray) -> np.ndarray:
        """One value for each row of a contiguous matrix in the work dtype."""
        raise NotImplementedError

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(self._shape(ins[0].shape), self._result_dtype(ins[0].dtype))

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return declared_dtype_of(self._result_dtype(dtypes[0]), dtypes)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axes = self._axes(ins[0].ndim)
        outer = iter([p for i, p in enumerate(selection) if not (self.keepdims and i in axes)])
        return [(0, tuple(range(n) if axis in axes else next(outer) for axis, n in enumerate(ins[0].shape)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        if region.size == 0:  # of a kept axis, it may be, while the input has elements
            return np.empty(region.shape, self._result_dtype(ins[0].dtype))
        axes = self._axes(ins[0].ndim)
        kept = [axis for axis in range(ins[0].ndim) if axis not in axes]
        length = math.prod(ins[0].shape[axis] for axis in axes)
        last = converted(blocks[0].transpose((*kept, *axes)), self.work_dtype(ins[0].dtype))
        rows = np.ascontiguousarray(to_c_order(last)).reshape(region.size, length)
        self.check(rows, blocks[0], region)
        with np.errstate(all="ignore"):
            return self.reduced(rows).reshape(region.shape)

    def check(self, rows: np.ndarray, block: np.ndarray, region: Region) -> None:
        """DataError where a row's value cannot be told; `rows` are the block, converted."""

    def _axes(self, ndim: int) -> tuple[int, ...]:
        if self.axis is None:
            return tuple(range(ndim))
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        return tuple(sorted(axes_of(axes, ndim, self.name)))

    def _shape(self, shape: Shape) -> Shape:
        axes = self._axes(len(shape))
        return tuple(
            1 if axis in axes else length
            for axis, length in enumerate(shape)
            if self.keepdims or axis not in axes
        )

    def _result_dtype(self, dtype: DType) -> DType:
        return self.reduced(np.ones((1, 1), self.work_dtype(dtype))).dtype


@dataclass(frozen=True)
class Sum(Reduction):
    """`sum(x, axis=None, keepdims=False)`, of the dtype of `x`; bools are counted, in int64.

    Integers are added up in 64 bits. A sum that the dtype of `x` does not hold is a DataError;
    `cast(sum(x), 'int64')` keeps all of it that 64 bits hold.
    """

    name: ClassVar[str] = "sum"
    list_form: ClassVar[type[Function] | None] = SumOfList

    def work_dtype(self, dtype: DType) -> DType:
        return summation(computation(dtype))

    def reduced(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduce(rows, axis=1))

    def check(self, rows: np.ndarray, block: np.ndarray, region: Region) -> None:
        if is_integer(rows.dtype):
            check_sums(self.name, rows, bound(block), region)


def _fractional(dtype: DType) -> DType:
    """The computation type, float64 for integers and bools."""
    return computation(dtype) if rank(dtype) > 1 else _FLOAT64


@dataclass(frozen=True)
class Mean(Reduction):
    """`mean(x, axis=None, keepdims=False)`: the sum divided by the count. Of integers it is float64."""

    name: ClassVar[str] = "mean"
    list_form: ClassVar[type[Function] | None] = MeanOfList

    def work_dtype(self, dtype: DType) -> DType:
        return _fractional(dtype)

    def reduced(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduce(rows, axis=1) / rows.dtype.type(rows.shape[1]))


@dataclass(frozen=True)
class _Extreme(Reduction):
    def infer(self, ins: Specs) -> ArraySpec:
        if any(ins[0].shape[axis] == 0 for axis in self._axes(ins[0].ndim)):
            raise FunctionError(f"`{self.name}` of no elements: {ins[0]}")
        return super().infer(ins)


@dataclass(frozen=True)
class Max(_Extreme):
    """`max(x, axis=None, keepdims=False)`. NaN where there is one."""

    name: ClassVar[str] = "max"
    list_form: ClassVar[type[Function] | None] = MaxOfList

    def reduced(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum.reduce(rows, axis=1))


@dataclass(frozen=True)
class Min(_Extreme):
    """`min(x, axis=None, keepdims=False)`. NaN where there is one."""

    name: ClassVar[str] = "min"
    list_form: ClassVar[type[Function] | None] = MinOfList

    def reduced(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum.reduce(rows, axis=1))


@dataclass(frozen=True)
class Norm(Reduction):
    """`norm(x, axis=None, ord=2, keepdims=False)`: the vector norm over the axes, of all elements by default.

    `ord` is 1 (sum of magnitudes), 2 (root of the sum of squares) or 'inf' (largest magnitude).
    """

    name: ClassVar[str] = "norm"
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "axis", "ord", "keepdims")
    ord: int | str = 2

    def __post_init__(self) -> None:
        if self.ord not in (1, 2, "inf"):
            raise FunctionError(f"`norm`: ord is 1, 2 or 'inf', not {self.ord!r}")

    def work_dtype(self, dtype: DType) -> DType:
        return _fractional(dtype)

    def reduced(self, rows: np.ndarray) -> np.ndarray:
        sizes = np.abs(rows)
        if self.ord == "inf":
            return np.asarray(np.maximum.reduce(sizes, axis=1, initial=0))
        if self.ord == 1:
            return np.asarray(np.add.reduce(sizes, axis=1))
        return np.asarray(np.sqrt(np.add.reduce(sizes * sizes, axis=1)))
