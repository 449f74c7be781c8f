"""Subscripts of NumPy as subscripts of the expression language, for arrays of known shapes."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.live.indexing import entries_of, indices_of


def parse_subscript(index: Any, shape: Shape) -> tuple[list[Any], list[Any]]:
    """Translate an index of NumPy to items of a subscript, and arguments of a `take` before that, if any.

    Slices of NumPy may exceed an array; these items are integers, slices and None within it, without slices
    of whole axes at the end. Raises IndexError as NumPy does, and TypeError for unsupported indices: arrays
    together with integers, several arrays.
    """
    items = entries_of(index, shape)
    arrays = [item for item in items if isinstance(item, list | np.ndarray)]
    if not arrays:
        return _basic(items, shape), []
    if len(arrays) > 1 or not all(isinstance(item, slice | list | np.ndarray | None) for item in items):
        raise TypeError("more than one array, or an array together with integers, in a subscript")
    along = [item for item in items if item is not None]
    axis = next(i for i, item in enumerate(along) if isinstance(item, list | np.ndarray))
    array = np.asarray(along[axis])
    if array.ndim != 1:
        raise TypeError(f"an array of {array.ndim} axes in a subscript")
    indices = indices_of(along[axis], axis, shape[axis])
    rest = [slice(None) if isinstance(item, list | np.ndarray) else item for item in items]
    shape_after = (*shape[:axis], len(indices), *shape[axis + 1 :])
    return _basic(rest, shape_after), [indices.tolist(), axis]


def _basic(items: Sequence[Any], shape: Shape) -> list[Any]:
    lengths = iter(enumerate(shape))
    written = [None if item is None else _item(item, *next(lengths)) for item in items]
    while written and written[-1] == slice(None):
        written.pop()
    return written


def _item(item: Any, axis: int, length: int) -> Any:
    if isinstance(item, slice):
        return _slice(item, length)
    if isinstance(item, bool | np.bool_):
        raise TypeError("a subscript that is true or false")
    place = operator.index(item)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of bounds for axis {axis} with size {length}")
    return place


def _slice(item: slice, length: int) -> slice:
    places = range(length)[item]
    if len(places) == length and places.step == 1:
        return slice(None)
    if not places:
        return slice(0, 0)
    first, last, step = places[0], places[-1], places.step
    if step > 0:
        stop = last + 1
        return slice(first or None, None if stop == length else stop, None if step == 1 else step)
    return slice(None if first == length - 1 else first, last - 1 if last else None, step)
