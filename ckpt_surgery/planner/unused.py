"""Finds the elements of source leaves that no output uses: exactly for slices, strides and gathers."""

import functools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import Notice
from ckpt_surgery.core.selections import Positions, Selection, as_array, count, whole
from ckpt_surgery.graph.nodes import Node, Read

MOST_MARKS = 2**24
"""The number of places and cells up to which the elements of one leaf are counted exactly."""


def used(node: Node, selection: Selection) -> Iterator[tuple[Read, Selection]]:
    """The leaves, and the elements of each, from which the selected elements of a value are computed."""
    if isinstance(node, Read):
        yield node, selection
        return
    if count(selection) == 0:
        return
    for index, part in node.function.uses(selection, [n.spec for n in node.inputs]):
        yield from used(node.inputs[index], part)


def unused_elements(values: Sequence[Node], left_out: str) -> Iterator[Notice]:
    """A warning for each leaf that the values use only in part.

    Leaves that no value reads, and leaves of the source `left_out`, get none.
    """
    complete = {id(value.leaf) for value in values if isinstance(value, Read)}
    taken: dict[int, tuple[Leaf, list[Selection]]] = {}
    for value in values:
        if isinstance(value, Read):
            continue
        for read, selection in used(value, whole(value.spec.shape)):
            if id(read.leaf) in complete or read.source == left_out:
                continue
            if count(selection) == read.spec.size:
                complete.add(id(read.leaf))
            taken.setdefault(id(read.leaf), (read.leaf, []))[1].append(selection)
    known: dict[Hashable, Uncovered | None] = {}  # thousands of leaves have the same shape and selections
    for leaf, selections in taken.values():
        assert leaf.spec is not None
        if id(leaf) in complete:
            continue
        alike = leaf.spec.shape, frozenset(tuple(map(_name, selection)) for selection in selections)
        if alike not in known:
            known[alike] = uncovered(leaf.spec.shape, selections)
        if (left := known[alike]) is not None:
            yield Notice(f"{left.numbers} elements of ", leaf.key.text, left.where)


@dataclass(frozen=True)
class Uncovered:
    """What selections of an array leave out."""

    numbers: str
    """How many elements, such as `96 of 128`."""
    where: str
    """The end of the sentence, with the first range of them."""


def uncovered(shape: Shape, selections: Sequence[Selection]) -> Uncovered | None:
    """The elements that no selection has; None if there are none.

    Along each axis, all places that are in the same selections form one cell. So each combination of cells,
    one of each axis, is either inside a selection as a whole or outside of it.
    """
    size = int(np.prod(shape, dtype=object))
    columns = [_distinct(places) for places in zip(*selections, strict=True)]
    if sum(map(_marks, columns)) > MOST_MARKS:
        return _estimated(size, selections)
    axes = [_cells(length, sets) for length, (sets, _) in zip(shape, columns, strict=True)]
    if np.prod([len(axis.lengths) for axis in axes], dtype=object) > MOST_MARKS:
        return _estimated(size, selections)
    missed = np.ones([len(axis.lengths) for axis in axes], bool)
    for numbers in set(zip(*(numbers for _, numbers in columns), strict=True)):
        missed[np.ix_(*(axis.members[n] for axis, n in zip(axes, numbers, strict=True)))] = False
    if not missed.any():
        return None
    elements = int(functools.reduce(np.multiply.outer, [axis.lengths for axis in axes])[missed].sum())
    ranges = int(functools.reduce(np.multiply.outer, [axis.runs for axis in axes])[missed].sum())
    first = ", ".join(f"{start}:{stop}" for start, stop in _first(missed, axes))
    more = f" and {ranges - 1} more ranges" if ranges > 1 else ""
    return Uncovered(f"{elements} of {size}", f" are used by no output: [{first}]{more}")


def _estimated(size: int, selections: Iterable[Selection]) -> Uncovered | None:
    """The number of elements that are left out even if the selections do not overlap."""
    least = size - sum(map(count, selections))
    return Uncovered(f"at least {least} of {size}", " are used by no output") if least > 0 else None


_Column = tuple[list[Positions], list[int]]
"""The distinct sets of places along one axis, and which of them each selection has."""


def _distinct(places: Iterable[Positions]) -> _Column:
    sets: dict[Hashable, tuple[int, Positions]] = {}
    numbers = []
    for positions in places:
        numbers.append(sets.setdefault(_name(positions), (len(sets), positions))[0])
    return [positions for _, positions in sets.values()], numbers


def _name(positions: Positions) -> Hashable:
    """A value that is equal for equal places."""
    return positions if isinstance(positions, range) else positions.tobytes()


def _marks(column: _Column) -> int:
    """The work of comparing places with sets: the product of their numbers."""
    sets, _ = column
    return len(sets) * sum(2 if _is_run(positions) else 2 * len(positions) for positions in sets)


def _is_run(positions: Positions) -> bool:
    return isinstance(positions, range) and positions.step == 1


@dataclass(frozen=True)
class _Axis:
    """One axis, cut into cells."""

    lengths: np.ndarray
    """Number of places in each cell."""
    runs: np.ndarray
    """Number of runs of neighbouring places in each cell."""
    first: list[tuple[int, int]]
    """Start and stop of the first run of each cell."""
    members: np.ndarray
    """Which cells each set has, as bool[sets, cells]."""


def _cells(length: int, sets: Sequence[Positions]) -> _Axis:
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *map(_edges, sets)]))
    starts = starts[starts < length]
    members = np.stack([_holds(positions, starts) for positions in sets])
    changes = np.concatenate([[True], (members[:, 1:] != members[:, :-1]).any(axis=0)])
    starts, members = starts[changes], members[:, changes]
    stops = np.append(starts[1:], length)
    _, found, cell = np.unique(np.packbits(members, axis=0), axis=1, return_index=True, return_inverse=True)
    lengths = np.zeros(len(found), np.int64)
    np.add.at(lengths, cell.ravel(), stops - starts)
    runs = np.bincount(cell.ravel())
    first = list(zip(starts[found].tolist(), stops[found].tolist(), strict=True))
    return _Axis(lengths, runs, first, members[:, found])


def _edges(positions: Positions) -> np.ndarray:
    """The places at which membership may change."""
    if isinstance(positions, range) and positions.step == 1:
        return np.array([positions.start, positions.stop])
    places = as_array(positions)
    return np.concatenate([places, places + 1])


def _holds(positions: Positions, places: np.ndarray) -> np.ndarray:
    if not isinstance(positions, range):
        return np.isin(places, positions)
    inside = (positions.start <= places) & (places < positions.stop)
    return np.asarray(inside & ((places - positions.start) % positions.step == 0))


def _first(missed: np.ndarray, axes: Sequence[_Axis]) -> list[tuple[int, int]]:
    """The runs that contain the first missed element, in C order: one along each axis."""
    found = []
    for axis in axes:
        left = np.flatnonzero(missed.reshape(len(missed), -1).any(axis=1))
        cell = min(left.tolist(), key=lambda n: axis.first[n][0])
        found.append(axis.first[cell])
        missed = missed[cell]
    return found
