"""Selections of elements: indices along each axis, of which all combinations are selected, as with
`numpy.ix_`.

Evenly spaced indices are a range, so that selecting most of a huge array takes no memory.
"""

import math
from collections.abc import Sequence

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape

Positions = range | np.ndarray
"""Indices along one axis: a range, or an int64 array."""

Selection = tuple[Positions, ...]
"""Indices along each axis."""


def whole(shape: Shape) -> Selection:
    """The selection of all elements of an array of this shape."""
    return tuple(map(range, shape))


def of_region(region: Region) -> Selection:
    """The selection of the elements of a region."""
    return tuple(map(range, region.starts, region.stops))


def count(selection: Selection) -> int:
    """The number of selected elements, if no index occurs twice."""
    return math.prod(map(len, selection))


def bounds(positions: Positions) -> tuple[int, int]:
    """The smallest interval (start, stop) that contains all indices; (0, 0) if there are none."""
    if len(positions) == 0:
        return 0, 0
    ends = (
        (positions[0], positions[-1]) if isinstance(positions, range) else (positions.min(), positions.max())
    )
    return int(min(ends)), int(max(ends)) + 1


def bounding_box(selection: Selection) -> Region:
    """The smallest region that contains all selected elements."""
    intervals = [bounds(positions) for positions in selection]
    return Region(tuple(low for low, _ in intervals), tuple(high for _, high in intervals))


def at(positions: Positions, chosen: Positions) -> Positions:
    """The indices `positions[chosen]`; `chosen` has to be ascending."""
    if isinstance(chosen, range):
        return positions[chosen.start : chosen.stop : chosen.step]
    if isinstance(positions, range):
        return positions.start + positions.step * chosen
    return np.asarray(positions[chosen])


def as_array(positions: Positions) -> np.ndarray:
    """The indices as an int64 array."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step)
    return positions


def within(positions: Positions, start: int, stop: int) -> Positions:
    """Ascending indices that lie in `start:stop`, counted from `start`."""
    if isinstance(positions, range):
        first = positions.start + max(0, -(-(start - positions.start) // positions.step)) * positions.step
        return range(first - start, min(positions.stop, stop) - start, positions.step)
    return positions[(start <= positions) & (positions < stop)] - start


def distinct(positions: Positions) -> Positions:
    """Each index once, in ascending order; a range if they are evenly spaced."""
    if isinstance(positions, range):
        return positions if positions.step > 0 else positions[::-1]
    places = np.unique(positions)
    steps = np.unique(np.diff(places))
    if len(steps) > 1 or not len(places):
        return places if len(places) else range(0)
    return range(int(places[0]), int(places[-1]) + 1, int(steps[0]) if len(steps) else 1)


def blocks_of(positions: Positions, length: int) -> Positions:
    """The numbers of the blocks of this length that indices are in, each once."""
    if length == 1:
        return positions
    if isinstance(positions, range) and len(positions) and 0 < positions.step <= length:
        return range(positions[0] // length, positions[-1] // length + 1)  # none of them is stepped over
    return distinct(as_array(positions) // length)


def broadcast(selection: Selection, shape: Shape) -> Selection:
    """The elements of an input of this shape that selected elements of the broadcast result come from."""
    aligned: Sequence[Positions] = selection[len(selection) - len(shape) :]
    pairs = zip(aligned, shape, strict=True)
    return tuple(range(min(1, len(places))) if length == 1 else places for places, length in pairs)


def broadcast_needs(region: Region, shape: Shape) -> Region:
    """The region of an input of this shape that a region of the broadcast result is computed from."""
    skipped = len(region.starts) - len(shape)
    bounds = zip(region.starts[skipped:], region.stops[skipped:], shape, strict=True)
    pairs = [(0, min(stop - start, 1)) if length == 1 else (start, stop) for start, stop, length in bounds]
    return Region(tuple(start for start, _ in pairs), tuple(stop for _, stop in pairs))
