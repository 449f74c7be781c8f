"""NumPy's indices: as a region to read and an index into its block, and as subscripts of expressions."""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.text import abridged

GAP_BYTES = 2**15
"""Elements that lie at most this many bytes apart in an uncompressed array are read together."""
RUN_BYTES = 2**24
"""Maximum bytes of a region that is read for only some of its elements."""

Picked = range | np.ndarray
"""Ascending indices along one axis, each once."""


def parse_index(index: Any, shape: Shape) -> tuple[list[Picked], tuple[Any, ...]]:
    """Split an index into the indices that are needed along each axis, and an index into their elements.

    It consists of integers, slices, `...`, None, and at most one array of integers or booleans, which has one
    axis if it is of booleans. Raises IndexError for everything else, and for indices out of bounds.
    """
    picked: list[Picked] = []
    rest: list[Any] = []
    for entry in entries_of(index, shape):
        if entry is None:
            rest.append(None)
        else:
            indices, remaining = _parse(entry, len(picked), shape[len(picked)])
            picked.append(indices)
            rest.append(remaining)
    if sum(isinstance(indices, np.ndarray) for indices in picked) > 1:
        raise IndexError("only one axis can have an array as its index; index the result once more")
    return picked, (*rest, ...)


def entries_of(index: Any, shape: Shape) -> list[Any]:
    """Expand an index to an entry for each axis, and None for new ones. Raises IndexError for too many."""
    entries = index if isinstance(index, tuple) else (index,)
    named = sum(entry is not None and entry is not ... for entry in entries)
    if named > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} axes, but {named} are indexed")
    places = [i for i, entry in enumerate(entries) if entry is ...]
    if len(places) > 1:
        raise IndexError("an index can have only a single ellipsis ('...')")
    at = places[0] if places else len(entries)
    return [*entries[:at], *[slice(None)] * (len(shape) - named), *entries[at + 1 :]]


def _parse(entry: Any, axis: int, length: int) -> tuple[Picked, Any]:
    """Indices that are needed along one axis, and an index into their elements. Raises IndexError."""
    if isinstance(entry, slice):
        indices = range(length)[entry]
        return (indices, slice(None)) if indices.step > 0 else (indices[::-1], slice(None, None, -1))
    is_number = getattr(entry, "ndim", 0) == 0 and not isinstance(entry, bool | np.bool_)
    if is_number and hasattr(entry, "__index__"):
        number = _index(entry, axis, length) % length
        return range(number, number + 1), 0
    wanted = indices_of(entry, axis, length)
    unique, inverse = np.unique(wanted, return_inverse=True)
    return unique, inverse.reshape(wanted.shape)


def _index(entry: Any, axis: int, length: int) -> int:
    number = operator.index(entry)
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
    return number


def indices_of(entry: Any, axis: int, length: int) -> np.ndarray:
    """Indices along an axis, none negative, from an array of integers or booleans. Raises IndexError."""
    array = np.asarray(entry)
    if array.size == 0 and not hasattr(entry, "dtype"):
        array = array.astype(np.intp)
    if array.dtype == np.bool_:
        if array.shape != (length,):
            raise IndexError(f"boolean index of shape {list(array.shape)} for axis {axis} with size {length}")
        array = np.flatnonzero(array)
    if array.dtype.kind not in "iu" or not array.ndim:
        raise IndexError(
            f"an index is an integer, a slice, `...`, None or an array of integers: {abridged(entry)}"
        )
    outside = array[(array < -length) | (array >= length)]
    if outside.size:
        raise IndexError(f"index {outside[0]} is out of bounds for axis {axis} with size {length}")
    wanted: np.ndarray = array.astype(np.intp) % max(length, 1)
    return wanted


def read_picked(
    picked: Sequence[Picked], spec: ArraySpec, unit: Shape | None, read: Callable[[Region], np.ndarray]
) -> np.ndarray:
    """Read the elements with these indices along each axis, as one block.

    `unit`: shape of the chunks that are read as a whole; None where bytes can be read in any ranges. No
    other chunks are read, and of bytes only gaps up to `GAP_BYTES`.
    """
    if not all(map(len, picked)):
        return np.empty(tuple(map(len, picked)), spec.dtype)
    runs = []
    for axis, indices in enumerate(picked):
        stride = math.prod(spec.shape[axis + 1 :]) * spec.dtype.itemsize
        runs.append(list(_runs(indices, None if unit is None else unit[axis], stride)))
    if all(len(parts) == 1 for parts in runs):
        return _read_runs([parts[0][1] for parts in runs], read)
    block: np.ndarray = np.empty(tuple(map(len, picked)), spec.dtype)
    for parts in itertools.product(*runs):
        block[tuple(place for place, _ in parts)] = _read_runs([indices for _, indices in parts], read)
    return block


def _read_runs(runs: Sequence[Picked], read: Callable[[Region], np.ndarray]) -> np.ndarray:
    """Elements with these indices, read as one region."""
    starts = tuple(int(run[0]) for run in runs)
    region = Region(starts, tuple(int(run[-1]) + 1 for run in runs))
    block = read(region)
    for axis, (run, start) in enumerate(zip(runs, starts, strict=True)):
        if len(run) < region.shape[axis]:
            within = slice(None, None, run.step) if isinstance(run, range) else run - start
            block = block[(slice(None),) * axis + (within,)]
    return block


def _runs(indices: Picked, unit: int | None, stride: int) -> Iterator[tuple[slice, Picked]]:
    """Group indices along an axis into runs that are read together, each with its place in the result.

    `stride`: bytes from one index to the next.
    """
    if isinstance(indices, range) and indices.step == 1:
        yield slice(0, len(indices)), indices
        return
    numbers = np.asarray(indices) // (unit or 1)
    apart = 1 if unit else max(1, GAP_BYTES // stride)
    most = max(1, RUN_BYTES // (stride * (unit or 1)))
    ends = [*(np.flatnonzero(np.diff(numbers) > apart) + 1).tolist(), len(numbers)]
    start = 0
    for end in ends:
        while start < end:
            stop = int(np.searchsorted(numbers[start:end], numbers[start] + most)) + start
            yield slice(start, stop), indices[start:stop]
            start = stop


def parse_subscript(index: Any, shape: Shape) -> tuple[list[Any], list[Any]]:
    """Translate an index of NumPy to items of a subscript, and arguments of a `take` before that, if any.

    Slices of NumPy may exceed an array; these items are integers, slices and None within it, without slices
    of whole axes at the end. Raises IndexError as NumPy does, and TypeError for unsupported indices: arrays
    together with integers, several arrays.
    """
    items = entries_of(index, shape)
    arrays = [item for item in items if isinstance(item, list | np.ndarray)]
    if arrays and sum(not isinstance(item, slice | None) for item in items) > 1:
        raise TypeError("more than one array, or an array together with integers, in a subscript")
    written: list[Any] = []
    taken: list[Any] = []
    axis = 0
    for item in items:
        if item is None:
            written.append(None)
            continue
        if isinstance(item, slice):
            written.append(_slice(item, shape[axis]))
        elif arrays:
            if np.ndim(item) != 1:
                raise TypeError(f"an array of {np.ndim(item)} axes in a subscript")
            taken = [indices_of(item, axis, shape[axis]).tolist(), axis]
            written.append(slice(None))
        elif isinstance(item, bool | np.bool_):
            raise TypeError("a subscript that is true or false")
        else:
            written.append(_index(item, axis, shape[axis]))
        axis += 1
    while written and written[-1] == slice(None):
        written.pop()
    return written, taken


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
