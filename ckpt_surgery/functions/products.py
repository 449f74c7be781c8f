"""Products of several arrays summed over axes: the computation behind `@` and `einsum`."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.dtypes import DType, is_integer, promoted
from ckpt_surgery.functions.elementwise import broadcast_needs
from ckpt_surgery.functions.integers import bound, can_overflow, check_exact, summation


def contraction(dtypes: Sequence[DType], name: str) -> DType:
    """The dtype that products of these dtypes are computed and summed in: 64 bits for integers.

    Products of bools stay bool: `and` takes the place of the product, `or` that of the sum. Raises
    FunctionError, which calls the function `name`, if the dtypes cannot be combined.
    """
    work = promoted(dtypes, name)
    return summation(work) if is_integer(work) else work


_BLOCK_ELEMENTS = 1 << 15
"""How many elements of the result are summed at a time, so that their sums stay in the processor's cache."""


def summed_products(name: str, operands: Sequence[np.ndarray], shape: Shape, region: Region) -> np.ndarray:
    """The product of all operands, summed over all axes except the leading ones, whose lengths are `shape`.

    All operands have the same number of axes, and broadcast. `region` is the region of the result that the
    sums are; its shape is `shape`, but for axes of length 1. Raises DataError, which calls the function
    `name`, with the exact value of an integer sum that is out of the range of its dtype.
    """
    outer, dtype = len(shape), operands[0].dtype
    summed = np.broadcast_shapes(*(operand.shape[outer:] for operand in operands))
    terms = [np.broadcast_to(operand, operand.shape[:outer] + summed) for operand in operands]
    checked = is_integer(dtype) and _may_overflow(operands, summed)
    result: np.ndarray = np.zeros(shape, dtype)
    for part in chunk_regions(shape, _blocks(shape)):
        cut = [term[broadcast_needs(part, term.shape[:outer]).slices] for term in terms]
        view: tuple[Any, ...] = (*part.slices, ...)  # the ellipsis makes one even where there are no axes
        _add_products(result[view], cut, summed)
        if checked and _may_overflow(cut, summed):
            sizes: np.ndarray = np.zeros(part.shape, np.float64)
            _add_products(sizes, cut, summed, lambda factor: np.abs(factor.astype(np.float64)))
            if not can_overflow(2 * sizes.max(), dtype):  # twice, because the float64 sums are rounded
                continue
            exact: np.ndarray = np.zeros(part.shape, object)
            _add_products(exact, cut, summed, lambda factor: factor.astype(object))
            check_exact(name, exact, dtype, region, int(np.ravel_multi_index(part.starts, shape)))
    return result


def _add_products(
    total: np.ndarray,
    terms: Sequence[np.ndarray],
    summed: Shape,
    changed: Callable[[np.ndarray], np.ndarray] = lambda factor: factor,
) -> None:
    """Adds to `total` the products of the terms at each index of their trailing axes `summed`, one by one."""
    for index in np.ndindex(*summed):
        total += functools.reduce(np.multiply, (changed(term[(..., *index)]) for term in terms))


def _may_overflow(operands: Sequence[np.ndarray], summed: Shape) -> bool:
    magnitude = math.prod(map(bound, operands)) * math.prod(summed)
    return can_overflow(magnitude, operands[0].dtype)


def _blocks(shape: Shape) -> Shape:
    """The shape of blocks of at most `_BLOCK_ELEMENTS` elements, with as many whole trailing axes as fit."""
    room = _BLOCK_ELEMENTS
    lengths: list[int] = []
    for length in reversed(shape):
        lengths.append(max(1, min(length, room)))
        room //= lengths[-1]
    return tuple(reversed(lengths))
