"""Fingerprints of arrays: sums of hashes of their elements, however these are arranged.

Each element is hashed to 64 bits and the hashes are added modulo 2^64, over the whole array and over every
slice along every axis. Such sums do not change when axes are transposed, cut, joined or flipped, and they add
up when arrays are stacked, concatenated or split. A fingerprint only proposes: elements are compared later.

Floats are hashed by their value in float32, so widening them changes nothing; those of float64 that float32
does not have, by their own. Integers are hashed by their value in 64 bits. The mixing steps are those of the
finalizer of MurmurHash3 (Austin Appleby), with its constants.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions, grown
from ckpt_surgery.core.dtypes import ELEMENT_TYPES, DType

Words = np.ndarray
"""Hashes or their sums: uint64."""

Limits = tuple[float, float] | None
"""The least and the largest value as float64; None if there are none, or any is NaN or infinite."""

PIECE = 1 << 17
"""Number of elements hashed at a time: their hashes stay in the processor's cache."""
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_OF_FLOATS, _OF_INTEGERS, _OF_WIDE, _IMAGINARY = (np.uint64(n << 40) for n in (0x5, 0x9, 0x11, 0x21))
"""Added to the bits before they are hashed: values of different kinds have nothing in common."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The sums of one array."""

    shape: Shape
    total: int
    """Sum over all elements, modulo 2^64."""
    axes: tuple[Words, ...]
    """For each axis, the sums of its slices: uint64 of shape (length,)."""
    limits: Limits = None

    @property
    def constant(self) -> bool:
        """True if all elements are equal, which proves nothing about where they come from."""
        return self.limits is not None and self.limits[0] == self.limits[1]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def fingerprints(
    read: Callable[[Region], np.ndarray],
    spec: ArraySpec,
    block: Shape,
    roundings: Iterable[DType] = (),
) -> dict[DType, Fingerprint]:
    """The fingerprint of an array, by its own dtype, and those of its values rounded to other dtypes.

    It is read in blocks of this shape. Of the `roundings`, those that cannot round these values, wider dtypes
    and all that are no floats, are left out.
    """
    own = spec.dtype
    narrower = (dtype for dtype in roundings if kind_of(dtype) == "f" and dtype.itemsize <= own.itemsize)
    dtypes = dict.fromkeys((own, *narrower) if kind_of(own) == "f" else (own,))
    axes = {dtype: tuple(np.zeros(length, np.uint64) for length in spec.shape) for dtype in dtypes}
    totals = dict.fromkeys(dtypes, 0)
    limits: dict[DType, list[Limits]] = {dtype: [] for dtype in dtypes}
    for region in chunk_regions(spec.shape, block):
        array = read(region)
        for part in chunk_regions(array.shape, grown((1,) * array.ndim, array.shape, PIECE)):
            values = np.ascontiguousarray(array[part.slices]).reshape(part.shape)
            for dtype in dtypes:
                with np.errstate(over="ignore", invalid="ignore"):
                    rounded = values if dtype == own else values.astype(dtype)
                words = hashes(rounded)
                for axis, start in enumerate(part.moved(region.starts).starts):
                    sums = _but(words, axis)
                    axes[dtype][axis][start : start + len(sums)] += sums
                totals[dtype] += int(words.sum(dtype=np.uint64))
                limits[dtype].append(_limits(rounded))
    return {
        dtype: Fingerprint(spec.shape, totals[dtype] % (1 << 64), axes[dtype], common_limits(limits[dtype]))
        for dtype in dtypes
    }


def joined(shape: Shape, parts: Sequence[Fingerprint]) -> Fingerprint:
    """The fingerprint of `stack` of arrays of equal shape, along new first axes of these lengths."""
    totals = np.array([part.total for part in parts], np.uint64).reshape(shape)
    outer = [_but(totals, axis) for axis in range(len(shape))]
    inner = [np.add.reduce([part.axes[axis] for part in parts]) for axis in range(len(parts[0].shape))]
    total = int(totals.sum(dtype=np.uint64))
    limits = common_limits(part.limits for part in parts)
    return Fingerprint((*shape, *parts[0].shape), total, (*outer, *inner), limits)


def common_limits(several: Iterable[Limits]) -> Limits:
    """The least and the largest value of several arrays; None if any has no such values."""
    known = list(several)
    ends = [end for limits in known if limits is not None for end in limits]
    return (min(ends), max(ends)) if len(ends) == 2 * len(known) > 0 else None


@np.errstate(over="ignore", invalid="ignore")  # of scalars, NumPy reports that words overflow
def hashes(values: np.ndarray) -> Words:
    """A hash of the value of each element, which is a number."""
    dtype = values.dtype
    if dtype.kind == "c":
        real: Words = hashes(np.asarray(values.real))
        return real + mixed(hashes(np.asarray(values.imag)) + _IMAGINARY)  # type: ignore[no-any-return]
    if kind_of(dtype) in tuple("biu"):
        wide = values.astype(np.uint64 if dtype == np.uint64 else np.int64).view(np.uint64)
        return mixed(wide + _OF_INTEGERS)
    if dtype.itemsize == 2 and kind_of(dtype) == "f":
        return _table(dtype)[values.view(np.uint16)]
    narrow = values.astype(np.float32)
    words = mixed(narrow.view(np.uint32).astype(np.uint64) + _OF_FLOATS)
    if dtype == np.float64:
        wide = (narrow != values) & (values == values)
        if wide.any():
            words = np.where(wide, mixed(values.view(np.uint64) + _OF_WIDE), words)
    return words


@np.errstate(over="ignore")
def mixed(words: Words) -> Words:
    """Mix each word, in place."""
    words ^= words >> _SHIFT
    words *= _FIRST
    words ^= words >> _SHIFT
    words *= _SECOND
    words ^= words >> _SHIFT
    return words


def kind_of(dtype: DType) -> str:
    """`b` bool, `i` and `u` integers, `f` floats, `c` complex; empty for dtypes without numbers."""
    element_type = ELEMENT_TYPES.get(dtype.name)
    return "" if element_type is None else element_type.kind


def _but(words: Words, axis: int) -> Words:
    """The sums over all axes but one."""
    sums: Words = words.sum(axis=(*range(axis), *range(axis + 1, words.ndim)), dtype=np.uint64)
    return sums


def _limits(values: np.ndarray) -> Limits:
    """The least and the largest of some values; None if there are none, or any is not ordered or finite."""
    dtype = values.dtype
    if kind_of(dtype) == "c" or not values.size:
        return None
    if dtype.itemsize == 2 and kind_of(dtype) == "f":
        # By their bits, many times faster than by arithmetic. Negative numbers have a sign and a magnitude.
        bits = values.view(np.int16)
        ordered = bits ^ ((bits >> 15) & 0x7FFF)
        ends = np.array([ordered.min(), ordered.max()], np.int16)
        low, high = (ends ^ ((ends >> 15) & 0x7FFF)).view(dtype)
    else:
        with np.errstate(invalid="ignore"):
            low, high = values.min(), values.max()
    return (float(low), float(high)) if np.isfinite([float(low), float(high)]).all() else None


@functools.cache
def _table(dtype: DType) -> Words:
    """The hashes of all values of a dtype of 16 bits, by their bits."""
    return hashes(np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32))
