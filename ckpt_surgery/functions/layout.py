"""Functions that rearrange elements without computing any. They are exact for every dtype.

Syntax and meaning of the patterns of `rearrange`, such as `d (h k) -> d h k`, are those of `einops.rearrange`
(Rogozhnikov, "Einops: Clear and Reliable Tensor Manipulations with Einstein-like Notation", ICLR 2022).
"""

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, ravelled, unravelled
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites.axes import matching_axes, replaced, reshaped, transposed
from ckpt_surgery.core.selections import Selection, within
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.arrays import Array, apply, axes_of, axis_of, check_axes
from ckpt_surgery.functions.base import Blocks, Function, Number, Specs, as_marks, in_expressions
from ckpt_surgery.functions.dtypes import number_as


@dataclass(frozen=True)
class ReshapeGroup:
    """Neighbouring axes of the input that a reshape turns into neighbouring axes of the output.

    Both have the same number of elements. The index along the new axes depends on nothing but the index along
    the old ones, so each group can be treated as an array of its own. A reshape of `[2, 6, 5]` to
    `[2, 2, 3, 5]` has three groups: 2 → 2, 6 → 2 × 3 and 5 → 5.
    """

    old: Shape  # Lengths of the group's axes in the input
    new: Shape  # Lengths of the group's axes in the output
    first_new: int  # Position of the first new axis in the output

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
            return Region.whole((0,) * len(self.old))
        first = unravelled(ravelled(part.starts, self.new), self.old)
        last = unravelled(ravelled([stop - 1 for stop in part.stops], self.new), self.old)
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
        return np.asarray(flat.ravel() - ravelled(box.starts, self.old))


@functools.lru_cache(maxsize=4096)
def reshape_groups(old: Shape, new: Shape) -> tuple[ReshapeGroup, ...]:
    """The groups of a reshape from `old` to `new`, in order, each with as few axes as possible."""
    if 0 in old:
        return (ReshapeGroup(old, new, 0),)
    cuts = itertools.pairwise(matching_axes(old, new))
    return tuple(ReshapeGroup(old[i:end], new[j:new_end], j) for (i, j), (end, new_end) in cuts)


@dataclass(frozen=True)
class Transpose(Function):
    """Axis `i` of the result is axis `axes[i]` of the input; without `axes` their order is reversed."""

    is_layout: ClassVar[bool] = True
    axes: tuple[int, ...] | None = None

    def permutation(self, ndim: int) -> tuple[int, ...]:
        """The axes of the input in the order of the output.

        Raises FunctionError if `axes` is not a permutation of the `ndim` axes.
        """
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

    def input_axis(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        return self.permutation(ins[0].ndim)[axis], 0

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return transposed(manifests[0], self.permutation(manifests[0].spec.ndim))


@in_expressions
def transpose(x: Array, axes: tuple[int, ...] | None = None) -> Array:
    """`transpose(x, axes=None)`: axis `i` of the result is axis `axes[i]` of `x`.

    Without `axes` the order of the axes is reversed, as in `x.T`.
    """
    in_order = tuple(range(x.ndim))
    return x if (in_order[::-1] if axes is None else axes) == in_order else apply(Transpose(axes), x)


@dataclass(frozen=True)
class Reshape(Function):
    """The same elements in C order in another shape, of which one length may be -1."""

    is_layout: ClassVar[bool] = True
    shape: int | tuple[int, ...]

    def infer(self, ins: Specs) -> ArraySpec:
        shape = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        check_axes(self.name, len(shape))
        known = math.prod(length for length in shape if length != -1)
        if shape.count(-1) > 1 or min(shape, default=0) < -1:
            message = f"{list(shape)} has a negative length; only one, -1, is allowed"
            raise FunctionError(f"`reshape`: {message}")
        if -1 in shape and known and ins[0].size % known == 0:
            shape = replaced(shape, shape.index(-1), ins[0].size // known)
        if -1 in shape or math.prod(shape) != ins[0].size:
            times = " times the length given as -1" if -1 in shape else ""
            message = f"{list(ins[0].shape)} has {ins[0].size:,} elements, {list(shape)} has {known:,}{times}"
            raise FunctionError(f"`reshape`: {message}")
        return ArraySpec(shape, ins[0].dtype)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        boxes = [group.box(region) for group in reshape_groups(ins[0].shape, self.infer(ins).shape)]
        return [(0, Region(sum((b.starts for b in boxes), ()), sum((b.stops for b in boxes), ())))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        groups = reshape_groups(ins[0].shape, self.infer(ins).shape)
        boxes = [group.box(region) for group in groups]
        block = blocks[0] if blocks[0].shape == region.shape else to_c_order(blocks[0])
        block = block.reshape([box.size for box in boxes])
        for axis, (group, box) in enumerate(zip(groups, boxes, strict=True)):
            if group.part(region).size != box.size:
                block = np.take(block, group.flat_indices(region, box), axis=axis)
        return block.reshape(region.shape)

    def input_axis(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        first_old = 0
        for group in reshape_groups(ins[0].shape, self.infer(ins).shape):
            if group.first_new == axis and len(group.old) == len(group.new) == 1:
                return first_old, 0
            first_old += len(group.old)
        return None

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return reshaped(manifests[0], self.infer([manifests[0].spec]).shape)


@in_expressions
def reshape(x: Array, shape: int | tuple[int, ...]) -> Array:
    """`reshape(x, shape)`: the same elements in C order (the last index changes fastest) in another shape.

    One length may be -1; it is computed from the others. Raises FunctionError if the number of elements
    differs.
    """
    return x if x.shape == shape else apply(Reshape(shape), x)


@dataclass(frozen=True)
class Pad(Function):
    """An axis extended to the length `to`, with `value` after its last element."""

    is_layout: ClassVar[bool] = True
    axis: int
    to: int
    value: Number = 0

    def infer(self, ins: Specs) -> ArraySpec:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        if ins[0].shape[axis] > self.to:
            raise FunctionError(f"`pad`: axis {axis} of {ins[0]} is already longer than {self.to}")
        number_as(self.value, ins[0].dtype)
        return ArraySpec(replaced(ins[0].shape, axis, self.to), ins[0].dtype)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        inside = within(selection[axis], 0, ins[0].shape[axis])
        return [(0, (*selection[:axis], inside, *selection[axis + 1 :]))] if len(inside) else []

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        if blocks and blocks[0].shape == region.shape:
            return blocks[0]
        padded: np.ndarray[Any, Any] = np.full(region.shape, number_as(self.value, ins[0].dtype))
        for block in blocks:
            padded[tuple(map(slice, block.shape))] = block
        return padded

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        return replace(self, value=0).apply(region, as_marks(ins), marks)


@in_expressions
def pad(x: Array, axis: int, to: int, value: Number = 0) -> Array:
    """`pad(x, axis, to, value=0)`: the axis extended to the length `to`, with `value` after its last element.

    Raises FunctionError if the axis is longer than `to`, or if the dtype does not hold the value.
    """
    return apply(Pad(axis, to, value), x)


ELLIPSIS = "..."
NAMELESS = frozenset("()1")
"""Tokens of patterns that are no names."""
_TOKEN = re.compile(r"(\.\.\.|[()]|[A-Za-z][A-Za-z0-9_]*|1(?![A-Za-z0-9_]))|\S+")


@functools.lru_cache(maxsize=1024)
def parse(pattern: str) -> tuple[list[str], list[str]]:
    """The tokens of both sides. Raises FunctionError if the pattern is wrong for arrays of every shape."""
    sides: list[list[str]] = []
    if pattern.count("->") != 1:
        raise FunctionError(f"`rearrange`: '{pattern}' needs exactly one `->` between two sides")
    for text in pattern.split("->"):
        sides.append([])
        for match in _TOKEN.finditer(text):
            if match[1] is None:
                message = f"`rearrange`: `{match[0]}` in '{pattern}' is not an axis name"
                hint = "An axis is a name, `1`, `...` or a group in parentheses. Give lengths as keywords."
                raise FunctionError(message, hint=hint)
            sides[-1].append(match[1])
        _axes(sides[-1], (), pattern)
        repeated = [name for name, n in Counter(sides[-1]).items() if n > 1 and name not in NAMELESS]
        if repeated:
            raise FunctionError(f"`rearrange`: `{repeated[0]}` stands twice on one side of '{pattern}'")
    left, right = sides
    before = left[: left.index(ELLIPSIS)] if ELLIPSIS in left else []
    if before.count("(") > before.count(")"):
        raise FunctionError(f"`rearrange`: '{pattern}' cannot have `...` in parentheses on the left")
    one_sided = sorted((set(left) ^ set(right)) - NAMELESS)
    if one_sided:
        raise FunctionError(f"`rearrange`: `{one_sided[0]}` is on only one side of '{pattern}'")
    return left, right


def _axes(tokens: Sequence[str], further: tuple[str, ...], pattern: str) -> list[tuple[str, ...]]:
    """For each axis of one side, the names in its parentheses; `further` stand for an ellipsis."""
    axes: list[tuple[str, ...]] = []
    group: tuple[str, ...] | None = None
    for token in tokens:
        names = {ELLIPSIS: further, "1": ()}.get(token, (token,))
        if token == "(" and group is None:
            group = ()
        elif token == ")" and group is not None:
            axes.append(group)
            group = None
        elif token in ("(", ")"):
            raise FunctionError(f"`rearrange`: parentheses in '{pattern}' do not match, or are nested")
        elif group is not None:
            group += names
        else:
            axes += [(name,) for name in names] if token == ELLIPSIS else [names]
    if group is not None:
        raise FunctionError(f"`rearrange`: a parenthesis in '{pattern}' is not closed")
    return axes


@functools.lru_cache(maxsize=4096)
def rearrangement(
    pattern: str, lengths: tuple[tuple[str, int], ...], shape: Shape
) -> tuple[Shape, tuple[int, ...], Shape]:
    """Steps of a pattern with these lengths of axes for an array of this shape.

    They are the shape with one axis for each name on the left side, these axes in the order of the right
    side, and the shape of the result. Raises FunctionError if pattern, lengths and shape do not fit together.
    """
    left, right = parse(pattern)
    names = [name for name in left if name not in NAMELESS]
    for name, length in lengths:
        if name not in names:
            raise FunctionError(f"`rearrange`: no axis `{name}` in '{pattern}'{did_you_mean(name, names)}")
        if length < 1:
            raise FunctionError(f"`rearrange`: the length of `{name}` should be positive, not {length}")
    least = len(_axes(left, (), pattern))
    if least > len(shape) or (least < len(shape) and ELLIPSIS not in left):
        axes = f"{'at least ' if ELLIPSIS in left else ''}{least} axes"
        has = f"the array has {len(shape)}: {list(shape)}"
        raise FunctionError(f"`rearrange`: '{pattern}' is for {axes}, {has}")
    # The axes of `...`, under names that no pattern can contain.
    further = tuple(f"...{i}" for i in range(len(shape) - least))
    old, new = _axes(left, further, pattern), _axes(right, further, pattern)
    sizes: dict[str, int] = {}
    for axis, length in zip(old, shape, strict=True):
        sizes |= _sizes(axis, length, dict(lengths), pattern)
    order = [name for axis in old for name in axis]
    merged = tuple(math.prod(sizes[name] for name in axis) for axis in new)
    return tuple(sizes[name] for name in order), tuple(order.index(n) for axis in new for n in axis), merged


def _sizes(axis: tuple[str, ...], length: int, lengths: dict[str, int], pattern: str) -> dict[str, int]:
    """The length of each name in one axis of the left side, from the length of the axis."""
    known = {name: lengths[name] for name in axis if name in lengths}
    product = math.prod(known.values())
    unknown = [name for name in axis if name not in lengths]
    if len(unknown) > 1:
        raise FunctionError(
            f"`rearrange`: give the length of `{unknown[0]}` or `{unknown[1]}` "
            f"in '{pattern}': the length {length} of their axis does not determine both"
        )
    if (length % product) if unknown else (length != product):
        what = " ".join(f"{name}={lengths[name]}" for name in known) or "1"
        raise FunctionError(f"`rearrange`: an axis of {length} does not split into {what} of '{pattern}'")
    return known | dict.fromkeys(unknown, length // product)


@in_expressions
def rearrange(x: Array, /, pattern: str, **axes: int) -> Array:  # an axis may be called `x`
    """`rearrange(x, 'd (h k) -> d h k', k=128)`: splits, permutes and merges axes by name.

    The pattern language is that of `einops.rearrange` (Rogozhnikov, ICLR 2022). Both sides name the same
    axes, each once. Parentheses stand for one axis that is the product of the axes within, `1` and `()` for
    an axis of length 1, and `...` for any number of further axes. Keywords give the lengths of axes; in each
    pair of parentheses on the left, one length can be omitted. Raises FunctionError if pattern, lengths and
    shape do not fit together.
    """
    split, permutation, merged = rearrangement(pattern, tuple(axes.items()), x.shape)
    return reshape(transpose(reshape(x, split), permutation), merged)
