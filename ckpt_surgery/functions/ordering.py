"""The order of an array's elements: ranks along an axis, and the place of an element among all.

The place by absolute value is found by counting, in a few passes. Each counts 16 more bits: of the magnitudes
from the highest bits on, and then, where not all of the elements with the least magnitude belong to the
largest, of their indices. Counts are exact in any order.
"""

import operator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions, ravelled
from ckpt_surgery.core.dtypes import computation, converted, is_integer, kind
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Selection
from ckpt_surgery.core.tiles import tile_shape
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions
from ckpt_surgery.functions.sizes import axis_of
from ckpt_surgery.functions.streams import Pass

TILE = 1 << 15  # Elements that are ranked at a time, or one row where rows are longer
TILE_BYTES = 32 * TILE
INDEX = np.dtype(np.int64)


@dataclass(frozen=True)
class Ranks(Function):
    """Ranks of the elements along an axis, 0 for the smallest, as int64."""

    name: ClassVar[str] = "ranks"
    scratch: ClassVar[int] = TILE_BYTES
    axis: int = -1

    def infer(self, ins: Specs) -> ArraySpec:
        if kind(ins[0].dtype) != "f" and not is_integer(ins[0].dtype):
            raise FunctionError(f"`ranks` needs integers or floats, not {ins[0]}")
        axis_of(self.axis, ins[0].ndim, self.name)
        return ArraySpec(ins[0].shape, INDEX)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        return [(0, (*selection[:axis], range(ins[0].shape[axis]), *selection[axis + 1 :]))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        result: np.ndarray = np.empty(region.shape, INDEX)
        if not region.size:
            return result
        source, target = np.moveaxis(blocks[0], axis, -1), np.moveaxis(result, axis, -1)
        wanted = slice(region.starts[axis], region.stops[axis])
        several = tile_shape(source.shape[:-1], (), max(1, TILE // max(1, source.shape[-1])))
        for rows in chunk_regions(source.shape, (*several, source.shape[-1])):
            order = _order(np.ascontiguousarray(source[rows.slices]))
            found, numbers = np.empty_like(order), np.arange(order.shape[-1])
            np.put_along_axis(found, order, np.broadcast_to(numbers, order.shape), axis=-1)
            target[rows.slices[:-1]] = found[..., wanted]
        return result


@in_expressions
def ranks(x: Array, axis: int = -1) -> Array:
    """`ranks(x, axis=-1)`: for each element the number of elements before it, along an axis, in ascending
    order, as int64: 0 for the smallest.

    Of equal elements, the one with the lower index comes first, so that the ranks of a row are all numbers
    below its length. NaN comes after all numbers. `x` may have integers or floats of any dtype.

    Raises FunctionError for other dtypes, and if there is no such axis.
    """
    return apply(Ranks(axis), x)


def _order(rows: np.ndarray) -> np.ndarray:
    """The indices of the elements in ascending order, along the last axis."""
    values = converted(rows, computation(rows.dtype))
    if values.dtype.itemsize > 4:
        return np.asarray(np.argsort(values, axis=-1, kind="stable"))
    # Sorting numbers that have the index in their lower bits takes a sixth of the time of a stable sort.
    keys = _keys(values)
    keys <<= np.uint64(32)
    keys |= np.arange(rows.shape[-1], dtype=np.uint64)
    keys.sort(axis=-1)
    keys &= np.uint64((1 << 32) - 1)
    return keys.view(INDEX)


def _keys(values: np.ndarray) -> np.ndarray:
    """Integers below 2**32 in the order of the values, of 4 bytes at most, as uint64."""
    if kind(values.dtype) != "f":
        return (values.astype(INDEX) + (1 << 31 if kind(values.dtype) == "i" else 0)).astype(np.uint64)
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # the sum of -0.0 and 0 is 0.0
    negative = bits >> np.uint32(31) != 0
    keys = np.where(negative, ~bits, bits | np.uint32(1 << 31))
    keys[np.isnan(values)] = np.uint32((1 << 32) - 1)
    return keys.astype(np.uint64)


DIGIT = 16  # Bits that are counted in one pass
BINS = 1 << DIGIT
INDEX_PASSES = 2  # Passes over indices, at most, of arrays of fewer than 2**32 elements
RANKING_BYTES = 3 * 8 * BINS  # Bytes of the counts: of all blocks so far, and of one that is being seen


def magnitudes(block: np.ndarray) -> np.ndarray:
    """Unsigned integers in the order of the absolute values, which are equal where these are.

    For floats they are the bits without the sign, of float32 or float64: NaN is above infinity.
    """
    values = converted(block, computation(block.dtype))
    width = max(DIGIT, 8 * values.dtype.itemsize)
    unsigned = np.dtype(f"u{width // 8}")
    if kind(values.dtype) == "f":
        return np.asarray(values.view(unsigned) & unsigned.type((1 << (width - 1)) - 1))
    if kind(values.dtype) == "u":
        return values.astype(unsigned)
    wide = values.astype(f"i{width // 8}")
    # The smallest integer has no negative and stays as it is: the bits of 2**(width - 1).
    return np.asarray(np.abs(wide)).view(unsigned)


def flat_indices(places: np.ndarray, region: Region, shape: Shape) -> np.ndarray:
    """The indices, in an array of this shape, of elements at these places in a region, all in C order."""
    if not shape:
        return np.zeros(places.shape, np.int64)  # NumPy has no indices of such an array
    inside = np.unravel_index(places, region.shape)
    return np.asarray(ravelled(map(operator.add, inside, region.starts), shape))


class Counting(Pass):
    """The pass before `Ranking` where `k` is a share of the elements that are not 0: it counts them."""

    def __init__(self, spec: ArraySpec, share: float):
        self._spec, self._share, self._count = spec, share, 0

    def seen(self, block: np.ndarray, region: Region) -> int:
        return int(np.count_nonzero(magnitudes(block)))

    def note(self, number: int, seen: int) -> None:
        self._count += seen

    def finish(self) -> Pass:
        return Ranking(self._spec, int(self._share * self._count))


class Ranking(Pass):
    """The first pass that finds where the `k` elements with the largest magnitudes end.

    The result has the least magnitude of them, and the index before which elements that have it belong to
    them: all of them if that is the number of elements.
    """

    def __init__(
        self, spec: ArraySpec, k: int, upper: int = 0, below: int | None = None, magnitude: int | None = None
    ):
        """`k` elements are looked for among those whose bits from `below` on are `upper`, by default all.

        With a `magnitude`, bits are those of the indices of elements that have it, and the lowest are wanted.
        """
        self._spec, self._k, self._upper, self._magnitude = spec, k, upper, magnitude
        self._shift = (below or max(DIGIT, 8 * computation(spec.dtype).itemsize)) - DIGIT
        self._all = below is None
        self._counts = np.zeros(BINS, np.int64)

    def seen(self, block: np.ndarray, region: Region) -> np.ndarray:
        keys = magnitudes(block)
        if self._magnitude is not None:
            keys = flat_indices(np.nonzero(keys == self._magnitude)[0], region, self._spec.shape)
        if not self._all:
            keys = keys[keys >> keys.dtype.type(self._shift + DIGIT) == self._upper]
        digits = (keys >> keys.dtype.type(self._shift)) & keys.dtype.type(BINS - 1)
        return np.bincount(digits.astype(np.int64), minlength=BINS)

    def note(self, number: int, seen: np.ndarray) -> None:
        self._counts += seen

    def finish(self) -> Pass | np.ndarray:
        if not self._k:
            return np.array([2**64 - 1, 0], np.uint64)
        of_indices = self._magnitude is not None
        counts = self._counts if of_indices else self._counts[::-1]
        total = np.cumsum(counts)
        place = int(np.searchsorted(total, self._k))  # the bin in which the last of them is
        left = self._k - int(total[place] - counts[place])
        upper = (self._upper << DIGIT) | (place if of_indices else BINS - 1 - place)
        if self._shift:
            return Ranking(self._spec, left, upper, self._shift, self._magnitude)
        if self._magnitude is not None:
            return np.array([self._magnitude, upper + 1], np.uint64)
        if counts[place] == left:
            return np.array([upper, self._spec.size], np.uint64)
        digits = max(1, -(-(self._spec.size - 1).bit_length() // DIGIT))
        return Ranking(self._spec, left, 0, digits * DIGIT, upper)
