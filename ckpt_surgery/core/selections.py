"""Which elements of an array are meant: places along each axis on its own, of which all combinations count.

Places are a range where they can be, so that a selection of a huge array is as small as one of a small one.
"""

from collections.abc import Sequence

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape

Positions = range | np.ndarray
"""Places along one axis, int64 where they are no range, in the order in which they are taken."""

Selection = tuple[Positions, ...]
"""One for each axis."""


def whole(shape: Shape) -> Selection:
    """All elements."""
    return tuple(map(range, shape))


def of_region(region: Region) -> Selection:
    """The elements of a box."""
    return tuple(map(range, region.starts, region.stops))


def count(selection: Selection) -> int:
    """Number of elements, where no place is taken twice."""
    total = 1
    for positions in selection:
        total *= len(positions)
    return total


def bounds(positions: Positions) -> tuple[int, int]:
    """The smallest interval that holds all the positions."""
    if len(positions) == 0:
        return 0, 0
    if isinstance(positions, range):
        return min(positions[0], positions[-1]), max(positions[0], positions[-1]) + 1
    return int(positions.min()), int(positions.max()) + 1


def bounding_box(selection: Selection) -> Region:
    """The smallest box that holds all the elements."""
    found = [bounds(positions) for positions in selection]
    return Region(tuple(low for low, _ in found), tuple(high for _, high in found))


def at(positions: Positions, chosen: Positions) -> Positions:
    """`positions[chosen]`; `chosen` are in ascending order."""
    if isinstance(chosen, range):
        return positions[chosen.start : chosen.stop : chosen.step]
    if isinstance(positions, range):
        return positions.start + positions.step * chosen
    return np.asarray(positions[chosen])


def as_array(positions: Positions) -> np.ndarray:
    """The same places as int64."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step)
    return positions


def within(positions: Positions, start: int, stop: int) -> Positions:
    """Those of ascending positions that lie in start:stop, counted from its start."""
    if isinstance(positions, range):
        first = positions.start + max(0, -(-(start - positions.start) // positions.step)) * positions.step
        return range(first - start, min(positions.stop, stop) - start, positions.step)
    return positions[(start <= positions) & (positions < stop)] - start


def distinct(positions: Positions) -> Positions:
    """Each place once, in ascending order: a range where they are evenly spaced."""
    if isinstance(positions, range):
        return positions if positions.step > 0 else positions[::-1]
    places = np.unique(positions)
    steps = np.unique(np.diff(places))
    if len(steps) > 1:
        return places
    if len(places) == 0:
        return range(0)
    return range(int(places[0]), int(places[-1]) + 1, int(steps[0]) if len(steps) else 1)


def broadcast(selection: Selection, shape: Shape) -> Selection:
    """What of an input of this shape a selection of the broadcast result is computed from."""
    aligned: Sequence[Positions] = selection[len(selection) - len(shape) :]
    return tuple(
        range(min(1, len(positions))) if length == 1 else positions
        for positions, length in zip(aligned, shape, strict=True)
    )
