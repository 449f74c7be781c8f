"""Functions that move elements and compute none: exact for every dtype."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.arrays import ArraySpec, Manifest, Region, Shape
from ckpt_surgery.errors import FunctionError
from ckpt_surgery.functions import Blocks, Function, Number, Specs
from ckpt_surgery.functions.dtypes import number_as
from ckpt_surgery.functions.patterns import Plan, plan_rearrange
from ckpt_surgery.functions.tiles import straightened
from ckpt_surgery.manifests import (
    MOST_CHUNKS,
    Positions,
    gathered,
    matching_axes,
    replaced,
    reshaped,
    transposed,
)

Item = int | tuple[int | None, int | None, int | None] | EllipsisType | None
"""What a subscript has between commas: an index, a slice as (start, stop, step), `...`, or a new axis."""


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


class _Gather(Function):
    """Functions that take positions of the input along each axis on its own."""

    moves_only: ClassVar[bool] = True

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        """For each axis of the input: which of its positions the output region takes."""
        raise NotImplementedError

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        bounds = [_bounds(positions) for positions in self.picks(region, ins[0].shape)]
        return [(0, Region(tuple(low for low, _ in bounds), tuple(high for _, high in bounds)))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = blocks[0]
        if region.size == 0:  # of a new axis, it may be, that no axis of the input knows about
            return np.empty(region.shape, block.dtype)
        for axis, positions in enumerate(self.picks(region, ins[0].shape)):
            block = _taken(block, axis, positions)
        return block.reshape(region.shape)

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        found: Manifest | None = manifests[0]
        spec = manifests[0].spec
        out = self.infer([spec])
        if out.size > spec.size and max(out.shape) > MOST_CHUNKS:
            return None  # too many positions to look at
        for axis, positions in enumerate(self.picks(Region.whole(out.shape), spec.shape)):
            found = found and gathered(found, axis, positions)
        return found and reshaped(found, out.shape)


def _bounds(positions: Positions) -> tuple[int, int]:
    """The smallest interval that holds all the positions."""
    if len(positions) == 0:
        return 0, 0
    if isinstance(positions, range):
        return min(positions[0], positions[-1]), max(positions[0], positions[-1]) + 1
    return int(positions.min()), int(positions.max()) + 1


def _taken(block: np.ndarray, axis: int, positions: Positions) -> np.ndarray:
    """`block` starts at the lowest of the positions along `axis`; a range makes a view."""
    low, high = _bounds(positions)
    if not isinstance(positions, range):
        return np.take(block, positions - low, axis=axis)
    if len(positions) == high - low and positions.step > 0:
        return block
    cut = slice(None, None, positions.step)
    return block[(slice(None),) * axis + (cut,)]


@dataclass(frozen=True)
class Index(_Gather):
    """`x[…]`: indices, slices with steps, `...` and new axes, as in NumPy.

    An index or an explicit bound of a slice beyond the array is an error, where NumPy would clip the
    slice. Raises FunctionError for that, for a step of 0, and for more items than the array has axes.
    """

    kind: ClassVar[str] = "index"
    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        if sum(item is ... for item in self.items) > 1:
            raise FunctionError("a subscript can have one `...` only")
        if any(isinstance(item, tuple) and item[2] == 0 for item in self.items):
            raise FunctionError("the step of a slice cannot be 0")

    def infer(self, ins: Specs) -> ArraySpec:
        shape: list[int] = []
        axis = 0
        taken = self._taken(ins[0].shape)
        for item in self._expanded(len(ins[0].shape)):
            if isinstance(item, tuple):
                shape.append(len(taken[axis]))
            elif item is None:
                shape.append(1)
            axis += item is not None
        return ArraySpec(tuple(shape), ins[0].dtype)

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        bounds = iter(zip(region.starts, region.stops, strict=True))
        picked: list[Positions] = []
        taken = iter(self._taken(shape))
        for item in self._expanded(len(shape)):
            if item is None:
                next(bounds)
            elif isinstance(item, tuple):
                picked.append(next(taken)[slice(*next(bounds))])
            else:
                picked.append(next(taken))
        return tuple(picked)

    def window(self, ins: Specs) -> tuple[Function, Region] | None:
        bounds = [_bounds(positions) for positions in self._taken(ins[0].shape)]
        items = tuple(
            (None, None, item[2]) if isinstance(item, tuple) else item and 0
            for item in self._expanded(ins[0].ndim)
        )
        return Index(items), Region(tuple(low for low, _ in bounds), tuple(high for _, high in bounds))

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        items = self._expanded(ins[0].ndim)
        place = [i for i, item in enumerate(items) if not isinstance(item, int)][axis]
        if items[place] is None:
            return None
        found = sum(item is not None for item in items[:place])
        positions = self._taken(ins[0].shape)[found]
        return (found, positions.start) if positions.step == 1 else None

    def _expanded(self, ndim: int) -> tuple[int | tuple[int | None, int | None, int | None] | None, ...]:
        """The items with `...` spelled out: one for each axis of the input, and None for new axes."""
        missing = ndim - sum(item is not None and item is not ... for item in self.items)
        if missing < 0:
            raise FunctionError(f"a subscript for {ndim - missing} axes on an array of {ndim} axes")
        items = self.items if ... in self.items else (*self.items, ...)
        return tuple(
            part
            for item in items
            for part in ([(None, None, None)] * missing if isinstance(item, EllipsisType) else [item])
        )

    def _taken(self, shape: Shape) -> list[range]:
        """For each axis of the input, the positions that the whole output takes."""
        items = (item for item in self._expanded(len(shape)) if item is not None)
        return [_positions(item, axis, shape) for axis, item in enumerate(items)]


def _positions(item: int | tuple[int | None, int | None, int | None], axis: int, shape: Shape) -> range:
    length = shape[axis]
    if isinstance(item, int):
        if not -length <= item < length:
            raise FunctionError(f"index {item} is out of bounds for axis {axis} of length {length}")
        return range(item % length, item % length + 1)
    start, stop, step = item
    # Going backwards a slice starts at an element, not beside one.
    last_start = length if step is None or step > 0 else length - 1
    for bound, most in ((start, last_start), (stop, length)):
        if bound is not None and not -length <= bound <= most:
            text = ":".join("" if part is None else str(part) for part in item).removesuffix(":")
            raise FunctionError(f"slice {text} leaves axis {axis} of length {length}")
    return range(length)[slice(start, stop, step)]


@dataclass(frozen=True)
class Flip(_Gather):
    """`flip(x, axis=None)`: the elements along an axis, several, or all axes in reverse order."""

    name: ClassVar[str] = "flip"
    axis: int | tuple[int, ...] | None = None

    def infer(self, ins: Specs) -> ArraySpec:
        self._axes(ins[0].ndim)
        return ins[0]

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        flipped = self._axes(len(shape))
        return tuple(
            range(shape[axis])[::-1][start:stop] if axis in flipped else range(start, stop)
            for axis, (start, stop) in enumerate(zip(region.starts, region.stops, strict=True))
        )

    def _axes(self, ndim: int) -> tuple[int, ...]:
        return axes_of(_several(self.axis, range(ndim)), ndim, self.name)


def _several(axis: int | tuple[int, ...] | None, everything: Sequence[int]) -> Sequence[int]:
    if axis is None:
        return everything
    return (axis,) if isinstance(axis, int) else axis


@dataclass(frozen=True)
class Take(_Gather):
    """`take(x, indices, axis)`: the elements at these indices along one axis, in this order.

    Indices may be negative and may repeat. Raises FunctionError for one that is out of bounds.
    """

    name: ClassVar[str] = "take"
    indices: tuple[int, ...]
    axis: int

    def infer(self, ins: Specs) -> ArraySpec:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        length = ins[0].shape[axis]
        for index in self.indices:
            if not -length <= index < length:
                raise FunctionError(
                    f"`take`: index {index} is out of bounds for axis {axis} of length {length}"
                )
        return ArraySpec(replaced(ins[0].shape, axis, len(self.indices)), ins[0].dtype)

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        axis = axis_of(self.axis, len(shape), self.name)
        chosen = np.array(self.indices[region.slices[axis]], np.int64) % max(1, shape[axis])
        straight = [range(a, b) for a, b in zip(region.starts, region.stops, strict=True)]
        return (*straight[:axis], chosen, *straight[axis + 1 :])


@dataclass(frozen=True)
class Repeat(_Gather):
    """`repeat(x, repeats, axis)`: each element so many times, next to each other: `aabbcc`."""

    name: ClassVar[str] = "repeat"
    repeats: int
    axis: int

    def infer(self, ins: Specs) -> ArraySpec:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        if self.repeats < 0:
            raise FunctionError(f"`repeat`: repeats cannot be negative, {self.repeats} is")
        return ArraySpec(replaced(ins[0].shape, axis, ins[0].shape[axis] * self.repeats), ins[0].dtype)

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        axis = axis_of(self.axis, len(shape), self.name)
        return tuple(
            np.arange(start, stop) // self.repeats if i == axis and self.repeats > 1 else range(start, stop)
            for i, (start, stop) in enumerate(zip(region.starts, region.stops, strict=True))
        )


@dataclass(frozen=True)
class Tile(_Gather):
    """`tile(x, reps)`: the whole array so many times along each axis: `abcabc`.

    Fewer numbers than axes are meant for the last axes, as in NumPy. More are a FunctionError.
    """

    name: ClassVar[str] = "tile"
    reps: int | tuple[int, ...]

    def infer(self, ins: Specs) -> ArraySpec:
        reps = self.reps if isinstance(self.reps, tuple) else (self.reps,)
        if len(reps) > ins[0].ndim:
            raise FunctionError(
                f"`tile`: {len(reps)} reps for an array of {ins[0].ndim} axes",
                hint="Use `expand_dims` first.",
            )
        if min(reps, default=1) < 0:
            raise FunctionError(f"`tile`: reps cannot be negative, {min(reps)} is")
        full = (1,) * (ins[0].ndim - len(reps)) + reps
        return ArraySpec(tuple(n * r for n, r in zip(ins[0].shape, full, strict=True)), ins[0].dtype)

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        bounds = zip(region.starts, region.stops, shape, strict=True)
        return tuple(_wrapped(start, stop, length) for start, stop, length in bounds)


def _wrapped(start: int, stop: int, length: int) -> Positions:
    if stop <= start:
        return range(0)
    if start // length == (stop - 1) // length:
        return range(start % length, start % length + stop - start)
    return np.arange(start, stop) % length


@dataclass(frozen=True)
class Squeeze(_Gather):
    """`squeeze(x, axis=None)`: without these axes, or without all axes, of length 1."""

    name: ClassVar[str] = "squeeze"
    axis: int | tuple[int, ...] | None = None

    def infer(self, ins: Specs) -> ArraySpec:
        gone = self._axes(ins[0].shape)
        for axis in gone:
            if ins[0].shape[axis] != 1:
                raise FunctionError(f"`squeeze`: axis {axis} of {ins[0]} is not of length 1")
        return ArraySpec(tuple(n for i, n in enumerate(ins[0].shape) if i not in gone), ins[0].dtype)

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        gone = self._axes(shape)
        bounds = iter(zip(region.starts, region.stops, strict=True))
        return tuple(range(1) if axis in gone else range(*next(bounds)) for axis in range(len(shape)))

    def _axes(self, shape: Shape) -> tuple[int, ...]:
        ones = [axis for axis, length in enumerate(shape) if length == 1]
        return axes_of(_several(self.axis, ones), len(shape), self.name)


@dataclass(frozen=True)
class ExpandDims(_Gather):
    """`expand_dims(x, axis)`: with new axes of length 1 at these places of the result."""

    name: ClassVar[str] = "expand_dims"
    axis: int | tuple[int, ...]

    def infer(self, ins: Specs) -> ArraySpec:
        new = self._axes(ins[0].ndim)
        old = iter(ins[0].shape)
        shape = tuple(1 if axis in new else next(old) for axis in range(ins[0].ndim + len(new)))
        return ArraySpec(shape, ins[0].dtype)

    def picks(self, region: Region, shape: Shape) -> tuple[Positions, ...]:
        new = self._axes(len(shape))
        bounds = enumerate(zip(region.starts, region.stops, strict=True))
        return tuple(range(*bound) for axis, bound in bounds if axis not in new)

    def _axes(self, ndim: int) -> tuple[int, ...]:
        axes = _several(self.axis, ())
        return axes_of(axes, ndim + len(axes), self.name)


@dataclass(frozen=True)
class Transpose(Function):
    """`transpose(x, axes=None)`: output axis `i` is input axis `axes[i]`; without axes all are reversed."""

    name: ClassVar[str] = "transpose"
    moves_only: ClassVar[bool] = True
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

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        back = np.argsort(self.permutation(ins[0].ndim))
        starts, stops = (tuple(bounds[i] for i in back) for bounds in (region.starts, region.stops))
        return [(0, Region(starts, stops))]

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
    moves_only: ClassVar[bool] = True
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

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        groups = _groups(ins[0].shape, self.infer(ins).shape)
        boxes = [group.box(region) for group in groups]
        block = blocks[0] if blocks[0].shape == region.shape else straightened(blocks[0])
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

    def places(self, region: Region, box: Region) -> np.ndarray:
        """Where the part's elements are in the flattened box, int64, in the order of the output."""
        flat = np.zeros((), np.int64)
        part = self.part(region)
        for start, stop, length in zip(part.starts, part.stops, self.new, strict=True):
            flat = flat[..., None] * length + np.arange(start, stop)
        # Of the box all axes are whole but the leading ones, so its elements are contiguous in C order.
        return (flat - _ravelled(box.starts, self.old)).ravel()


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
class Rearrange(Function):
    """`rearrange(x, 'd (h k) -> d h k', k=128)`: split, permute and merge axes by name, as einops does.

    Both sides name the same axes once each. Parentheses make one axis of several, `1` and `()` are an
    axis of length 1, `...` stands for any further axes. Keywords give lengths; of each pair of parentheses
    on the left, one length may be left open. Raises FunctionError where pattern, lengths and shape do
    not agree. The pattern language is that of einops (Rogozhnikov, ICLR 2022).
    """

    name: ClassVar[str] = "rearrange"
    moves_only: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "/", "pattern")  # an axis may be called `x`
    remaining: ClassVar[str | None] = "axes"
    pattern: str
    axes: tuple[tuple[str, int], ...] = ()

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(self._plan(ins).merged, ins[0].dtype)

    def steps(self, ins: Specs) -> tuple[Reshape, Transpose, Reshape]:
        """The same as three functions, each of the one before."""
        plan = self._plan(ins)
        return Reshape(plan.split), Transpose(plan.permutation), Reshape(plan.merged)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(0, self._regions(region, ins)[0])]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = blocks[0]
        _, *regions = self._regions(region, ins)
        for step, spec, out in zip(self.steps(ins), self._specs(ins), regions, strict=True):
            block = step.apply(out, [spec], [block])
        return block

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        found: int | None = axis
        for step, spec in zip(reversed(self.steps(ins)), reversed(self._specs(ins)), strict=True):
            below = None if found is None else step.followed(found, [spec])
            found = None if below is None else below[0]
        return None if found is None else (found, 0)

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        found: Manifest | None = manifests[0]
        for step in self.steps([manifests[0].spec]):
            found = found and step.relink([found])
        return found

    def _plan(self, ins: Specs) -> Plan:
        return plan_rearrange(self.pattern, self.axes, ins[0].shape)

    def _specs(self, ins: Specs) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
        """Of the input of each step."""
        split, permute, _ = self.steps(ins)
        first = split.infer(ins)
        return ins[0], first, permute.infer([first])

    def _regions(self, region: Region, ins: Specs) -> tuple[Region, Region, Region, Region]:
        """The regions of the input and of the three steps that the output region goes back to."""
        split, permute, merge = self.steps(ins)
        whole, parts, permuted = self._specs(ins)
        [(_, before_merge)] = merge.needs(region, [permuted])
        [(_, before_permute)] = permute.needs(before_merge, [parts])
        [(_, before_split)] = split.needs(before_permute, [whole])
        return before_split, before_permute, before_merge, region


@dataclass(frozen=True)
class Pad(Function):
    """`pad(x, axis, to, value=0)`: the axis made `to` elements long, with `value` after the last one.

    Raises FunctionError where the axis is longer than that already, or where the dtype has no such value.
    """

    name: ClassVar[str] = "pad"
    moves_only: ClassVar[bool] = True
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

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        if blocks and blocks[0].shape == region.shape:
            return blocks[0]
        padded: np.ndarray[Any, Any] = np.full(region.shape, number_as(self.value, ins[0].dtype))
        if blocks:
            padded[tuple(slice(n) for n in blocks[0].shape)] = blocks[0]
        return padded
