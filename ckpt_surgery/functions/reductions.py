"""Reductions over axes, or of a list: `sum`, `mean`, `max`, `min`; `norm`; and means of directions.

Each element of a result is computed from all elements along the reduced axes, in an order that depends only
on their number. So a result is the same, bit for bit, for any chunking. A reduction over all axes is computed
in a stream: floats in float64, by blocks and in their order, and rounded once.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, computation, converted, is_integer, kind, promoted, rank
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Selection
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions import integers
from ckpt_surgery.functions.arrays import Array, apply, axes_of, check_alike
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions
from ckpt_surgery.functions.streams import Folded, Pass, streamed

Axes = int | tuple[int, ...] | None
_FLOAT64 = np.dtype(np.float64)
_COMBINED: Mapping[str, Any] = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Reduction(Function):
    """Base class of functions over an axis, several, or all (None); `keepdims` keeps these with length 1."""

    name: ClassVar[str] = ""
    widens: ClassVar[bool] = True

    axis: Axes = None
    keepdims: bool = False

    def work_dtype(self, dtype: DType) -> DType:
        """The dtype of the computation, which the input is converted to first."""
        return computation(dtype)

    def partial(self, rows: np.ndarray) -> np.ndarray:
        """One value for each row of a contiguous matrix of the work dtype, or of float64: here its sum."""
        return np.asarray(np.add.reduce(rows, axis=1))

    def joined(self, first: Any, second: Any) -> Any:
        """The partial value of two runs of elements, from those of each."""
        return first + second

    def finished(self, totals: np.ndarray, count: int) -> np.ndarray:
        """The results for partial values of this many elements each."""
        return totals

    def infer(self, ins: Specs) -> ArraySpec:
        axes = self._axes(ins[0].ndim)
        lengths = enumerate(ins[0].shape)
        kept = tuple(1 if i in axes else n for i, n in lengths if self.keepdims or i not in axes)
        one: np.ndarray = np.ones((1, 1), self.work_dtype(ins[0].dtype))
        return ArraySpec(kept, np.asarray(self.finished(self.partial(one), 1)).dtype)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axes = self._axes(ins[0].ndim)
        outer = iter([p for i, p in enumerate(selection) if not (self.keepdims and i in axes)])
        return [(0, tuple(range(n) if axis in axes else next(outer) for axis, n in enumerate(ins[0].shape)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        if region.size == 0:  # the block may have elements: along the reduced axes it is whole
            return np.empty(region.shape, self.infer(ins).dtype)
        stream = self.stream(ins)
        if stream is not None:
            return streamed(stream, blocks[0])
        axes = self._axes(ins[0].ndim)
        kept = [axis for axis in range(ins[0].ndim) if axis not in axes]
        length = math.prod(ins[0].shape[axis] for axis in axes)
        last = converted(blocks[0].transpose((*kept, *axes)), self.work_dtype(ins[0].dtype))
        rows = np.ascontiguousarray(to_c_order(last)).reshape(region.size, length)
        self.check(rows, blocks[0], region)
        with np.errstate(all="ignore"):
            return np.asarray(self.finished(self.partial(rows), length)).reshape(region.shape)

    def stream(self, ins: Specs) -> Pass | None:
        spec = ins[0]
        if len(self._axes(spec.ndim)) < spec.ndim:
            return None
        whole = self.infer(ins)
        dtype = self.work_dtype(spec.dtype)
        wide = np.result_type(dtype, np.float64) if rank(dtype) > 1 else dtype

        def result(total: Any) -> np.ndarray:
            self.check_total(total, dtype, Region.whole(whole.shape))
            value = self.finished(np.asarray(0.0 if total is None else total), spec.size)
            return np.asarray(value).astype(whole.dtype).reshape(whole.shape)

        return Folded(lambda piece: self.folded(converted(piece, wide)), self.joined, result)

    def folded(self, piece: np.ndarray) -> Any:
        """The partial value of a vector of consecutive elements, floats in float64."""
        return self.partial(piece[None])[0]

    def check_total(self, total: Any, dtype: DType, region: Region) -> None:
        """Raises DataError if the value of all elements is out of range. `region` is all of the result."""

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        joined = np.bitwise_or.reduce(marks[0], axis=self._axes(ins[0].ndim))
        return np.asarray(joined).reshape(region.shape)

    def check(self, rows: np.ndarray, block: np.ndarray, region: Region) -> None:
        """Raises DataError if the value of a row is out of range; `rows` holds the elements of `block`."""

    def _axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(sorted(axes_of(self.axis, ndim, self.called())))


@dataclass(frozen=True)
class Sum(Reduction):
    """Sum over axes."""

    def work_dtype(self, dtype: DType) -> DType:
        return integers.summation(computation(dtype))

    def check(self, rows: np.ndarray, block: np.ndarray, region: Region) -> None:
        if is_integer(rows.dtype):
            integers.check_sums(self.name, rows, integers.bound(block), region)

    def folded(self, piece: np.ndarray) -> Any:
        return integers.exact_sums(piece[None])[0] if is_integer(piece.dtype) else super().folded(piece)

    def check_total(self, total: Any, dtype: DType, region: Region) -> None:
        if isinstance(total, int):
            integers.check_exact(self.name, np.array([total], object), dtype, region, 0)


@in_expressions
def sum_(x: Array | Sequence[Array], axis: Axes = None, keepdims: bool = False) -> Array:
    """`sum(x, axis=None, keepdims=False)`: the sum over an axis, several, or (None) all, with the dtype of
    `x`.

    The sum of bools is the number of true elements, in int64. Integers are added in 64 bits. Raises
    DataError if a sum is out of range of the result's dtype; `cast(sum(x), 'int64')` keeps the 64-bit sum.
    With `keepdims` the axes stay, with length 1.

    Of a list, `sum(xs)`: the sum of the arrays, with the dtype of the first array that is not bool.
    """
    return _reduced(Sum(axis, keepdims), x)


def _fractional(dtype: DType) -> DType:
    """The dtype in which fractions of values of this dtype are computed: float64 for integers and bools."""
    return computation(dtype) if rank(dtype) > 1 else _FLOAT64


@dataclass(frozen=True)
class Mean(Reduction):
    """Arithmetic mean over axes."""

    def work_dtype(self, dtype: DType) -> DType:
        return _fractional(dtype)

    def finished(self, totals: np.ndarray, count: int) -> np.ndarray:
        return np.asarray(totals / totals.dtype.type(count))


@in_expressions
def mean(x: Array | Sequence[Array], axis: Axes = None, keepdims: bool = False) -> Array:
    """`mean(x, axis=None, keepdims=False)`: the arithmetic mean over an axis, several, or (None) all.

    Of a list, `mean(xs)`: the sum of the arrays divided by their number. For integers and bools a mean is
    float64.
    """
    return _reduced(Mean(axis, keepdims), x)


@dataclass(frozen=True)
class Extreme(Reduction):
    """The largest or the smallest value over axes, which there is none of for no elements."""

    op: str = "max"

    def infer(self, ins: Specs) -> ArraySpec:
        if any(ins[0].shape[axis] == 0 for axis in self._axes(ins[0].ndim)):
            raise FunctionError(f"`{self.op}` has no value for {ins[0]}: it is over no elements")
        return super().infer(ins)

    def partial(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(_COMBINED[self.op].reduce(rows, axis=1))

    def joined(self, first: Any, second: Any) -> Any:
        return _COMBINED[self.op](first, second)


@in_expressions
def max_(x: Array | Sequence[Array], axis: Axes = None, keepdims: bool = False) -> Array:
    """`max(x, axis=None, keepdims=False)`: the largest value over an axis, several, or (None) all.

    NaN if any of the values is NaN. Raises FunctionError for an axis of length 0.

    Of a list, `max(xs)`: the largest of the arrays' values for each element; NaN where any array has NaN.
    """
    return _reduced(Extreme(axis, keepdims, "max"), x)


@in_expressions
def min_(x: Array | Sequence[Array], axis: Axes = None, keepdims: bool = False) -> Array:
    """`min(x, axis=None, keepdims=False)`: the smallest value over an axis, several, or (None) all.

    NaN if any of the values is NaN. Raises FunctionError for an axis of length 0.

    Of a list, `min(xs)`: the smallest of the arrays' values for each element; NaN where any array has NaN.
    """
    return _reduced(Extreme(axis, keepdims, "min"), x)


@dataclass(frozen=True)
class Norm(Reduction):
    """Vector norm over axes."""

    ord: int | str = 2

    def __post_init__(self) -> None:
        if self.ord not in (1, 2, "inf"):
            raise FunctionError(f"`norm`: ord should be 1, 2 or 'inf', not {self.ord!r}")

    def work_dtype(self, dtype: DType) -> DType:
        return _fractional(dtype)

    def partial(self, rows: np.ndarray) -> np.ndarray:
        sizes = np.abs(rows)
        if self.ord == "inf":
            return np.asarray(np.maximum.reduce(sizes, axis=1, initial=0))
        return np.asarray(np.add.reduce(sizes if self.ord == 1 else sizes * sizes, axis=1))

    def joined(self, first: Any, second: Any) -> Any:
        return np.maximum(first, second) if self.ord == "inf" else first + second

    def finished(self, totals: np.ndarray, count: int) -> np.ndarray:
        return np.sqrt(totals) if self.ord == 2 else totals


@in_expressions
def norm(x: Array, axis: Axes = None, ord: int | str = 2, keepdims: bool = False) -> Array:
    """`norm(x, axis=None, ord=2, keepdims=False)`: the vector norm over an axis, several, or (None) all.

    `ord` is 1 (the sum of magnitudes), 2 (the square root of the sum of squares) or 'inf' (the largest
    magnitude). For integers and bools the norm is float64.
    """
    return apply(Norm(axis, keepdims, ord), x)


def _reduced(function: Reduction, x: Array | Sequence[Array]) -> Array:
    """A reduction of an array, or that of a list, for which FunctionError is raised if an axis is given."""
    if isinstance(x, Array):
        return apply(function, x)
    name = function.called()
    if function.axis is not None or function.keepdims:
        raise FunctionError(f"`{name}` of a list takes no axis and no keepdims: {name}(xs)")
    return apply(ListReduction(name), *x)


@dataclass(frozen=True)
class ListReduction(Function):
    """Elements at the same index of all inputs combined from first to last: `sum`, `mean`, `max` or `min`.

    Sums of integers are in 64 bits. Means of integers and bools are float64.
    """

    widens: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    op: str

    def work_dtype(self, dtypes: Sequence[DType]) -> DType:
        """The dtype of the computation, which inputs are converted to first."""
        dtype = promoted(dtypes, self.op)
        if self.op == "sum":
            return integers.summation(dtype)
        return _fractional(dtype) if self.op == "mean" else dtype

    def infer(self, ins: Specs) -> ArraySpec:
        check_alike(self.op, ins)
        return ArraySpec(ins[0].shape, self.work_dtype([spec.dtype for spec in ins]))

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        dtype = self.work_dtype([spec.dtype for spec in ins])
        with np.errstate(all="ignore"):
            total = functools.reduce(_COMBINED[self.op], (converted(block, dtype) for block in blocks))
            if self.op == "mean":
                total = total / dtype.type(len(ins))
        if self.op == "sum" and is_integer(dtype):
            integers.check_list_sums(self.op, blocks, dtype, region)
        return np.asarray(total)


@dataclass(frozen=True)
class KarcherWeights(Function):
    """Factors with which vectors are added up to their Karcher mean on the sphere, as float64."""

    max_iter: int = 10
    tol: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 <= self.max_iter <= 10_000:
            message = f"`karcher_weights`: `max_iter` should be from 0 to 10000, not {self.max_iter}"
            raise FunctionError(message)

    def infer(self, ins: Specs) -> ArraySpec:
        cosines, lengths = ins
        is_square = lengths.ndim == 1 and cosines.shape == lengths.shape * 2 and lengths.size > 0
        if not is_square or any(kind(spec.dtype) != "f" for spec in ins):
            raise FunctionError(f"`karcher_weights` needs floats [n,n] and [n], not {cosines} and {lengths}")
        return ArraySpec(lengths.shape, _FLOAT64)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(i, tuple(map(range, spec.shape))) for i, spec in enumerate(ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        cosines, lengths = (converted(block, _FLOAT64) for block in blocks)
        with np.errstate(all="ignore"):
            weights = _mean(cosines, lengths, self.max_iter, self.tol)
            return np.asarray(np.mean(lengths) * weights / np.where(lengths == 0, 1, lengths))[region.slices]


@in_expressions
def karcher_weights(cosines: Array, lengths: Array, max_iter: int = 10, tol: float = 1e-5) -> Array:
    """`karcher_weights(cosines, lengths, max_iter=10, tol=1e-5)`: the factors with which vectors are added up
    to their Karcher mean on the sphere, which has the mean of their lengths, as float64.

    Of `n` vectors, `cosines` (floats, `n` by `n`) has those of the angles between each two, and `lengths`
    (floats, `n`) has their norms. The mean (Karcher, "Riemannian center of mass and mollifier smoothing",
    1977) begins at the mean of all directions. Each iteration moves it along the mean of the ways to all of
    them; it ends after `max_iter` of them, or where a move is shorter than `tol`. All points are sums of the
    vectors, so only factors are computed. Vectors of lengths up to `tol` do not count.

    Raises FunctionError for other shapes and dtypes, and for a `max_iter` that is not from 0 to 10,000.
    """
    return apply(KarcherWeights(max_iter, tol), cosines, lengths)


def _mean(cosines: np.ndarray, lengths: np.ndarray, max_iter: int, tol: float) -> np.ndarray:
    """The factors of the directions that add up to their mean, a point on the sphere."""
    counted = lengths > tol
    shares = counted / max(1.0, np.add.reduce(counted))
    size = _length(cosines, shares)
    point = shares / size
    if size < tol:  # the directions cancel out: mergekit begins with the first that has a length
        point = np.zeros(len(lengths))
        point[int(np.argmax(counted))] = counted.any()
    for _ in range(max_iter):
        cosine = np.clip(np.add.reduce(cosines * point, axis=-1), -1, 1)
        angle = np.arccos(cosine)
        ways = np.where(angle < tol, 0.0, shares * angle / np.sin(angle))
        tangent = ways - np.add.reduce(ways * cosine) * point
        move = _length(cosines, tangent)
        if move < tol:
            break
        moved = np.cos(move) * point + np.sin(move) / move * tangent
        size = _length(cosines, moved)
        point = moved / size if size > tol else moved
    return np.asarray(point)


def _length(cosines: np.ndarray, factors: np.ndarray) -> float:
    """The length of the sum of the directions with these factors."""
    squared = np.add.reduce(factors * np.add.reduce(cosines * factors, axis=-1))
    return float(np.sqrt(np.maximum(squared, 0.0)))
