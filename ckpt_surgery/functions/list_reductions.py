"""Functions that combine a list of arrays of one shape element by element: `sum(xs)`, `mean(xs)` and
others."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, converted, declared_dtype_of, is_integer, kind, promoted
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.integers import check_list_sums, summation


@dataclass(frozen=True)
class ListReduction(Function):
    """Base class of elementwise functions of a list of arrays of one shape, combined from first to last."""

    shared_name: ClassVar[str] = ""
    """The name in expressions, where it is shared with the function of a single array."""
    elementwise: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...] | None] = ("*xs",)

    def called(self) -> str:
        return self.shared_name

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The result for the arrays so far (`first`) combined with the next array (`second`)."""
        raise NotImplementedError

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        """The dtype of the computation, which inputs are converted to first."""
        return promoted(dtypes, self.called())

    def infer(self, ins: Specs) -> ArraySpec:
        for i, spec in enumerate(ins):
            if spec.shape != ins[0].shape:
                raise FunctionError(
                    f"`{self.called()}`: array 0 is {ins[0]}, array {i} is {spec}; shapes have to be equal"
                )
        return ArraySpec(ins[0].shape, self.work_dtype([spec.dtype for spec in ins]))

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return declared_dtype_of(self.work_dtype(dtypes), dtypes)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(i, region) for i in range(len(ins))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        dtype = self.work_dtype([spec.dtype for spec in ins])
        with np.errstate(all="ignore"):
            total = functools.reduce(self.combined, (converted(block, dtype) for block in blocks))
        return np.asarray(total)


@dataclass(frozen=True)
class SumOfList(ListReduction):
    """`sum(xs)`: the sum of the arrays, with the dtype of the first array that is not bool.

    If all arrays are bool, the sum counts the true elements, in int64. Integers are added in 64 bits. Raises
    DataError if a sum is out of range of the result's dtype; `cast(sum(xs), 'int64')` keeps the 64-bit sum.
    """

    kind: ClassVar[str] = "sum_of_list"
    shared_name: ClassVar[str] = "sum"

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        return summation(super().work_dtype(dtypes))

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(first + second)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        total = super().apply(region, ins, blocks)
        if is_integer(total.dtype):
            check_list_sums(self.called(), blocks, total.dtype, region)
        return total


@dataclass(frozen=True)
class MeanOfList(ListReduction):
    """`mean(xs)`: the sum of the arrays divided by their number. For integers and bools it is float64."""

    kind: ClassVar[str] = "mean_of_list"
    shared_name: ClassVar[str] = "mean"

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        dtype = super().work_dtype(dtypes)
        return np.dtype(np.float64) if kind(dtype) in "biu" else dtype

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(first + second)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        total = super().apply(region, ins, blocks)
        return np.asarray(total / total.dtype.type(len(ins)))


@dataclass(frozen=True)
class MaxOfList(ListReduction):
    """`max(xs)`: the largest of the arrays' values for each element; NaN where any array has NaN."""

    kind: ClassVar[str] = "max_of_list"
    shared_name: ClassVar[str] = "max"

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(first, second))


@dataclass(frozen=True)
class MinOfList(ListReduction):
    """`min(xs)`: the smallest of the arrays' values for each element; NaN where any array has NaN."""

    kind: ClassVar[str] = "min_of_list"
    shared_name: ClassVar[str] = "min"

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(first, second))
