"""Finds the elements of source leaves that no output uses: exactly for slices, strides and gathers."""

import functools
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import Notice
from ckpt_surgery.core.selections import Positions, Selection, as_array, bounding_box, count, whole
from ckpt_surgery.functions.arrays import Apply, Node, Read, reads

MOST_MARKS = 2**24
"""The number of places and cells up to which the elements of one leaf are counted exactly."""
MOST_SELECTIONS = 4096
"""The number of selections of one function's result up to which each is followed to the leaves."""


def used(values: Sequence[Node]) -> dict[int, list[Selection]]:
    """The elements of leaves from which the values are computed: the selections by the identity of the read.

    The highest functions come first, so that everything that is wanted of one is known when it is looked at.
    Of a function with too many selections, the smallest region around them is taken for used.
    """
    wanted: dict[int, dict[Hashable, Selection]] = {}
    waiting: list[tuple[int, int, Apply]] = []

    def want(node: Node, selection: Selection) -> None:
        if id(node) not in wanted:
            wanted[id(node)] = {}
            if isinstance(node, Apply):
                heappush(waiting, (-node.height, id(node), node))
        wanted[id(node)][tuple(map(_name, selection))] = selection

    for value in values:
        want(value, whole(value.spec.shape))
    while waiting:
        node = heappop(waiting)[2]
        selections: Collection[Selection] = wanted.pop(id(node)).values()
        if len(selections) > MOST_SELECTIONS:
            selections = [_around(selections)]
        specs = [child.spec for child in node.inputs]
        for selection in selections:
            for index, part in node.function.uses(selection, specs) if count(selection) else ():
                want(node.inputs[index], part)
    return {read: list(selections.values()) for read, selections in wanted.items()}


def _around(selections: Collection[Selection]) -> Selection:
    """The smallest region that contains all selections."""
    boxes = [bounding_box(selection) for selection in selections if count(selection)]
    starts = map(min, zip(*(box.starts for box in boxes), strict=True))
    return tuple(map(range, starts, map(max, zip(*(box.stops for box in boxes), strict=True))))


def unused_elements(values: Sequence[Node], left_out: str) -> Iterator[Notice]:
    """A warning for each leaf that the values use only in part.

    Leaves that no value reads, and leaves of the source `left_out`, get none.
    """
    computed = [value for value in values if isinstance(value, Apply)]
    selections = used(computed)
    taken: dict[int, tuple[Leaf, list[Selection]]] = {}
    seen: set[int] = set()
    for read in (read for value in computed for read in reads(value, seen) if read.source != left_out):
        taken.setdefault(id(read.leaf), (read.leaf, []))[1].extend(selections.get(id(read), ()))
    complete = {id(value.leaf) for value in values if isinstance(value, Read)}
    known: dict[Hashable, Uncovered | None] = {}  # thousands of leaves have the same shape and selections
    for leaf, parts in taken.values():
        assert leaf.spec is not None
        size = leaf.spec.size
        if not parts or id(leaf) in complete or any(count(selection) == size for selection in parts):
            continue
        alike = leaf.spec.shape, frozenset(tuple(map(_name, selection)) for selection in parts)
        if alike not in known:
            known[alike] = uncovered(leaf.spec.shape, parts)
        if (left := known[alike]) is not None:
            yield Notice(f"{left.numbers} elements of ", leaf.key.printed, left.where)


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
