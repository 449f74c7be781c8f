"""Integer arithmetic is exact: a result that its type does not hold is an error, never a wrapped number.

NumPy computes modulo two to the width. The extremes of the operands tell most of the time that nothing leaves
the type; only where they do not is each result compared with one that is computed wider. Of a sum it is the
end that counts: what leaves the type on the way and comes back is right, so that no order of adding, and
no chunking, decides.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.core.dtypes import kind, limits
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.tiles import tile_shape

DType = np.dtype[Any]
Ufunc = Callable[..., Any]

_PIECE = 1 << 15
"""Elements that exist as Python's integers at a time."""

_OPERATORS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def exact(symbol: str, ufunc: Ufunc, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`left symbol right`, by `ufunc`, of integers of one type.

    Raises DataError, with the two values whose result is furthest out, where the type does not hold a result.
    """
    result = np.asarray(ufunc(left, right))
    if result.size and not _extremes_fit(symbol, left, right):
        _check_each(symbol, ufunc, left, right, result)
    return result


def check_sign(told: str, block: np.ndarray) -> None:
    """DataError where the block has the integer whose negative its type lacks. `told` has `{}` for it."""
    low, _ = _limits(block.dtype)
    if low < 0 and block.size and block.min() == low:
        raise _out_of_range(told.format(low), block.dtype, int(np.count_nonzero(block == low)), block.size)


def _limits(dtype: DType) -> tuple[int, int]:
    low, high = limits(dtype)
    return int(low), int(high)


def _extremes(block: np.ndarray) -> tuple[int, int]:
    return int(block.min()), int(block.max())


def _extremes_fit(symbol: str, left: np.ndarray, right: np.ndarray) -> bool:
    """Whether no result can leave the type. False also where a look at each is needed."""
    low, high = _limits(left.dtype)
    ours, theirs = _extremes(left), _extremes(right)
    if symbol == "//":
        return not (ours[0] == low < 0 and theirs[0] <= -1 <= theirs[1])
    if symbol == "**":
        return max(map(abs, ours)).bit_length() * theirs[1] <= high.bit_length()
    results = [_OPERATORS[symbol](a, b) for a in ours for b in theirs]
    return low <= min(results) and max(results) <= high


def _check_each(symbol: str, ufunc: Ufunc, left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    left, right = (np.broadcast_to(side, result.shape) for side in (left, right))
    count, worst = 0, (-1.0, 0, 0)
    for tile in chunk_regions(result.shape, tile_shape(result.shape, (result, left, right))):
        cut: tuple[Any, ...] = (*tile.slices, ...)  # the ellipsis makes arrays even where there are no axes
        a, b, wrapped = (block[cut] for block in (left, right, result))
        gone = np.nonzero(_wrapped(symbol, ufunc, a, b, wrapped).ravel())[0]
        if gone.size:
            a, b = a.ravel()[gone], b.ravel()[gone]
            sizes = np.abs(ufunc(a, b, dtype=np.float64))
            at = int(np.argmax(sizes))
            count, worst = count + gone.size, max(worst, (float(sizes[at]), int(a[at]), int(b[at])))
    if count:
        told = f"`{symbol}`: {worst[1]} {symbol} {worst[2]}"
        raise _out_of_range(told, result.dtype, count, result.size)


def _wrapped(
    symbol: str, ufunc: Ufunc, left: np.ndarray, right: np.ndarray, result: np.ndarray
) -> np.ndarray:
    """A mask of the results that are not the exact ones."""
    width = 8 * result.dtype.itemsize
    if symbol == "**" or width == 64:
        # A wrong result is off by a multiple of 2**width, a float by much less than half of that.
        off = np.abs(ufunc(left, right, dtype=np.float64) - result)
        return np.asarray(off >= 2.0 ** (width - 1))
    # Of twice the width: exact, or modulo 2**(2 * width), which tells the two apart just as well.
    return np.asarray(ufunc(left, right, dtype=f"i{2 * result.dtype.itemsize}") != result)


# --- sums -------------------------------------------------------------------------------------------------


def summation(dtype: DType) -> DType:
    """What values of a computation type are summed in: integers and bools in int64, uint64 in itself."""
    return np.dtype(np.int64) if kind(dtype) in "biu" and dtype.name != "uint64" else dtype


def bound(block: np.ndarray) -> int:
    """What no absolute value of an integer or bool block is above. Data are looked at of wide types only."""
    if kind(block.dtype) == "b":
        return 1
    if block.dtype.itemsize < 8:
        return max(map(abs, _limits(block.dtype)))
    return max(map(abs, _extremes(block))) if block.size else 0


def can_overflow(magnitude: float, dtype: DType) -> bool:
    """Whether numbers of at most this magnitude may be beyond the type."""
    return magnitude > _limits(dtype)[1]


def check_sums(name: str, rows: np.ndarray, magnitude: int, region: Region) -> None:
    """DataError with the exact sum of a row of a matrix where the matrix' type does not hold it.

    No element is above `magnitude`. The sums make up the `region` of the result.
    """
    height, length = rows.shape
    if not can_overflow(magnitude * length, rows.dtype):
        return
    width = min(length, _PIECE)
    tall = _PIECE // width
    for top in range(0, height, tall):
        pieces = (rows[top : top + tall, left : left + width] for left in range(0, length, width))
        check_exact(name, functools.reduce(operator.add, map(_exact_sums, pieces)), rows.dtype, region, top)


def _exact_sums(piece: np.ndarray) -> np.ndarray:
    """The sum of each row as one of Python's integers."""
    if can_overflow(bound(piece) * piece.shape[1], piece.dtype):
        piece = piece.astype(object)
    return np.asarray(np.add.reduce(piece, axis=1)).astype(object)


def check_list_sums(name: str, blocks: Sequence[np.ndarray], dtype: DType, region: Region) -> None:
    """DataError with an exact sum over a list of equal shapes where `dtype` does not hold it."""
    if not can_overflow(sum(map(bound, blocks)), dtype):
        return
    for first in range(0, blocks[0].size, _PIECE):
        pieces = (block.flat[first : first + _PIECE].astype(dtype).astype(object) for block in blocks)
        check_exact(name, functools.reduce(operator.add, pieces), dtype, region, first)


def check_exact(name: str, sums: np.ndarray, dtype: DType, region: Region, first: int) -> None:
    """DataError with the first of the sums, Python's integers, that the type does not hold.

    They are elements of the region of a result, from the one at `first` on, in C order.
    """
    low, high = _limits(dtype)
    for i, value in enumerate(sums.flat):
        if not low <= value <= high:
            place = np.unravel_index(first + i, region.shape)
            index = [int(p) + start for p, start in zip(place, region.starts, strict=True)]
            at = f" at {index}" if index else ""
            raise DataError(f"`{name}`{at} is {value}, {_range(dtype)}", hint=_room(dtype))


def _out_of_range(told: str, dtype: DType, count: int, total: int) -> DataError:
    return DataError(f"{told} is {_range(dtype)} ({count:,} of {total:,} values here)", hint=_room(dtype))


def _range(dtype: DType) -> str:
    low, high = _limits(dtype)
    return f"out of range of {dtype.name}, {low} to {high}"


def _room(dtype: DType) -> str:
    if dtype.itemsize < 8:
        return "cast(…, 'int64') around what it is computed from gives it room."
    return "cast(…, 'float64') around what it is computed from gives it room, and rounds."
