"""Finds rows of source leaves that no output uses: indices along one axis that nothing takes."""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import Notice
from ckpt_surgery.core.selections import (
    Positions,
    Selection,
    as_array,
    bounding_box,
    bounds,
    count,
    of_region,
    whole,
)
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads

MOST_PLACES = 2**24
"""Limit on the indices along one axis, of all selections of a leaf together. Beyond it, all indices between
the first and the last of a selection count as used."""
MOST_SELECTIONS = 4096
"""The number of selections of one function's result up to which each is followed to the leaves."""


def used(values: Sequence[Node]) -> dict[Node, list[Selection]]:
    """The elements of leaves from which the values are computed, as selections for each read.

    Of a function with too many selections, the smallest region around them is taken for used.
    """
    wanted: dict[Node, dict[Hashable, Selection]] = {}

    def want(node: Node, selection: Selection) -> None:
        wanted.setdefault(node, {})[tuple(map(_name, selection))] = selection

    for value in values:
        want(value, whole(value.spec.shape))
    for node in reversed(list(inputs_first(values))):
        selections = [selection for selection in wanted.pop(node, {}).values() if count(selection)]
        if len(selections) > MOST_SELECTIONS:
            selections = [of_region(Region.around(list(map(bounding_box, selections))))]
        specs = [child.spec for child in node.inputs]
        for selection in selections:
            for index, part in node.function.uses(selection, specs):
                want(node.inputs[index], part)
    return {read: list(selections.values()) for read, selections in wanted.items()}


def unused_elements(values: Sequence[Node], left_out: str) -> Iterator[Notice]:
    """A warning for each leaf with rows that the values do not use.

    Leaves that no value reads, and leaves of the source `left_out`, get none.
    """
    computed = [value for value in values if isinstance(value, Apply)]
    selections = used(computed)
    taken: dict[int, tuple[Leaf, list[Selection]]] = {}
    seen: set[int] = set()
    for read in (read for value in computed for read in reads(value, seen) if read.source != left_out):
        taken.setdefault(id(read.leaf), (read.leaf, []))[1].extend(selections.get(read, ()))
    complete = {id(value.leaf) for value in values if isinstance(value, Read)}
    known: dict[
        Hashable, tuple[str, str] | None
    ] = {}  # thousands of leaves have the same shape and selections
    for leaf, parts in taken.values():
        assert leaf.spec is not None
        size = leaf.spec.size
        if not parts or id(leaf) in complete or any(count(selection) == size for selection in parts):
            continue
        alike = leaf.spec.shape, frozenset(tuple(map(_name, selection)) for selection in parts)
        if alike not in known:
            known[alike] = unused_rows(leaf.spec.shape, parts)
        if (rows := known[alike]) is not None:
            yield Notice(f"{rows[0]} elements of ", leaf.key.printed, f" are used by no output: {rows[1]}")


def unused_rows(shape: Shape, selections: Iterable[Selection]) -> tuple[str, str] | None:
    """How many elements are in rows that no selection takes, such as `96 of 128`, and the first such rows.

    None if each index along each axis is in a selection.
    """
    parts = [selection for selection in selections if count(selection)]
    gaps = [_gaps(length, [part[axis] for part in parts]) for axis, length in enumerate(shape)]
    ranges = [(axis, *bounds) for axis, found in enumerate(gaps) for bounds in found.tolist()]
    if not ranges:
        return None
    taken = math.prod(n - int(np.diff(found).sum()) for n, found in zip(shape, gaps, strict=True))
    numbers = f"{math.prod(shape) - taken} of {math.prod(shape)}"
    axis, start, stop = ranges[0]
    first = ", ".join(f"{start}:{stop}" if a == axis else f"0:{length}" for a, length in enumerate(shape))
    return numbers, f"[{first}]" + (f" and {len(ranges) - 1} more ranges" if len(ranges) > 1 else "")


def _gaps(length: int, sets: Iterable[Positions]) -> np.ndarray:
    """Start and stop of each run of indices that are in none of these sets, ascending."""
    distinct = {_name(places): places for places in sets}.values()
    runs = [_runs(places, MOST_PLACES // len(distinct)) for places in distinct]
    taken = np.concatenate([[[0, 0]], *runs, [[length, length]]])
    taken = taken[np.argsort(taken[:, 0])]
    gaps = np.stack([np.maximum.accumulate(taken[:-1, 1]), taken[1:, 0]], axis=1)
    return gaps[gaps[:, 0] < gaps[:, 1]]


def _runs(places: Positions, most: int) -> np.ndarray:
    """Runs of indices that cover these: one for each, or a single one if there are more than `most`."""
    if len(places) > most or (isinstance(places, range) and places.step == 1):
        return np.array([bounds(places)])
    return as_array(places)[:, None] + [0, 1]


def _name(positions: Positions) -> Hashable:
    """A value that is equal for equal places."""
    return positions if isinstance(positions, range) else positions.tobytes()
