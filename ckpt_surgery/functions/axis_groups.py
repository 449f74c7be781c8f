"""A reshape as independent groups of axes: which axes of the input become which axes of the output.

A reshape of `[2, 6, 5]` to `[2, 2, 3, 5]` has three groups: 2 → 2, 6 → 2 × 3 and 5 → 5.
"""

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
    """Neighbouring axes of the input that a reshape turns into neighbouring axes of the output.

    Both have the same number of elements. The index along the new axes depends on nothing but the index along
    the old ones, so each group can be treated as an array of its own.
    """

    old: Shape
    """Lengths of the group's axes in the input."""
    new: Shape
    """Lengths of the group's axes in the output."""
    first_new: int
    """Position of the first new axis in the output."""

    def part(self, region: Region) -> Region:
        """A region of the output, restricted to the axes of this group."""
        axes = slice(self.first_new, self.first_new + len(self.new))
        return Region(region.starts[axes], region.stops[axes])

    def box(self, region: Region) -> Region:
        """The smallest region of the old axes that holds all elements from the part's first to its last.

        "From first to last" is in C order, so the region also holds elements that the part does not.
        """
        part = self.part(region)
        if len(self.old) == len(self.new) == 1:  # an unchanged axis: by far the most common case
            return part
        if part.size == 0:
            return Region((0,) * len(self.old), (0,) * len(self.old))
        first = _unravelled(_ravelled(part.starts, self.new), self.old)
        last = _unravelled(_ravelled([stop - 1 for stop in part.stops], self.new), self.old)
        same = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=True))])
        # First and last agree along the leading axes: there, and along the next axis, the box is narrow.
        starts = first[: same + 1] + (0,) * (len(self.old) - same - 1)
        stops = tuple(i + 1 for i in last[: same + 1]) + self.old[same + 1 :]
        return Region(starts, stops)

    def uses(self, selection: Selection) -> list[Selection]:
        """The elements of the old axes that these elements of the output come from, as disjoint selections.

        If computing that exactly takes too many indices or selections, the whole `box` is returned instead.
        """
        part = selection[self.first_new : self.first_new + len(self.new)]
        if len(self.old) == len(self.new) == 1:
            return [part]
        if count(part) == math.prod(self.new):
            return [whole(self.old)]
        exact = _unflattened(_flattened(part, self.new), self.old) if count(part) <= MOST_FOLLOWED else None
        return [of_region(self.box(bounding_box(selection)))] if exact is None else exact

    def flat_indices(self, region: Region, box: Region) -> np.ndarray:
        """Indices of the part's elements in the flattened `box`, int64, in the order of the output."""
        flat = _flattened(of_region(self.part(region)), self.new)
        # Only leading axes of the box are cut, so its elements are contiguous in C order.
        return flat - _ravelled(box.starts, self.old)


MOST_FOLLOWED = 2**20
"""Limit on the elements of one group up to which `uses` is exact; beyond, it is the surrounding box."""
MOST_SELECTIONS = 64
"""Limit on the selections that `uses` returns for one group; beyond, it is the surrounding box."""


def _flattened(selection: Selection, shape: Shape) -> np.ndarray:
    """Indices of the selected elements in the flattened array, int64, in C order."""
    flat = np.zeros((), np.int64)
    for positions, length in zip(selection, shape, strict=True):
        flat = flat[..., None] * length + as_array(positions)
    return flat.ravel()


def _unflattened(flat: np.ndarray, shape: Shape) -> list[Selection] | None:
    """Ascending indices of a flattened array, as disjoint selections of the array of this shape.

    None if more than MOST_SELECTIONS are needed.
    """
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
    """The groups of a reshape from `old` to `new`, in order, each with as few axes as possible."""
    if 0 in old:
        return (AxisGroup(old, new, 0),)
    cuts = itertools.pairwise(matching_axes(old, new))
    return tuple(AxisGroup(old[i:end], new[j:new_end], j) for (i, j), (end, new_end) in cuts)
