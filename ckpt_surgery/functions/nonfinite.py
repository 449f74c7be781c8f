"""NaN and infinity: the search for them in blocks, and `allow_nonfinite`, which permits them in a result."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.digests import values_crc
from ckpt_surgery.core.dtypes import DType, computation, converted, has_infinity, has_nan, kind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.tiles import tile_shape
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions

TILE = 1 << 16
"""Elements that are searched at a time, so that what is found for them stays in the processor's cache."""
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F80_0000, "float64": 0x7FF0_0000_0000_0000}
"""Bits of infinity. Those of NaN are larger, and those of finite numbers smaller, without the sign."""


def may_be_nonfinite(dtype: DType) -> bool:
    """Whether a dtype has NaN or infinity."""
    return has_nan(dtype) or has_infinity(dtype)


def finite(block: np.ndarray) -> np.ndarray:
    """A mask of the elements that are finite."""
    if block.dtype.itemsize == 1:
        return np.asarray(~_nonfinite_bytes(block.dtype)[block.view(np.uint8)])
    return np.asarray(np.isfinite(converted(block, computation(block.dtype))))


def all_finite(block: np.ndarray) -> bool:
    """Whether all elements are finite: one pass at the speed of the memory, for blocks in any order."""
    if not may_be_nonfinite(block.dtype):
        return True
    if block.flags.forc:
        block = block.ravel(order="K")
    tiles = chunk_regions(block.shape, tile_shape(block.shape, (block,), TILE))
    return all(_all_finite(block[tile.slices]) for tile in tiles)


def search_and_digest(block: np.ndarray, search: bool, digest: bool) -> tuple[bool, int | None]:
    """True if all elements are finite, and their CRC-32C in C order, in one pass through the memory.

    Without `search` all count as finite; without `digest` there is no checksum.
    """
    search = search and may_be_nonfinite(block.dtype)
    if not (search and digest and block.flags.c_contiguous):
        return not search or all_finite(block), values_crc(block) if digest else None
    flat, is_finite, crc = block.reshape(-1), True, 0
    for i in range(0, flat.size, TILE):
        tile = flat[i : i + TILE]
        is_finite = is_finite and _all_finite(tile)
        crc = values_crc(tile, crc)
    return is_finite, crc


def _all_finite(tile: np.ndarray) -> bool:
    if tile.dtype.itemsize == 1:
        return not _nonfinite_bytes(tile.dtype)[tile.view(np.uint8)].any()
    if kind(tile.dtype) == "c":
        return _all_finite(tile.real) and _all_finite(tile.imag)
    # The largest of the bits as signed integers is a positive number's, as unsigned ones a negative number's.
    # NumPy finds these twice as fast as `isfinite` is, and without room for a mask.
    infinity, size = _INFINITY[tile.dtype.name], tile.dtype.itemsize
    sign = 1 << (8 * size - 1)
    signed, unsigned = tile.view(f"i{size}").max(initial=0), tile.view(f"u{size}").max(initial=0)
    return bool(signed < infinity and unsigned < sign | infinity)


@functools.cache
def _nonfinite_bytes(dtype: DType) -> np.ndarray:
    """For each byte, whether it is NaN or infinity as a number of this dtype."""
    numbers = np.arange(256, dtype=np.uint8).view(dtype)
    return np.asarray(~np.isfinite(numbers.astype(np.float32)))


@dataclass(frozen=True)
class AllowNonfinite(Function):
    """The same values, in which NaN and infinity are permitted."""

    elementwise: ClassVar[bool] = True
    dtype: DType | None = None
    """The declared dtype of the input: what rounding to it makes infinite is permitted too."""

    def infer(self, ins: Specs) -> ArraySpec:
        return ins[0]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return blocks[0]

    def keeps_finite(self) -> bool:
        return True

    def permits(self, result: np.ndarray) -> np.ndarray | None:
        return ~finite(converted(result, self.dtype or result.dtype))

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return manifests[0]


@in_expressions
def allow_nonfinite(x: Array) -> Array:
    """`allow_nonfinite(x)`: the same values, in which NaN and infinity are permitted.

    Without it, NaN or infinity in a result is an error, unless an element that it is made of is NaN or
    infinite. What is permitted is counted: a warning tells how many such elements the leaves of the result
    have.
    """
    return apply(AllowNonfinite(x.dtype), x)
