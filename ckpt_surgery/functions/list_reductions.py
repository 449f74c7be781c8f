"""Functions that combine a list of arrays element by element."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import (
    converted,
    declared_dtype_of,
    is_integer,
    kind,
    promoted,
)
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.integers import check_list_sums, summation

DType = np.dtype[Any]


@dataclass(frozen=True)
class _OfList(Function):
    """Elementwise over a list of arrays of one shape: computed from the first to the last."""

    called: ClassVar[str] = ""
    elementwise: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...] | None] = ("*xs",)

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """One more array taken in."""
        raise NotImplementedError

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        """What is computed in; inputs are converted to it first."""
        return promoted(dtypes, self.called)

    def infer(self, ins: Specs) -> ArraySpec:
        for i, spec in enumerate(ins):
            if spec.shape != ins[0].shape:
                raise FunctionError(
                    f"`{self.called}`: array 0 is {ins[0]}, array {i} is {spec}; shapes have to be equal"
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
class SumOfList(_OfList):
    """`sum(xs)`, of the dtype of the first array that is not bool; bools alone are counted, in int64.

    Integers are added up in 64 bits. A sum that this dtype does not hold is a DataError;
    `cast(sum(xs), 'int64')` keeps all of it that 64 bits hold.
    """

    kind: ClassVar[str] = "sum_of_list"
    called: ClassVar[str] = "sum"

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        return summation(super().work_dtype(dtypes))

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(first + second)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        total = super().apply(region, ins, blocks)
        if is_integer(total.dtype):
            check_list_sums(self.called, blocks, total.dtype, region)
        return total


@dataclass(frozen=True)
class MeanOfList(_OfList):
    """`mean(xs)`: the sum divided by the number of arrays. Of integers and bools it is float64."""

    kind: ClassVar[str] = "mean_of_list"
    called: ClassVar[str] = "mean"

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        dtype = super().work_dtype(dtypes)
        return np.dtype(np.float64) if kind(dtype) in "biu" else dtype

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(first + second)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        total = super().apply(region, ins, blocks)
        return np.asarray(total / total.dtype.type(len(ins)))


@dataclass(frozen=True)
class MaxOfList(_OfList):
    """`max(xs)`. NaN where any array has NaN."""

    kind: ClassVar[str] = "max_of_list"
    called: ClassVar[str] = "max"

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(first, second))


@dataclass(frozen=True)
class MinOfList(_OfList):
    """`min(xs)`. NaN where any array has NaN."""

    kind: ClassVar[str] = "min_of_list"
    called: ClassVar[str] = "min"

    def combined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(first, second))
