"""Overflow checks for integer arithmetic: a result out of range is an error and never wraps around.

NumPy's integers wrap around modulo 2**width. Most of the time the smallest and the largest operand prove
that no result can be out of range. Only if they do not, each result is compared with one computed in a wider
dtype. For sums, only the total has to be in range: partial sums that wrap around and come back give the
right total, so that the answer depends neither on the order of adding nor on chunking.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.core.dtypes import DType, kind, limits
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.tiles import tile_shape

_PIECE = 1 << 15  # Number of elements converted to Python integers at a time, which take far more memory


def exact(symbol: str, ufunc: Callable[..., Any], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`left symbol right` for integers of one dtype, computed by `ufunc`.

    Raises DataError if a result is out of range, with the two values whose result is furthest out.
    """
    result = np.asarray(ufunc(left, right))
    if not result.size or _extremes_fit(symbol, left, right):
        return result
    left, right = (np.broadcast_to(side, result.shape) for side in (left, right))
    count, worst = 0, (-1.0, 0, 0)
    # In tiles, so that wide copies stay small.
    for tile in chunk_regions(result.shape, tile_shape(result.shape, (result, left, right))):
        a, b, stored = (tile.taken_from(block).ravel() for block in (left, right, result))
        # A wrapped result is off by a multiple of 2**width; a float's error is far less than half of that.
        wide = ufunc(a, b, dtype=np.float64)
        gone = np.nonzero(np.abs(wide - stored) >= 2.0 ** (8 * result.dtype.itemsize - 1))[0]
        if gone.size:
            at = gone[np.argmax(np.abs(wide[gone]))]
            count, worst = count + gone.size, max(worst, (abs(float(wide[at])), int(a[at]), int(b[at])))
    if count:
        operation = f"`{symbol}`: {worst[1]} {symbol} {worst[2]}"
        where = f" ({count:,} of {result.size:,} values here)"
        raise _out_of_range(f"{operation} is", result.dtype, where)
    return result


def check_sign(operation: str, block: np.ndarray) -> None:
    """Raises DataError if a signed block has the smallest integer, whose negative is out of range.

    `operation` is that of the message, with `{}` for the integer.
    """
    low, _ = limits(block.dtype)
    if low < 0 and block.size and block.min() == low:
        count = int(np.count_nonzero(block == low))
        where = f" ({count:,} of {block.size:,} values here)"
        raise _out_of_range(f"{operation.format(low)} is", block.dtype, where)


def _extremes(block: np.ndarray) -> tuple[int, int]:
    return int(block.min()), int(block.max())


def _extremes_fit(symbol: str, left: np.ndarray, right: np.ndarray) -> bool:
    """Whether the extremes prove that all results are in range. False if each result has to be checked."""
    low, high = limits(left.dtype)
    ours, theirs = _extremes(left), _extremes(right)
    if symbol == "//":
        return not (ours[0] == low < 0 and theirs[0] <= -1 <= theirs[1])
    if symbol == "**":
        return max(map(abs, ours)).bit_length() * theirs[1] <= int(high).bit_length()
    combine = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[symbol]
    results = [combine(a, b) for a in ours for b in theirs]
    return low <= min(results) and max(results) <= high


def summation(dtype: DType) -> DType:
    """The dtype of sums of values of this dtype: int64 for integers and bools, except uint64, which stays."""
    return np.dtype(np.int64) if kind(dtype) in "biu" and dtype.name != "uint64" else dtype


def bound(block: np.ndarray) -> int:
    """An upper bound of the absolute values of an integer or bool block. Only 64-bit data are looked at."""
    if kind(block.dtype) == "b":
        return 1
    if block.dtype.itemsize < 8:
        return int(max(map(abs, limits(block.dtype))))
    return max(map(abs, _extremes(block))) if block.size else 0


def can_overflow(magnitude: float, dtype: DType) -> bool:
    """Whether a number of this magnitude can be out of the range of the dtype."""
    return magnitude > limits(dtype)[1]


def check_sums(name: str, rows: np.ndarray, magnitude: int, region: Region) -> None:
    """Raises DataError, with the exact sum, if the sum of a row is out of the range of the matrix's dtype.

    `magnitude` is an upper bound of the absolute values of the elements. `region` is the region of the
    result that the sums are, for the index in the message.
    """
    height, length = rows.shape
    if not can_overflow(magnitude * length, rows.dtype):
        return
    width = min(length, _PIECE)  # sums of short pieces rarely need Python's integers, which take long
    tall = _PIECE // width
    for top in range(0, height, tall):
        pieces = (rows[top : top + tall, left : left + width] for left in range(0, length, width))
        check_exact(name, functools.reduce(operator.add, map(exact_sums, pieces)), rows.dtype, region, top)


def exact_sums(piece: np.ndarray) -> np.ndarray:
    """The sum of each row as a Python integer, in an array of objects."""
    # NumPy makes Python's integers of a buffer of numbers at a time.
    dtype = object if can_overflow(bound(piece) * piece.shape[1], piece.dtype) else piece.dtype
    return np.asarray(np.add.reduce(piece, axis=1, dtype=dtype)).astype(object)


def check_list_sums(name: str, blocks: Sequence[np.ndarray], dtype: DType, region: Region) -> None:
    """Raises DataError, with the exact sum, if a sum over a list of arrays of one shape is out of range.

    `dtype` is the dtype of the sums, `region` the region of the result that they are.
    """
    if not can_overflow(sum(map(bound, blocks)), dtype):
        return
    for first in range(0, blocks[0].size, _PIECE):
        pieces = (block.flat[first : first + _PIECE].astype(dtype).astype(object) for block in blocks)
        check_exact(name, functools.reduce(operator.add, pieces), dtype, region, first)


def check_exact(name: str, sums: np.ndarray, dtype: DType, region: Region, first: int) -> None:
    """Raises DataError for the first of these sums (Python integers) that is out of the range of the dtype.

    The sums are consecutive elements, in C order, of a `region` of the result; `first` is the index of the
    first one in the flattened region.
    """
    low, high = limits(dtype)
    for i, value in enumerate(sums.flat):
        if not low <= value <= high:
            place = np.unravel_index(first + i, region.shape)
            index = [int(p) + start for p, start in zip(place, region.starts, strict=True)]
            at = f" at {index}" if index else ""
            raise _out_of_range(f"`{name}`{at} is {value},", dtype)


def _out_of_range(what: str, dtype: DType, where: str = "") -> DataError:
    low, high = limits(dtype)
    hint = "Write cast(…, 'float64') around its operands to compute it as a float, which rounds."
    if dtype.itemsize < 8:
        hint = "Write cast(…, 'int64') around its operands to compute it in 64 bits."
    return DataError(f"{what} out of range of {dtype.name}, {low} to {high}{where}", hint=hint)
