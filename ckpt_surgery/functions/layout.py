"""Functions that arrange elements anew and compute none: exact for every dtype."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites import matching_axes, replaced, reshaped, transposed
from ckpt_surgery.core.selections import (
    Selection,
    as_array,
    bounding_box,
    count,
    distinct,
    of_region,
    whole,
    within,
)
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.base import Blocks, Function, Number, Specs
from ckpt_surgery.functions.dtypes import number_as


def axis_of(axis: int, ndim: int, name: str) -> int:
    """`axis` counted from the front. FunctionError where an array of `ndim` axes has no such axis."""
    if not -ndim <= axis < ndim:
        raise FunctionError(f"`{name}`: there is no axis {axis} in an array of {ndim} axes")
    return axis % ndim


def axes_of(axes: Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """Several axes counted from the front. FunctionError where one is missing or given twice."""
    found = tuple(axis_of(axis, ndim, name) for axis in axes)
    if len(set(found)) < len(found):
        raise FunctionError(f"`{name}`: an axis is given twice in {tuple(axes)}")
    return found


@dataclass(frozen=True)
class Transpose(Function):
    """`transpose(x, axes=None)`: output axis `i` is input axis `axes[i]`; without axes all are reversed."""

    name: ClassVar[str] = "transpose"
    is_layout: ClassVar[bool] = True
    axes: tuple[int, ...] | None = None

    def permutation(self, ndim: int) -> tuple[int, ...]:
        """The axes of the input in the order of the output. FunctionError where `axes` is not that."""
        if self.axes is None:
            return tuple(reversed(range(ndim)))
        if len(self.axes) != ndim:
            raise FunctionError(f"`transpose`: {len(self.axes)} axes given for an array of {ndim}")
        return axes_of(self.axes, ndim, self.name)

    def infer(self, ins: Specs) -> ArraySpec:
        shape = tuple(ins[0].shape[axis] for axis in self.permutation(ins[0].ndim))
        return ArraySpec(shape, ins[0].dtype)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, tuple(selection[i] for i in np.argsort(self.permutation(ins[0].ndim))))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return blocks[0].transpose(self.permutation(ins[0].ndim))

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        return self.permutation(ins[0].ndim)[axis], 0

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return transposed(manifests[0], self.permutation(manifests[0].spec.ndim))


@dataclass(frozen=True)
class Reshape(Function):
    """`reshape(x, shape)`: the same elements in C order; one length may be -1, which takes what is left."""

    name: ClassVar[str] = "reshape"
    is_layout: ClassVar[bool] = True
    shape: int | tuple[int, ...]

    def infer(self, ins: Specs) -> ArraySpec:
        shape = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        known = math.prod(length for length in shape if length != -1)
        if shape.count(-1) > 1 or min(shape, default=0) < -1:
            raise FunctionError(f"`reshape`: one length of {_text(shape)} may be -1, none else negative")
        if -1 in shape and known and ins[0].size % known == 0:
            shape = replaced(shape, shape.index(-1), ins[0].size // known)
        if -1 in shape or math.prod(shape) != ins[0].size:
            raise FunctionError(
                f"`reshape`: {_text(ins[0].shape)} has {ins[0].size:,} elements, {_text(shape)} has {known:,}"
                + (" times the length left open" if -1 in shape else "")
            )
        return ArraySpec(shape, ins[0].dtype)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        starts: list[int] = []
        stops: list[int] = []
        for group in _groups(ins[0].shape, self.infer(ins).shape):
            box = group.box(region)
            starts += box.starts
            stops += box.stops
        return [(0, Region(tuple(starts), tuple(stops)))]

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        groups = _groups(ins[0].shape, self.infer(ins).shape)
        choices = itertools.product(*(group.uses(selection) for group in groups))
        return [(0, tuple(itertools.chain.from_iterable(choice))) for choice in choices]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        groups = _groups(ins[0].shape, self.infer(ins).shape)
        boxes = [group.box(region) for group in groups]
        block = blocks[0] if blocks[0].shape == region.shape else to_c_order(blocks[0])
        block = block.reshape([box.size for box in boxes])
        for axis, (group, box) in enumerate(zip(groups, boxes, strict=True)):
            if group.part(region).size != box.size:
                block = np.take(block, group.places(region, box), axis=axis)
        return block.reshape(region.shape)

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        first_old = 0
        for group in _groups(ins[0].shape, self.infer(ins).shape):
            if group.first_new == axis and len(group.old) == len(group.new) == 1:
                return first_old, 0
            first_old += len(group.old)
        return None

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return reshaped(manifests[0], self.infer([manifests[0].spec]).shape)


def _text(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


@dataclass(frozen=True)
class _Group:
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
def _groups(old: Shape, new: Shape) -> tuple[_Group, ...]:
    """The finest split of both shapes into groups of equal size, in order."""
    if 0 in old:
        return (_Group(old, new, 0),)
    cuts = itertools.pairwise(matching_axes(old, new))
    return tuple(_Group(old[i:end], new[j:new_end], j) for (i, j), (end, new_end) in cuts)


@dataclass(frozen=True)
class Pad(Function):
    """`pad(x, axis, to, value=0)`: the axis made `to` elements long, with `value` after the last one.

    Raises FunctionError where the axis is longer than that already, or where the dtype has no such value.
    """

    name: ClassVar[str] = "pad"
    is_layout: ClassVar[bool] = True
    axis: int
    to: int
    value: Number = 0

    def infer(self, ins: Specs) -> ArraySpec:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        if ins[0].shape[axis] > self.to:
            raise FunctionError(f"`pad`: axis {axis} of {ins[0]} is longer than {self.to} already")
        number_as(self.value, ins[0].dtype)
        return ArraySpec(replaced(ins[0].shape, axis, self.to), ins[0].dtype)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        stop = min(region.stops[axis], ins[0].shape[axis])
        if stop <= region.starts[axis]:
            return []
        return [(0, Region(region.starts, replaced(region.stops, axis, stop)))]

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        inside = within(selection[axis], 0, ins[0].shape[axis])
        return [(0, (*selection[:axis], inside, *selection[axis + 1 :]))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        if blocks and blocks[0].shape == region.shape:
            return blocks[0]
        padded: np.ndarray[Any, Any] = np.full(region.shape, number_as(self.value, ins[0].dtype))
        if blocks:
            padded[tuple(slice(n) for n in blocks[0].shape)] = blocks[0]
        return padded
