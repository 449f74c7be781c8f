"""Blocks of quantized numbers, decoded to float32 as ggml decodes them, and regions of arrays of them.

Source of the layouts: the structures `block_q8_0`, `block_q4_0`, `block_q4_K` and `block_q6_K` of ggml. Each
block has its own scale; multiplications are in float32 and in ggml's order, so that all bits agree.
"""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.storage.reading import Readable, read_region

PIECE = 2**17
"""Elements that are decoded at once, which bounds the memory that decoding takes besides its result."""


# --- decoders ---------------------------------------------------------------------------------------------
# Each takes uint8[blocks, bytes of a block] and returns float32[blocks, elements of a block].


def _half(stored: np.ndarray) -> np.ndarray:
    """Two bytes per block as one number in float32, shape [blocks, 1]."""
    found: np.ndarray = np.ascontiguousarray(stored).view("<f2").astype(np.float32)
    return found


def _signed(stored: np.ndarray) -> np.ndarray:
    found: np.ndarray = stored.view(np.int8).astype(np.float32)
    return found


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    """A scale (float16), then 32 int8."""
    found: np.ndarray = _signed(blocks[:, 2:]) * _half(blocks[:, :2])
    return found


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    """A scale (float16), then 16 bytes: their low halves are elements 0 to 15; 8 stands for zero."""
    both = blocks[:, 2:]
    numbers = np.concatenate([both & 15, both >> 4], axis=1).view(np.int8) - np.int8(8)
    found: np.ndarray = _half(blocks[:, :2]) * numbers.astype(np.float32)
    return found


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """Two float16, by which the scales and the minima of 8 groups are multiplied; these in 12 bytes of 16
    numbers of 6 bits; then 128 bytes, of which each 32 are two groups: low halves, high halves.
    """
    count = len(blocks)
    scales, minima = _of_six_bits(blocks[:, 4:16])
    scale = _half(blocks[:, :2]) * scales.astype(np.float32)
    minimum = _half(blocks[:, 2:4]) * minima.astype(np.float32)
    both = blocks[:, 16:].reshape(count, 4, 1, 32)
    numbers = np.concatenate([both & 15, both >> 4], axis=2).reshape(count, 8, 32).astype(np.float32)
    found: np.ndarray = scale[:, :, None] * numbers - minimum[:, :, None]
    return found.reshape(count, 256)


def _of_six_bits(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minima of 8 groups, from 12 bytes per block.

    Bytes 0 to 3 have the scales of groups 0 to 3 in their low six bits, bytes 4 to 7 the minima. Bytes 8 to
    11 have the low four bits of the scales (low half) and minima (high half) of groups 4 to 7; the upper two
    bits of these are those of bytes 0 to 7.
    """
    first, second, last = stored[:, :4], stored[:, 4:8], stored[:, 8:]
    scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """128 bytes with the low four bits, 64 with the upper two, 16 scales (int8) and a float16 for all.

    32 stands for zero. Each half of 128 elements has 64 bytes of low and 32 of upper bits: its quarter k has
    the low halves (k < 2) or the high halves of 32 of the former, and bits 2k and 2k + 1 of the latter.
    """
    count = len(blocks)
    low = blocks[:, :128].reshape(count, 2, 1, 2, 32)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(count, 2, 4, 32)
    high = blocks[:, 128:192].reshape(count, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    numbers = (low | high << 4).view(np.int8) - np.int8(32)
    scale = _half(blocks[:, 208:]) * _signed(blocks[:, 192:208])
    found: np.ndarray = scale[:, :, None] * numbers.reshape(count, 16, 16).astype(np.float32)
    return found.reshape(count, 256)


DECODERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
"""Functions of uint8[blocks, bytes of a block] to float32[blocks, elements of a block], by type."""


def dequantized(name: str, blocks: np.ndarray) -> np.ndarray:
    """The elements of blocks, uint8[blocks, bytes of a block], as float32[blocks, elements of a block].

    Scales that are NaN or infinite give what multiplication gives.
    """
    with np.errstate(all="ignore"):
        return DECODERS[name](blocks)


# --- arrays of blocks -------------------------------------------------------------------------------------


def read_blocks(
    file: Readable, offset: int, shape: Shape, region: Region, name: str, length: int, nbytes: int
) -> np.ndarray:
    """A region, not empty, of an array of blocks that begins at `offset`, as float32.

    `length` and `nbytes`: elements and bytes of a block. Reads the blocks that have elements of the region,
    and no others. Memory: the result, those blocks, and a multiple of PIECE. Raises SourceError where bytes
    are missing.
    """
    first, last = region.starts[-1] // length, -(-region.stops[-1] // length)
    laid = ArraySpec((*shape[:-1], shape[-1] // length), np.dtype(f"V{nbytes}"))
    box = Region((*region.starts[:-1], first), (*region.stops[:-1], last))
    stored = read_region(file, offset, laid, box)
    rows, columns = prod(box.shape[:-1]), last - first
    blocks = stored.view(np.uint8).reshape(rows, columns, nbytes)
    result: np.ndarray = np.empty((rows, region.shape[-1]), np.float32)
    wide = min(columns, PIECE // length)
    tall = max(1, PIECE // (wide * length))
    for column in range(0, columns, wide):
        # Where the piece begins, counted from the region: before it, perhaps, in the first block.
        begin = (first + column) * length - region.starts[-1]
        for row in range(0, rows, tall):
            piece = blocks[row : row + tall, column : column + wide]
            values = dequantized(name, piece.reshape(-1, nbytes)).reshape(len(piece), -1)
            end = min(begin + values.shape[1], region.shape[-1])
            result[row : row + tall, max(0, begin) : end] = values[:, max(0, -begin) : end - begin]
    return result.reshape(region.shape)
