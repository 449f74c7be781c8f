"""A reshape as independent groups of axes: which axes of the input become which axes of the output.

A reshape of `[2, 6, 5]` to `[2, 2, 3, 5]` has three groups: 2 → 2, 6 → 2 × 3 and 5 → 5.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.rewrites.reshaping import matching_axes


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

    def flat_indices(self, region: Region, box: Region) -> np.ndarray:
        """Indices of the part's elements in the flattened `box`, int64, in the order of the output."""
        part = self.part(region)
        flat = np.zeros((), np.int64)
        for start, stop, length in zip(part.starts, part.stops, self.new, strict=True):
            flat = flat[..., None] * length + np.arange(start, stop)
        # Only leading axes of the box are cut, so its elements are contiguous in C order.
        return flat.ravel() - _ravelled(box.starts, self.old)


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
