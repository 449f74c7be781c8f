"""Fingerprints of arrays: sums of hashes of their elements, however these are arranged.

Each element is hashed to 64 bits and the hashes are added modulo 2^64, over the whole array and over every
slice along every axis. Such sums do not change when axes are transposed, cut, joined or flipped, and they add
up when arrays are stacked, concatenated or split. A fingerprint only proposes: elements are compared later.

Floats are hashed by their value in float32, so widening them changes nothing; those of float64 that float32
does not have, by their own. Integers are hashed by their value in 64 bits. The mixing steps are those of the
finalizer of MurmurHash3 (Austin Appleby), with its constants.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions, grown
from ckpt_surgery.core.dtypes import ELEMENT_TYPES

Words = np.ndarray
"""Hashes or their sums: uint64."""

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
    low: float | None = None
    """The least value as float64; None if there are no numbers, or any is NaN or infinite."""
    high: float | None = None

    @property
    def constant(self) -> bool:
        """True if all elements are equal, which proves nothing about where they come from."""
        return self.low is not None and self.low == self.high

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


Read = Callable[[Region], np.ndarray]
"""Reads one region of an array."""


def fingerprints(
    read: Read, spec: ArraySpec, block: Shape, roundings: Sequence[np.dtype[Any]] = ()
) -> dict[np.dtype[Any], Fingerprint]:
    """The fingerprint of an array, by its own dtype, and those of its values rounded to other dtypes.

    It is read in blocks of this shape. Casts that have no result for an element leave out their fingerprint.
    """
    wanted = {spec.dtype: _Sums(spec.shape)} | {dtype: _Sums(spec.shape) for dtype in roundings}
    for region in chunk_regions(spec.shape, block):
        for piece, values in _pieces(region, read(region)):
            for dtype, sums in wanted.items():
                with np.errstate(over="ignore", invalid="ignore"):
                    rounded = values if dtype == spec.dtype else values.astype(dtype)
                sums.add(piece, hashes(rounded), rounded)
    return {dtype: sums.done() for dtype, sums in wanted.items()}


def joined(shape: Shape, parts: Sequence[Fingerprint]) -> Fingerprint:
    """The fingerprint of `stack` of arrays of equal shape, along new first axes of these lengths."""
    totals = np.array([part.total for part in parts], np.uint64).reshape(shape)
    outer = [_but(totals, axis) for axis in range(len(shape))]
    inner = [np.add.reduce([part.axes[axis] for part in parts]) for axis in range(len(parts[0].shape))]
    limits = [(part.low, part.high) for part in parts if part.low is not None and part.high is not None]
    known = len(limits) == len(parts)
    low, high = (min(a for a, _ in limits), max(b for _, b in limits)) if known else (None, None)
    total = int(totals.sum(dtype=np.uint64))
    return Fingerprint((*shape, *parts[0].shape), total, (*outer, *inner), low, high)


@np.errstate(over="ignore", invalid="ignore")  # of scalars, NumPy reports that words overflow
def hashes(values: np.ndarray) -> Words:
    """A hash of the value of each element."""
    dtype = values.dtype
    if dtype.kind == "c":
        real: Words = hashes(np.asarray(values.real))
        return real + mixed(hashes(np.asarray(values.imag)) + _IMAGINARY)  # type: ignore[no-any-return]
    if kind_of(dtype) in tuple("biu"):
        wide = values.astype(np.uint64 if dtype == np.uint64 else np.int64).view(np.uint64)
        return mixed(wide + _OF_INTEGERS)
    if dtype.itemsize == 2 and kind_of(dtype) == "f":
        return _table(dtype)[values.view(np.uint16)]
    if kind_of(dtype) == "f":
        narrow = values.astype(np.float32)
        words = mixed(narrow.view(np.uint32).astype(np.uint64) + _OF_FLOATS)
        if dtype == np.float64:
            wide = (narrow != values) & (values == values)
            if wide.any():
                words = np.where(wide, mixed(values.view(np.uint64) + _OF_WIDE), words)
        return words
    return mixed(_of_bytes(values) + _OF_WIDE)


@np.errstate(over="ignore")
def mixed(words: Words) -> Words:
    """Mix each word, in place."""
    words ^= words >> _SHIFT
    words *= _FIRST
    words ^= words >> _SHIFT
    words *= _SECOND
    words ^= words >> _SHIFT
    return words


class _Sums:
    """Accumulates the sums of one array, piece by piece."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._axes = [np.zeros(length, np.uint64) for length in shape]
        self._total = np.uint64(0)
        self.low, self.high, self.numbers = np.inf, -np.inf, True

    def add(self, place: Region, words: Words, values: np.ndarray) -> None:
        """Add the hashes of one region, and note the least and the largest value."""
        with np.errstate(over="ignore"):
            for axis, start in enumerate(place.starts):
                part = _but(words, axis)
                self._axes[axis][start : start + len(part)] += part
            self._total = self._total + words.sum(dtype=np.uint64)
        if self.numbers and values.size:
            low, high = _limits(values)
            self.numbers = low is not None
            if low is not None and high is not None:
                self.low, self.high = min(self.low, low), max(self.high, high)

    def done(self) -> Fingerprint:
        known = self.numbers and self.low <= self.high
        low, high = (self.low, self.high) if known else (None, None)
        return Fingerprint(self._shape, int(self._total), tuple(self._axes), low, high)


def kind_of(dtype: np.dtype[Any]) -> str:
    """`b` bool, `i` and `u` integers, `f` floats, `c` complex; empty for dtypes without numbers."""
    element_type = ELEMENT_TYPES.get(dtype.name)
    return "" if element_type is None else element_type.kind


def unsigned_kind(dtype: np.dtype[Any]) -> str:
    """The same, with `i` for all integers, with a sign or without."""
    return kind_of(dtype).replace("u", "i")


def _but(words: Words, axis: int) -> Words:
    """The sums over all axes but one."""
    others = tuple(other for other in range(words.ndim) if other != axis)
    with np.errstate(over="ignore"):
        sums: Words = words.sum(axis=others, dtype=np.uint64)
    return sums


def _limits(values: np.ndarray) -> tuple[float | None, float | None]:
    dtype = values.dtype
    if kind_of(dtype) not in tuple("biuf"):
        return None, None
    if dtype.itemsize == 2 and kind_of(dtype) == "f":
        low, high = _limits_of_16_bits(values)
    else:
        with np.errstate(invalid="ignore"):
            low, high = float(values.min()), float(values.max())
    return (low, high) if np.isfinite(low) and np.isfinite(high) else (None, None)


def _limits_of_16_bits(values: np.ndarray) -> tuple[float, float]:
    """The least and the largest value, found by their bits, which is many times faster than by arithmetic."""
    bits = values.view(np.int16)
    ordered = bits ^ ((bits >> 15) & 0x7FFF)  # negative numbers have a sign and a magnitude
    ends = np.array([ordered.min(), ordered.max()], np.int16)
    low, high = (ends ^ ((ends >> 15) & 0x7FFF)).view(values.dtype).astype(np.float64)
    return float(low), float(high)


def _pieces(region: Region, block: np.ndarray) -> Iterator[tuple[Region, np.ndarray]]:
    """Split a block into contiguous pieces of at most PIECE elements, with their places."""
    lengths = grown((1,) * block.ndim, block.shape, PIECE)
    for part in chunk_regions(block.shape, lengths):
        yield part.moved(region.starts), np.ascontiguousarray(block[part.slices]).reshape(part.shape)


def _of_bytes(values: np.ndarray) -> Words:
    """A word for each element of a dtype without numbers, from its bytes."""
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, -1)
    words = np.zeros(values.shape, np.uint64)
    for place in range(octets.shape[-1]):
        words = mixed(words + octets[..., place])
    return words


_TABLES: dict[str, Words] = {}


def _table(dtype: np.dtype[Any]) -> Words:
    """The hashes of all values of a dtype of 16 bits, by their bits."""
    if dtype.name not in _TABLES:
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        _TABLES[dtype.name] = hashes(every.astype(np.float32))
    return _TABLES[dtype.name]


def least_common(dtypes: Iterable[np.dtype[Any]], own: np.dtype[Any]) -> list[np.dtype[Any]]:
    """Dtypes among these, other than `own`, to which a cast rounds the values of `own`."""
    if kind_of(own) != "f":
        return []
    narrower = {dtype for dtype in dtypes if kind_of(dtype) == "f" and dtype.itemsize <= own.itemsize}
    return sorted(narrower - {own}, key=lambda dtype: dtype.name)
