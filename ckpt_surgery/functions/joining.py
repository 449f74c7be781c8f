"""Functions that join a list of arrays into one: `stack` along a new axis, `concat` along an existing one."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, promoted, rank
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites.axes import replaced
from ckpt_surgery.core.rewrites.taking import concatenated, stacked
from ckpt_surgery.core.selections import Positions, Selection, within
from ckpt_surgery.core.text import few
from ckpt_surgery.core.tiles import copy_into
from ckpt_surgery.functions.arrays import Array, Series, apply, axis_of, check_alike, require_no_gaps
from ckpt_surgery.functions.base import Blocks, Function, Number, Specs, as_marks, in_expressions
from ckpt_surgery.functions.dtypes import number_as

MOST_INDICES = 5  # Number of indices that a message names


def one_dtype(dtypes: Sequence[DType], name: str) -> DType:
    """The dtype that all arrays of a list have. Raises FunctionError if there are several."""
    for dtype in dtypes[1:]:
        if dtype != dtypes[0]:
            message = f"`{name}`: arrays of {dtypes[0].name} and {dtype.name} in one list"
            raise FunctionError(message, hint="Cast them to one dtype first.")
    return dtypes[0]


def _common_dtype(ins: Specs, name: str) -> DType:
    """A dtype that holds the values of all inputs.

    Inputs of one declared dtype can have different dtypes here, for example bfloat16 as stored and float32 as
    computed. `declared_dtype` checks that their declared dtypes are equal.
    """
    dtypes = [spec.dtype for spec in ins]
    one_kind = len(set(map(rank, dtypes))) == 1
    return promoted(dtypes, name) if one_kind and len(set(dtypes)) > 1 else one_dtype(dtypes, name)


@dataclass(frozen=True)
class Stack(Function):
    """The inputs next to each other along a new axis."""

    is_layout: ClassVar[bool] = True
    axis: int = 0
    fill: Number | None = None
    count: int | None = None
    places: tuple[int, ...] | None = None
    """Index of each array along the new axis. None: the arrays are in order."""

    def infer(self, ins: Specs) -> ArraySpec:
        dtype = _common_dtype(ins, self.name)
        check_alike(self.name, ins)
        axis = axis_of(self.axis, ins[0].ndim + 1, self.name)
        length = self._length(len(ins))
        return ArraySpec((*ins[0].shape[:axis], length, *ins[0].shape[axis:]), dtype)

    def declared_dtype(self, result: DType, dtypes: Sequence[DType]) -> DType:
        dtype = one_dtype(dtypes, self.name)
        if self.fill is not None:
            number_as(self.fill, dtype)
        return dtype

    def by_place(self, inputs: int) -> dict[int, int]:
        """The number of the input at each index along the new axis that has one."""
        return {place: i for i, place in enumerate(self.places or range(inputs))}

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axis = axis_of(self.axis, len(selection), self.name)
        part = (*selection[:axis], *selection[axis + 1 :])
        return [(i, part) for _, i in self._wanted(selection[axis], len(ins))]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        axis = axis_of(self.axis, len(region.starts), self.name)
        dtype = _common_dtype(ins, self.name)
        wanted = self._wanted(range(region.starts[axis], region.stops[axis]), len(ins))
        result: np.ndarray = np.empty(region.shape, dtype)
        if len(wanted) < region.shape[axis]:
            result[...] = number_as(self.fill or 0, dtype)
        for (place, _), block in zip(wanted, blocks, strict=True):
            copy_into(result[(slice(None),) * axis + (place - region.starts[axis], ...)], block)
        return result

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        return replace(self, fill=0).apply(region, as_marks(ins), marks)

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        if self._length(len(manifests)) != len(manifests):
            return None  # the filled elements are not stored anywhere
        axis = axis_of(self.axis, manifests[0].spec.ndim + 1, self.name)
        return stacked(manifests, axis, self.places or range(len(manifests)))

    def _wanted(self, places: Positions, inputs: int) -> list[tuple[int, int]]:
        """The inputs at these places, as (index along the new axis, input number), by index."""
        by_place = self.by_place(inputs)
        if isinstance(places, range) and len(places) > inputs:  # `count` makes it long
            return sorted((place, i) for place, i in by_place.items() if place in places)
        return [(int(place), by_place[place]) for place in places if place in by_place]

    def _length(self, inputs: int) -> int:
        places = self.places or tuple(range(inputs))
        if len(places) != inputs or len(set(places)) != inputs or min(places) < 0:
            given = few([*map(str, places)], MOST_INDICES)
            message = f"{inputs} arrays need {inputs} different indices of 0 or more, not {given}"
            raise FunctionError(f"`stack`: {message}")
        length = max(places) + 1 if self.count is None else self.count
        if max(places) >= length:
            raise FunctionError(f"`stack`: an array has the index {max(places)}, but `count` is {length}")
        if length > inputs and self.fill is None:
            filled = set(places)
            gaps = (str(i) for i in range(length) if i not in filled)
            missing = few(list(itertools.islice(gaps, MOST_INDICES + 1)), MOST_INDICES)
            raise FunctionError(
                f"`stack`: no array has the index {missing} of 0 to {length - 1}",
                hint="Look whether the source has everything: a file may be missing, or it has fewer layers "
                "than its config says. Only for a model that lacks these parts on purpose does "
                "`stack(…, fill=NUMBER)` fill the gap.",
            )
        return length


@in_expressions
def stack(
    xs: Sequence[Array] | Series, axis: int = 0, fill: Number | None = None, count: int | None = None
) -> Array:
    """`stack(xs, axis=0, fill=None, count=None)`: the arrays next to each other along a new axis.

    If `by` of the rule gives integers, each array has its integer as index along the new axis. Otherwise the
    arrays follow each other in the order of the list. `count` is the length of the new axis; by default it
    ends with the last array. Indices without an array are filled with the number `fill`. Raises
    FunctionError for such an index if there is no `fill`, and if shapes or dtypes differ.
    """
    if isinstance(xs, Series):
        arrays = require_no_gaps(xs) if fill is None else xs.items
        return apply(Stack(axis, fill, count, xs.places), *arrays)
    return apply(Stack(axis, fill, count), *xs)


@dataclass(frozen=True)
class Concat(Function):
    """The inputs one after another along an existing axis."""

    is_layout: ClassVar[bool] = True
    axis: int = 0

    def infer(self, ins: Specs) -> ArraySpec:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        for i, spec in enumerate(ins):
            if spec.ndim != ins[0].ndim or replaced(spec.shape, axis, 0) != replaced(ins[0].shape, axis, 0):
                raise FunctionError(
                    f"`concat`: array 0 is {ins[0]}, array {i} is {spec}; they can differ only in axis {axis}"
                )
        length = sum(spec.shape[axis] for spec in ins)
        return ArraySpec(replaced(ins[0].shape, axis, length), _common_dtype(ins, self.name))

    def declared_dtype(self, result: DType, dtypes: Sequence[DType]) -> DType:
        return one_dtype(dtypes, self.name)

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        stops = itertools.accumulate(spec.shape[axis] for spec in ins)
        parts = [
            within(selection[axis], stop - s.shape[axis], stop) for stop, s in zip(stops, ins, strict=True)
        ]
        used = enumerate((*selection[:axis], part, *selection[axis + 1 :]) for part in parts)
        return [(i, part) for i, part in used if len(part[axis])]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        axis = axis_of(self.axis, ins[0].ndim, self.name)
        result: np.ndarray = np.empty(region.shape, _common_dtype(ins, self.name))
        stops = itertools.accumulate(block.shape[axis] for block in blocks)
        for block, stop in zip(blocks, stops, strict=True):
            copy_into(result[(slice(None),) * axis + (slice(stop - block.shape[axis], stop),)], block)
        return result

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        return concatenated(manifests, axis_of(self.axis, manifests[0].spec.ndim, self.name))


@in_expressions
def concat(xs: Sequence[Array], axis: int = 0) -> Array:
    """`concat(xs, axis=0)`: the arrays one after another along an existing axis.

    Raises FunctionError if dtypes differ, or lengths along another axis.
    """
    return apply(Concat(axis), *xs)
