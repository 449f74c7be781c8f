"""Which axes of an array a reshape turns into which: groups that are independent of each other."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.rewrites.reshaping import matching_axes
from ckpt_surgery.core.selections import (
    Selection,
    as_array,
    bounding_box,
    count,
    distinct,
    of_region,
    whole,
)


@dataclass(frozen=True)
class AxisGroup:
    """Neighbouring axes that a reshape turns into others of the same number of elements.

    Groups are independent, so a region that is a box in each of them needs a box only.
    """

    old: Shape
    new: Shape
    first_new: int
    """Number of the group's first axis in the output."""

    def part(self, region: Region) -> Region:
        """The output region's axes of this group."""
        axes = slice(self.first_new, self.first_new + len(self.new))
        return Region(region.starts[axes], region.stops[axes])

    def box(self, region: Region) -> Region:
        """The smallest box of old axes that holds the elements between the part's first and last."""
        part = self.part(region)
        if len(self.old) == len(self.new) == 1:  # one axis as it was: much the most common
            return part
        if part.size == 0:
            return Region((0,) * len(self.old), (0,) * len(self.old))
        first = _unravelled(_ravelled(part.starts, self.new), self.old)
        last = _unravelled(_ravelled([stop - 1 for stop in part.stops], self.new), self.old)
        same = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=True))])
        # Up to the first axis where the two differ the box is as narrow as they are.
        starts = first[: same + 1] + (0,) * (len(self.old) - same - 1)
        stops = tuple(i + 1 for i in last[: same + 1]) + self.old[same + 1 :]
        return Region(starts, stops)

    def uses(self, selection: Selection) -> list[Selection]:
        """The elements of the old axes, as several selections that have none in common.

        All of the smallest box where that would take too many places or selections to tell.
        """
        part = selection[self.first_new : self.first_new + len(self.new)]
        if len(self.old) == len(self.new) == 1:
            return [part]
        if count(part) == math.prod(self.new):
            return [whole(self.old)]
        exact = _unflattened(_flattened(part, self.new), self.old) if count(part) <= MOST_PLACES else None
        return [of_region(self.box(bounding_box(selection)))] if exact is None else exact

    def places(self, region: Region, box: Region) -> np.ndarray:
        """Where the part's elements are in the flattened box, int64, in the order of the output."""
        flat = _flattened(of_region(self.part(region)), self.new)
        # Of the box all axes are whole but the leading ones, so its elements are contiguous in C order.
        return flat - _ravelled(box.starts, self.old)


MOST_PLACES = 2**20
"""So many places are followed one by one through a reshape that cuts or joins axes."""
MOST_SELECTIONS = 64
"""What a reshape uses of a group of axes is told in no more selections than that."""


def _flattened(selection: Selection, shape: Shape) -> np.ndarray:
    """Where the elements are in the flattened array, int64, in order."""
    flat = np.zeros((), np.int64)
    for positions, length in zip(selection, shape, strict=True):
        flat = flat[..., None] * length + as_array(positions)
    return flat.ravel()


def _unflattened(flat: np.ndarray, shape: Shape) -> list[Selection] | None:
    """Places in a flattened array, ascending, as selections of it; None where those would be too many."""
    if flat.size == 0:
        return []
    if len(shape) < 2:
        return [(distinct(flat),) * len(shape)]
    heads, rests = np.divmod(flat, math.prod(shape[1:]))
    first, begins = np.unique(heads, return_index=True)
    alike: dict[bytes, tuple[list[int], np.ndarray]] = {}
    for head, rest in zip(first.tolist(), np.split(rests, begins[1:]), strict=True):
        alike.setdefault(rest.tobytes(), ([], rest))[0].append(head)
        if len(alike) > MOST_SELECTIONS:
            return None
    found: list[Selection] = []
    for same, rest in alike.values():
        tails = _unflattened(rest, shape[1:])
        if tails is None or len(found) + len(tails) > MOST_SELECTIONS:
            return None
        found += [(distinct(np.array(same)), *tail) for tail in tails]
    return found


def _ravelled(index: Sequence[int], shape: Shape) -> int:
    flat = 0
    for i, length in zip(index, shape, strict=True):
        flat = flat * length + i
    return flat


def _unravelled(flat: int, shape: Shape) -> tuple[int, ...]:
    index: list[int] = []
    for length in reversed(shape):
        flat, i = divmod(flat, length)
        index.append(i)
    return tuple(reversed(index))


@functools.lru_cache(maxsize=4096)
def axis_groups(old: Shape, new: Shape) -> tuple[AxisGroup, ...]:
    """The finest split of both shapes into groups of equal size, in order."""
    if 0 in old:
        return (AxisGroup(old, new, 0),)
    cuts = itertools.pairwise(matching_axes(old, new))
    return tuple(AxisGroup(old[i:end], new[j:new_end], j) for (i, j), (end, new_end) in cuts)
