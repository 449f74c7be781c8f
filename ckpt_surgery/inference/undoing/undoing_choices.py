"""What undoes a choice of indices along axes: subscripts, `take`, `repeat`, `tile`"""

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.selections import as_array, whole
from ckpt_surgery.functions.indexing import Copies, Index, Take
from ckpt_surgery.inference.expressions.holders import INNER, Holder, called, cut, laid, rows
from ckpt_surgery.inference.expressions.layouts import reshaping, restricted

MOST_LISTED = 1000
"""Numbers that the order of elements may take in an expression."""

Choice = Index | Take | Copies


class Lost(Exception):
    """A function keeps less than its input. The message is a clause without a full stop."""


@frozen()
class Held:
    """A region of an array that a holder holds."""

    region: Region
    holder: Holder
    """It gives an array of the region's shape."""
    dtype: DType
    """The holder's. Where the array has another, it holds the same values, none of them rounded."""
    first: int
    """Number of the first output that the holder needs."""

    def of(self, region: Region, holder: Holder) -> "Held":
        """The same of another array."""
        return Held(region, holder, self.dtype, self.first)


def before_choice(function: Choice, old: Shape, new: Shape, held: Held) -> Held:
    """What is held of the input, of shape `old`, where a region of the result, of shape `new`, is held.

    Raises Lost where the indices are not those of a region.
    """
    chosen = function.picks(whole(new), old)
    gathered = tuple(map(len, chosen))
    layout = reshaping(gathered, new)
    before = None if layout is None else restricted(layout, held.region)
    assert before is not None, "only axes of length 1 come and go"
    region, moved = before
    holder = laid(moved.inverse(), held.holder)
    starts, stops = [], []
    for axis, picked in enumerate(chosen):
        part = picked[region.starts[axis] : region.stops[axis]]
        indices = as_array(part)
        low, high = int(indices.min()), int(indices.max()) + 1
        holder = _in_order(indices - low, high - low, axis, holder)
        starts.append(low)
        stops.append(high)
    return held.of(Region(tuple(starts), tuple(stops)), holder)


def _in_order(indices: np.ndarray, length: int, axis: int, holder: Holder) -> Holder:
    """An array with the elements 0 to `length` - 1 along an axis, of one that has them at `indices`."""
    if len(indices) == length and np.array_equal(indices, np.arange(length)):
        return holder
    found, first = np.unique(indices, return_index=True)
    if len(found) < length:
        raise Lost("no output holds all of it")
    shape = holder.shape
    out = (*shape[:axis], length, *shape[axis + 1 :])
    place = axis - len(shape)
    step = int(first[1] - first[0]) if length > 1 else 1
    if len(indices) == length and step == -1 and np.array_equal(first, first[0] - np.arange(length)):
        return called(f"flip({INNER}, axis={place})", holder, out)
    if step > 0 and np.array_equal(first, first[0] + step * np.arange(length)):
        if step == 1 or length == 1:
            return cut(rows(shape, axis, int(first[0]), int(first[0]) + length), holder)
        after = ", :" * (-place - 1)
        return called(f"{INNER}[..., {int(first[0]) or ''}::{step}{after}]", holder, out)
    if length > MOST_LISTED:
        raise Lost(f"the order of its elements takes {length:,} numbers")
    return called(f"take({INNER}, {first.tolist()}, axis={place})", holder, out)
