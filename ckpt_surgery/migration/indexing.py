"""Translate subscripts of NumPy, whose slices may exceed an array, to those of the recipe language."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.live.indexing import indices_of


@dataclass(frozen=True)
class Subscript:
    """A subscript with all items within an array of known shape."""

    items: tuple[Any, ...]
    """Integers, slices and None, as the recipe language takes them."""
    axis: int | None = None
    """Axis along which elements are taken by index first, if any."""
    indices: np.ndarray | None = None
    """Those indices; none is negative."""

    @property
    def written(self) -> Any:
        """The items as an index, without slices of whole axes at the end."""
        last = max(i for i, item in enumerate(self.items) if item != slice(None))
        return self.items[0] if last == 0 else self.items[: last + 1]

    @property
    def is_whole(self) -> bool:
        """True if it selects the whole array."""
        return self.indices is None and all(item == slice(None) for item in self.items)


def parse_subscript(index: Any, shape: Shape) -> Subscript:
    """Translate an index of NumPy. Raises IndexError as NumPy does, and TypeError for unsupported indices:
    arrays together with integers, several arrays."""
    given = index if isinstance(index, tuple) else (index,)
    items = _for_axes(given, shape)
    arrays = [item for item in items if isinstance(item, list | np.ndarray)]
    if not arrays:
        return Subscript(_basic(items, shape))
    if len(arrays) > 1 or any(_is_integer(item) for item in items):
        raise TypeError("more than one array, or an array together with integers, in a subscript")
    along = [item for item in items if item is not None]
    axis = next(i for i, item in enumerate(along) if isinstance(item, list | np.ndarray))
    array = np.asarray(along[axis])
    if array.ndim != 1:
        raise TypeError(f"an array of {array.ndim} axes in a subscript")
    indices = indices_of(along[axis], axis, shape[axis])
    rest = tuple(slice(None) if isinstance(item, list | np.ndarray) else item for item in items)
    shape_after = (*shape[:axis], len(indices), *shape[axis + 1 :])
    return Subscript(_basic(rest, shape_after), axis, indices)


def _is_integer(item: Any) -> bool:
    return item is not None and not isinstance(item, slice | list | np.ndarray)


def _for_axes(items: Sequence[Any], shape: Shape) -> list[Any]:
    """Expand `...` and missing trailing items to slices of whole axes."""
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed"
        )
    at = places[0] if places else len(items)
    filler = [slice(None)] * (len(shape) - used)
    return [*items[:at], *filler, *items[at + 1 :]]


def _basic(items: Sequence[Any], shape: Shape) -> tuple[Any, ...]:
    lengths = iter(enumerate(shape))
    return tuple(None if item is None else _item(item, *next(lengths)) for item in items)


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
