"""The reductions of a list of arrays of one shape, element by element: `sum(xs)`, `mean(xs)` and others."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, converted, is_integer, kind, promoted
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.integers import check_list_sums, summation

_COMBINED: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}


@dataclass(frozen=True)
class ListReduction(Function):
    """Elements at the same index of all inputs combined from first to last: `sum`, `mean`, `max` or `min`.

    Sums of integers are in 64 bits. Means of integers and bools are float64.
    """

    name: ClassVar[str] = "list_reduction"
    widens: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    op: str

    def called(self) -> str:
        return self.op

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        """The dtype of the computation, which inputs are converted to first."""
        dtype = promoted(dtypes, self.op)
        if self.op == "sum":
            return summation(dtype)
        return np.dtype(np.float64) if self.op == "mean" and kind(dtype) in "biu" else dtype

    def infer(self, ins: Specs) -> ArraySpec:
        for i, spec in enumerate(ins):
            if spec.shape != ins[0].shape:
                raise FunctionError(
                    f"`{self.op}`: array 0 is {ins[0]}, array {i} is {spec}; shapes have to be equal"
                )
        return ArraySpec(ins[0].shape, self.work_dtype([spec.dtype for spec in ins]))

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        dtype = self.work_dtype([spec.dtype for spec in ins])
        with np.errstate(all="ignore"):
            total = functools.reduce(_COMBINED[self.op], (converted(block, dtype) for block in blocks))
            if self.op == "mean":
                total = total / dtype.type(len(ins))
        if self.op == "sum" and is_integer(dtype):
            check_list_sums(self.op, blocks, dtype, region)
        return np.asarray(total)
