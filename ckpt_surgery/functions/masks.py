"""Ranks of an array's elements along an axis, and masks: of the largest, and of those drawn at random.

The place of an element among all by absolute value is found by counting, in a few passes. Each counts 16 more
bits: of the magnitudes from the highest bits on, and then, where not all of the elements with the least
magnitude belong to the largest, of their indices. Counts are exact in any order.
"""

import hashlib
import math
import operator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions, ravelled
from ckpt_surgery.core.dtypes import BOOL, computation, converted, is_integer, kind
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Selection, broadcast
from ckpt_surgery.core.tiles import tile_shape
from ckpt_surgery.functions.arrays import Array, apply, axis_of, broadcasts_to
from ckpt_surgery.functions.base import Blocks, Function, LeafKey, Number, Specs, in_expressions
from ckpt_surgery.functions.streams import Folded, Pass, streamed

TILE = 1 << 15
"""Elements of a result that are computed at a time, or one row that is ranked, where rows are longer: what is
computed for each of them takes far more memory."""
INDEX = np.dtype(np.int64)


@dataclass(frozen=True)
class Ranks(Function):
    """Ranks of the elements along an axis, 0 for the smallest, as int64."""

    scratch: ClassVar[int] = 32 * TILE
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
    if kind(values.dtype) == "f":
        bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # the sum of -0.0 and 0 is 0.0
        ordered = np.where(bits >> np.uint32(31) != 0, ~bits, bits | np.uint32(1 << 31))
        ordered[np.isnan(values)] = np.uint32((1 << 32) - 1)
        keys = ordered.astype(np.uint64)
    else:
        keys = (values.astype(INDEX) + (1 << 31 if kind(values.dtype) == "i" else 0)).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(rows.shape[-1], dtype=np.uint64)
    keys.sort(axis=-1)
    keys &= np.uint64((1 << 32) - 1)
    return keys.view(INDEX)


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


SHORT_RUN = 4096
"""Consecutive numbers that take no longer than a call of the generator: a part that lies within so many is
cut out of them."""


def words(start: int, count: int, key: np.ndarray) -> np.ndarray:
    """The numbers `start` to `start + count`, of 64 bits: number `i` is word `i % 4` of counter `i // 4`.

    `key`: two words of uint64.
    """
    first, skipped = divmod(start, 4)
    # NumPy's generator raises its counter before it makes numbers.
    generator = np.random.Philox(key=key, counter=(first - 1) % 2**256)
    return np.asarray(generator.random_raw(skipped + count)[skipped:])


def fractions(region: Region, shape: Shape, key: np.ndarray) -> np.ndarray:
    """For each element of a region the upper 53 bits of its number, divided by 2**53: from 0 up to below 1.

    An element's number is that of its index in C order in an array of this shape.
    """
    drawn: np.ndarray = np.empty(region.shape, np.uint64)
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    start = sum(a * b for a, b in zip(region.starts, strides, strict=True))
    waiting = [(drawn, start)] if drawn.size else []
    while waiting:
        part, start = waiting.pop()
        span = 1 + sum((n - 1) * stride for n, stride in zip(part.shape, strides, strict=True))
        if span <= max(SHORT_RUN, part.size):
            numbers = words(start, span, key)
            part[...] = as_strided(numbers, part.shape, [8 * stride for stride in strides], writeable=False)
            continue
        axis = next(axis for axis, n in enumerate(part.shape) if n > 1)
        half = part.shape[axis] // 2
        cut = (slice(None),) * axis
        waiting.append((part[(*cut, slice(half, None))], start + half * strides[axis]))
        waiting.append((part[(*cut, slice(half))], start))
    return (drawn >> np.uint64(11)) * 2.0**-53


@dataclass(frozen=True)
class KthMagnitude(Function):
    """Cut-off of the largest magnitudes: the smallest that counts, and the index where ties stop, as uint64.

    Magnitudes are unsigned integers in the order of the absolute values (`magnitudes`). Of the elements with
    the least one, those before the index in C order are among the largest.
    """

    scratch: ClassVar[int] = RANKING_BYTES
    k: int | None  # Number of the largest; None: `share` of those that are not 0
    share: float = 1.0

    def infer(self, ins: Specs) -> ArraySpec:
        if kind(ins[0].dtype) != "f" and not is_integer(ins[0].dtype):
            name = "top_share_mask" if self.k is None else "topk_mask"
            raise FunctionError(f"`{name}` needs integers or floats, not {ins[0]}")
        if self.k is not None and not 0 <= self.k <= ins[0].size:
            message = f"`k` should be from 0 to {ins[0].size}, not {self.k}, for {ins[0]}"
            raise FunctionError(f"`topk_mask`: {message}")
        return ArraySpec((2,), np.dtype(np.uint64))

    def stream(self, ins: Specs) -> Pass:
        spec = ins[0]
        if self.k is not None:
            return Ranking(spec, self.k)

        def ranking(count: int | None) -> Pass:
            return Ranking(spec, int(self.share * (count or 0)))

        return Folded(lambda block: int(np.count_nonzero(magnitudes(block))), operator.add, ranking)

    def passes(self, ins: Specs) -> int:
        counting = int(self.k is None)
        return counting + max(16, 8 * computation(ins[0].dtype).itemsize) // 16 + INDEX_PASSES

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, tuple(map(range, ins[0].shape)))] if len(selection[0]) else []

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return streamed(self.stream(ins), blocks[0])[region.slices] if region.size else np.empty(0, np.uint64)


@dataclass(frozen=True)
class LargestMask(Function):
    """The mask of the elements of the first input that lie on or above a threshold, the second input."""

    scratch: ClassVar[int] = 64 * TILE

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(ins[0].shape, BOOL)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, selection), (1, (range(2),))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        least, stop = blocks[1]
        mask: np.ndarray = np.empty(region.shape, bool)
        for tile in _tiles(region):
            sizes = magnitudes(tile.taken_from(blocks[0], region).ravel())
            part = sizes > least
            ties = np.nonzero(sizes == least)[0]
            part[ties] = flat_indices(ties, tile, ins[0].shape) < int(stop)
            tile.taken_from(mask, region)[...] = part.reshape(tile.shape)
        return mask


@in_expressions
def topk_mask(x: Array, k: int) -> Array:
    """`topk_mask(x, k)`: a bool array, true for the `k` elements of `x` with the largest absolute values.

    Of equal ones, those with the lower index in C order come first, so that exactly `k` elements are true.
    NaN counts as larger than infinity. `x` may have integers or floats of any dtype, and may be larger than
    the memory: it is read several times before the mask is computed. As mergekit's TIES has it, with
    `density`: `topk_mask(x, int(density * x.size))`.

    Raises FunctionError if `k` is negative or larger than the number of elements, and for other dtypes.
    """
    return apply(LargestMask(), x, apply(KthMagnitude(k), x))


@in_expressions
def top_share_mask(x: Array, share: float) -> Array:
    """`top_share_mask(x, share)`: as `topk_mask(x, k)`, for the part `share` of the elements that are not 0.

    `k` is the whole number below or at `share` times their number, which is counted in one more pass.

    Raises FunctionError if `share` is not from 0 to 1, and for other dtypes than integers and floats.
    """
    if not 0 <= share <= 1:
        raise FunctionError(f"`top_share_mask`: `share` should be from 0 to 1, not {share}")
    return apply(LargestMask(), x, apply(KthMagnitude(None, share), x))


@dataclass(frozen=True)
class RandomMask(Function):
    """Random bools of the shape of the first input: true with probability `p`, or that of the second."""

    scratch: ClassVar[int] = 64 * TILE
    leaf_key: str
    seed: int
    p: Number | None = None
    model: int = 0

    def __post_init__(self) -> None:
        if self.p is not None and not 0 <= self.p <= 1:
            raise FunctionError(f"`random_mask`: `p` should be from 0 to 1, not {self.p}")

    def infer(self, ins: Specs) -> ArraySpec:
        for spec in ins[1:]:
            if kind(spec.dtype) != "f" or not broadcasts_to(spec.shape, ins[0].shape):
                raise FunctionError(f"`random_mask`: the probabilities of {ins[0]} cannot be {spec}")
        return ArraySpec(ins[0].shape, BOOL)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(i, broadcast(selection, spec.shape)) for i, spec in enumerate(ins) if i]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        digest = hashlib.sha256(f"{self.seed}/{self.model}/{self.leaf_key}".encode()).digest()
        key = np.frombuffer(digest[:16], "<u8").astype(np.uint64)
        p = np.broadcast_to(blocks[0] if self.p is None else np.float64(self.p), region.shape)
        mask: np.ndarray = np.empty(region.shape, bool)
        for tile in _tiles(region):
            wanted = converted(tile.taken_from(p, region), np.dtype(np.float64))
            tile.taken_from(mask, region)[...] = fractions(tile, ins[0].shape, key) < wanted
        return mask


@in_expressions
def random_mask(x: Array, p: Array | Number, seed: int, model: int = 0, *, leaf_key: LeafKey) -> Array:
    """`random_mask(x, p, seed, model=0)`: a bool array of the shape of `x`, each element true with
    probability `p`.

    `p` is a number from 0 to 1, or an array that broadcasts against `x`. Values depend only on `seed`, the
    leaf's key, `model` (a number that tells apart several masks for one leaf: the position of a model among
    those that are merged), the element's index and `p`; no element of `x` is read. Philox4x64-10 (Salmon and
    others, "Parallel random numbers: as easy as 1, 2, 3", 2011) gives each element 64 bits: its key is the
    first 16 bytes of the SHA-256 of `SEED/MODEL/KEY`, as two little-endian words, its counter the index in C
    order divided by 4. True where the upper 53 bits divided by 2**53 are less than `p`.

    Raises FunctionError for a number outside of 0 to 1, and for an array that does not broadcast.
    """
    number, inputs = (None, (x, p)) if isinstance(p, Array) else (p, (x,))
    return apply(RandomMask(leaf_key, seed, number, model), *inputs)


def _tiles(region: Region) -> list[Region]:
    """The region in tiles of at most TILE elements, rows first."""
    tiles = chunk_regions(region.shape, tile_shape(region.shape, (), TILE))
    return [tile.moved(region.starts) for tile in tiles]
