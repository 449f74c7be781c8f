"""Functions that take elements along each axis on its own: subscripts, `take`, `flip` and their like."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites.axes import replaced
from ckpt_surgery.core.rewrites.reshaping import reshaped
from ckpt_surgery.core.rewrites.taking import MOST_CHUNKS, gathered
from ckpt_surgery.core.selections import (
    Positions,
    Selection,
    as_array,
    at,
    bounding_box,
    bounds,
    distinct,
    of_region,
    whole,
)
from ckpt_surgery.functions.axes import axes_of, axis_of
from ckpt_surgery.functions.base import Blocks, Function, Specs

Item = int | tuple[int | None, int | None, int | None] | EllipsisType | None
"""What a subscript has between commas: an index, a slice as (start, stop, step), `...`, or a new axis."""


class _Gather(Function):
    """Functions that take positions of the input along each axis on its own."""

    is_layout: ClassVar[bool] = True

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        """For each axis of the input: which of its positions these elements of the output take, in order."""
        raise NotImplementedError

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, tuple(map(distinct, self.picks(selection, ins[0].shape))))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = blocks[0]
        if region.size == 0:  # of a new axis, it may be, that no axis of the input knows about
            return np.empty(region.shape, block.dtype)
        for axis, positions in enumerate(self.picks(of_region(region), ins[0].shape)):
            block = _taken(block, axis, positions)
        return block.reshape(region.shape)

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        found: Manifest | None = manifests[0]
        spec = manifests[0].spec
        out = self.infer([spec])
        if out.size > spec.size and max(out.shape) > MOST_CHUNKS:
            return None  # too many positions to look at
        for axis, positions in enumerate(self.picks(whole(out.shape), spec.shape)):
            found = found and gathered(found, axis, positions)
        return found and reshaped(found, out.shape)


def _taken(block: np.ndarray, axis: int, positions: Positions) -> np.ndarray:
    """`block` starts at the lowest of the positions along `axis`; a range makes a view."""
    low, high = bounds(positions)
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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        chosen = iter(selection)
        picked: list[Positions] = []
        taken = iter(self._taken(shape))
        for item in self._expanded(len(shape)):
            if item is None:
                next(chosen)
            elif isinstance(item, tuple):
                picked.append(at(next(taken), next(chosen)))
            else:
                picked.append(next(taken))
        return tuple(picked)

    def window(self, ins: Specs) -> tuple[Function, Region] | None:
        items = tuple(
            (None, None, item[2]) if isinstance(item, tuple) else item and 0
            for item in self._expanded(ins[0].ndim)
        )
        return Index(items), bounding_box(tuple(self._taken(ins[0].shape)))

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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        flipped = self._axes(len(shape))
        return tuple(
            at(range(shape[axis])[::-1], positions) if axis in flipped else positions
            for axis, positions in enumerate(selection)
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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        axis = axis_of(self.axis, len(shape), self.name)
        taken = np.array(self.indices, np.int64) % max(1, shape[axis])
        return (*selection[:axis], at(taken, selection[axis]), *selection[axis + 1 :])


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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        axis = axis_of(self.axis, len(shape), self.name)
        return tuple(
            as_array(positions) // self.repeats if i == axis and self.repeats > 1 else positions
            for i, positions in enumerate(selection)
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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        return tuple(map(_wrapped, selection, shape))


def _wrapped(positions: Positions, length: int) -> Positions:
    """The positions in as many copies of an axis as there may be, each in its own copy."""
    low, high = bounds(positions)
    if low == high:
        return range(0)
    if isinstance(positions, range) and low // length == (high - 1) // length:
        return range(low % length, low % length + high - low, positions.step)
    return as_array(positions) % length


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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        gone = self._axes(shape)
        kept = iter(selection)
        return tuple(range(1) if axis in gone else next(kept) for axis in range(len(shape)))

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

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        new = self._axes(len(shape))
        return tuple(positions for axis, positions in enumerate(selection) if axis not in new)

    def _axes(self, ndim: int) -> tuple[int, ...]:
        axes = _several(self.axis, ())
        return axes_of(axes, ndim + len(axes), self.name)
