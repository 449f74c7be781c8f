"""Base class of functions that compute each element from the elements at the same index of their inputs.

Floating types narrower than 32 bits are computed in float32: `infer` gives the dtype of the computation,
`declared_dtype` the dtype that the user sees. Infinity and NaN follow IEEE 754, without warnings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import BOOL, DType, converted, declared_dtype_of, promoted
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions.base import Blocks, Function, Number, Specs
from ckpt_surgery.functions.dtypes import number_as


def broadcast_shapes(shapes: Sequence[Shape], name: str) -> Shape:
    """The broadcast shape, by NumPy's rules. Raises FunctionError if the shapes do not broadcast."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        told = " and ".join(str(list(shape)) for shape in shapes)
        raise FunctionError(f"`{name}`: shapes {told} do not broadcast") from None


def broadcast_needs(region: Region, shape: Shape) -> Region:
    """The region of an input of this shape that a region of the broadcast result is computed from."""
    skipped = len(region.starts) - len(shape)
    starts = region.starts[skipped:]
    sizes = region.shape[skipped:]
    first = tuple(0 if length == 1 else start for start, length in zip(starts, shape, strict=True))
    taken = (min(size, length) for size, length in zip(sizes, shape, strict=True))
    return Region(first, tuple(a + n for a, n in zip(first, taken, strict=True)))


@dataclass(frozen=True)
class Elementwise(Function):
    """Base class of functions of arrays and numbers that broadcast against each other."""

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

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        """The dtype of `compute` for arrays of these dtypes. Raises FunctionError if they cannot be
        combined."""
        empty = [np.empty(0, dtype) for dtype in dtypes]
        try:
            return np.asarray(self.compute(self._converted(dtypes, empty))).dtype
        except DataError as error:  # a number in the recipe is enough to fail: an integer divided by 0
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
        """All operands, numbers and blocks, in order and in the work dtype."""
        work = self.work_dtype(dtypes)
        remaining = iter(blocks)
        return [
            converted(next(remaining), work) if number is None else number_as(number, work)
            for number in self.operands()
        ]
