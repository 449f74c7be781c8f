"""Means of directions: `karcher_weights`."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import converted, kind
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Selection, whole
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions

FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class KarcherWeights(Function):
    """Factors with which vectors are added up to their Karcher mean on the sphere, as float64."""

    name: ClassVar[str] = "karcher_weights"
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
        return ArraySpec(lengths.shape, FLOAT64)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(i, whole(spec.shape)) for i, spec in enumerate(ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        cosines, lengths = (converted(block, FLOAT64) for block in blocks)
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
