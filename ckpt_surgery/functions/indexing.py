"""Functions that choose indices along each axis independently: subscripts, `take`, `flip`, `tile` and
others."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import ClassVar

import numpy as np

from ckpt_surgery.core import selections
from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites.axes import replaced, reshaped
from ckpt_surgery.core.rewrites.taking import MOST_CHUNKS, take_along
from ckpt_surgery.core.selections import Positions, Selection
from ckpt_surgery.functions.arrays import Array, apply, axes_of, axis_of
from ckpt_surgery.functions.base import Blocks, Function, Specs, in_expressions

Slice = tuple[int | None, int | None, int | None]
"""Start, stop and step."""
Item = int | Slice | EllipsisType | None
"""One item of a subscript: an index, a slice, `...`, or None for a new axis."""


MOST_LISTED = 1 << 12
"""Number of indices of copies up to which they are listed. Of more, all elements between them are used."""


class _Gather(Function):
    """Base class of functions whose result has, along each axis, elements at certain indices of the input."""

    name: ClassVar[str] = ""
    is_layout: ClassVar[bool] = True

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        """For each axis of the input, the indices that these elements of the output come from, in order.

        `shape` is that of the input.
        """
        raise NotImplementedError

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, tuple(map(selections.distinct, self.picks(selection, ins[0].shape))))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = blocks[0]
        if region.size == 0:  # `picks` cannot express it if the axis of length 0 is a new one
            return np.empty(region.shape, block.dtype)
        for axis, positions in enumerate(self.picks(selections.of_region(region), ins[0].shape)):
            block = _taken(block, axis, positions)
        return block.reshape(region.shape)

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        linked: Manifest | None = manifests[0]
        spec = manifests[0].spec
        out = self.infer([spec])
        if out.size > spec.size and max(out.shape) > MOST_CHUNKS:
            return None  # listing the indices would take too much memory
        for axis, positions in enumerate(self.picks(selections.whole(out.shape), spec.shape)):
            linked = linked and take_along(linked, axis, positions)
        return linked and reshaped(linked, out.shape)


def _taken(block: np.ndarray, axis: int, positions: Positions) -> np.ndarray:
    """The elements at these indices along an axis. `block` begins at the smallest; ranges make views."""
    low, high = selections.bounds(positions)
    if not isinstance(positions, range):
        return np.take(block, positions - low, axis=axis)
    if len(positions) == high - low and positions.step > 0:
        return block
    cut = slice(None, None, positions.step)
    return block[(slice(None),) * axis + (cut,)]


@dataclass(frozen=True)
class Index(_Gather):
    """`x[…]`: indices, slices with steps, `...` and `None` for new axes, as in NumPy.

    Unlike NumPy, which clips slices, it is an error if a slice goes beyond the array: an explicit bound has
    to lie within it. Raises FunctionError for that, for an index out of bounds, for a step of 0, and for
    more items than the array has axes.
    """

    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        if sum(item is ... for item in self.items) > 1:
            raise FunctionError("a subscript can have only one `...`")
        if any(isinstance(item, tuple) and item[2] == 0 for item in self.items):
            raise FunctionError("the step of a slice cannot be 0")

    def infer(self, ins: Specs) -> ArraySpec:
        lengths = (len(taken) for item, taken in self._axes(ins[0].shape) if not isinstance(item, int))
        return ArraySpec(tuple(lengths), ins[0].dtype)

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        chosen = iter(selection)
        picked: list[Positions] = []
        for item, taken in self._axes(shape):
            if isinstance(item, int):
                picked.append(taken)
            else:
                positions = next(chosen)
                picked += [] if item is None else [selections.at(taken, positions)]
        return tuple(picked)

    def window(self, ins: Specs) -> tuple[Function, Region] | None:
        axes = self._axes(ins[0].shape)
        plain = tuple((None, None, item[2]) if isinstance(item, tuple) else item and 0 for item, _ in axes)
        return Index(plain), selections.bounding_box(tuple(taken for item, taken in axes if item is not None))

    def input_axis(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        axes = self._axes(ins[0].shape)
        place = [i for i, (item, _) in enumerate(axes) if not isinstance(item, int)][axis]
        item, taken = axes[place]
        old_axis = sum(item is not None for item, _ in axes[:place])
        return None if item is None or taken.step != 1 else (old_axis, taken.start)

    def _axes(self, shape: Shape) -> list[tuple[int | Slice | None, range]]:
        """The items, with full slices for `...`, each with the indices of an axis of the input that it takes.

        None, for a new axis, takes none; beside it stands the one index of the new axis.
        """
        missing = len(shape) - sum(item is not None and item is not ... for item in self.items)
        if missing < 0:
            message = f"a subscript with {len(shape) - missing} items for an array of {len(shape)} axes"
            raise FunctionError(message)
        axes: list[tuple[int | Slice | None, range]] = []
        axis = 0
        for item in self.items if ... in self.items else (*self.items, ...):
            for part in [(None, None, None)] * missing if isinstance(item, EllipsisType) else [item]:
                axes.append((part, range(1) if part is None else _positions(part, axis, shape)))
                axis += part is not None
        return axes


def _positions(item: int | Slice, axis: int, shape: Shape) -> range:
    length = shape[axis]
    if isinstance(item, int):
        if not -length <= item < length:
            raise FunctionError(f"index {item} is out of bounds for axis {axis} of length {length}")
        return range(item % length, item % length + 1)
    start, stop, step = item
    # With a negative step, a slice starts at an element, so its start cannot be the length of the axis.
    last_start = length if step is None or step > 0 else length - 1
    for bound, most in ((start, last_start), (stop, length)):
        if bound is not None and not -length <= bound <= most:
            text = ":".join("" if part is None else str(part) for part in item).removesuffix(":")
            raise FunctionError(f"slice {text} is out of bounds for axis {axis} of length {length}")
    return range(length)[slice(start, stop, step)]


@in_expressions
def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """`flip(x, axis=None)`: the elements in reverse order along an axis, several, or (None) all axes."""
    flipped = axes_of(axis, x.ndim, "flip")
    return x[tuple(slice(None, None, -1 if i in flipped else None) for i in range(x.ndim))]


@dataclass(frozen=True)
class Take(_Gather):
    """The elements at a list of indices along one axis, in the order of the list."""

    indices: tuple[int, ...]
    axis: int

    def infer(self, ins: Specs) -> ArraySpec:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        length = ins[0].shape[axis]
        for index in self.indices:
            if not -length <= index < length:
                bounds = f"out of bounds for axis {axis} of length {length}"
                raise FunctionError(f"`take`: index {index} is {bounds}")
        return ArraySpec(replaced(ins[0].shape, axis, len(self.indices)), ins[0].dtype)

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        axis = axis_of(self.axis, len(shape), self.name)
        taken = np.array(self.indices, np.int64) % max(1, shape[axis])
        return (*selection[:axis], selections.at(taken, selection[axis]), *selection[axis + 1 :])


@in_expressions
def take(x: Array, indices: tuple[int, ...], axis: int) -> Array:
    """`take(x, indices, axis)`: the elements at a list of indices along one axis, in the order of the list.

    Indices can be negative and can repeat. Raises FunctionError for an index that is out of bounds.
    """
    return apply(Take(indices, axis), x)


@dataclass(frozen=True)
class Copies(_Gather):
    """Along each axis, every element `each` times in a row, and `copies` of all that."""

    each: Shape
    copies: Shape

    def called(self) -> str:
        return "repeat" if any(n != 1 for n in self.each) else "tile"

    def infer(self, ins: Specs) -> ArraySpec:
        lengths = zip(ins[0].shape, self.each, self.copies, strict=True)
        return ArraySpec(tuple(n * each * copies for n, each, copies in lengths), ins[0].dtype)

    def picks(self, selection: Selection, shape: Shape) -> tuple[Positions, ...]:
        sides = zip(selection, self.each, strict=True)
        elements = (selections.as_array(places) // each if each > 1 else places for places, each in sides)
        return tuple(map(_wrapped, elements, shape))

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, tuple(map(_used_of_axis, selection, self.each, ins[0].shape)))]


def _used_of_axis(positions: Positions, each: int, length: int) -> Positions:
    """The distinct indices of an axis that these indices of its copies come from; of many, all between."""
    if len(positions) <= MOST_LISTED:
        return selections.distinct(_wrapped(selections.as_array(positions) // max(1, each), length))
    low, high = selections.bounds(positions)
    low, high = low // each, -(-high // each)
    one_copy = low // length == (high - 1) // length
    return range(low % length, low % length + high - low) if one_copy else range(length)


def _wrapped(positions: Positions, length: int) -> Positions:
    """Indices into repeated copies of an axis, as indices into one copy."""
    low, high = selections.bounds(positions)
    if low == high:
        return range(0)
    if isinstance(positions, range) and low // length == (high - 1) // length:
        return range(low % length, low % length + high - low, positions.step)
    return selections.as_array(positions) % length


@in_expressions
def repeat(x: Array, repeats: int, axis: int) -> Array:
    """`repeat(x, repeats, axis)`: each element along the axis `repeats` times in a row: `abc` → `aabbcc`."""
    along = axis_of(axis, x.ndim, "repeat")
    if repeats < 0:
        raise FunctionError(f"`repeat`: repeats should be 0 or more, not {repeats}")
    once = (1,) * x.ndim
    return apply(Copies(replaced(once, along, repeats), once), x)


@in_expressions
def tile(x: Array, reps: int | tuple[int, ...]) -> Array:
    """`tile(x, reps)`: copies of the whole array next to each other, `reps` along each axis: `abc` →
    `abcabc`.

    Fewer numbers than axes apply to the last axes, as in NumPy. Raises FunctionError for more numbers than
    axes.
    """
    copies = reps if isinstance(reps, tuple) else (reps,)
    if len(copies) > x.ndim:
        message = f"`tile`: {len(copies)} reps for an array of {x.ndim} axes"
        raise FunctionError(message, hint="Use `expand_dims` first.")
    if min(copies, default=1) < 0:
        raise FunctionError(f"`tile`: reps should be 0 or more, not {min(copies)}")
    once = (1,) * x.ndim
    return apply(Copies(once, once[len(copies) :] + copies), x)


@in_expressions
def squeeze(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """`squeeze(x, axis=None)`: the array without these axes of length 1, or (None) without all of them.

    Raises FunctionError if one of the given axes has another length.
    """
    short = tuple(i for i, length in enumerate(x.shape) if length == 1)
    gone = short if axis is None else axes_of(axis, x.ndim, "squeeze")
    for i in gone:
        if i not in short:
            raise FunctionError(f"`squeeze`: axis {i} of {x.spec} does not have length 1")
    return x[tuple(0 if i in gone else slice(None) for i in range(x.ndim))]


@in_expressions
def expand_dims(x: Array, axis: int | tuple[int, ...]) -> Array:
    """`expand_dims(x, axis)`: the array with new axes of length 1, which are these axes of the result."""
    ndim = x.ndim + (len(axis) if isinstance(axis, tuple) else 1)
    new = axes_of(axis, ndim, "expand_dims")
    return x[tuple(None if i in new else slice(None) for i in range(ndim))]
