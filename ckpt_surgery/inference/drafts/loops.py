"""The variables of `for`: numbers that distinguish the target leaves of one source leaf."""

import itertools
from collections import defaultdict
from collections.abc import Sequence

from ckpt_surgery.inference.drafts.indices import Columns
from ckpt_surgery.inference.drafts.key_patterns import KeyPlace
from ckpt_surgery.inference.drafts.parts import Bundle, Group, RulePart

NAMES = "ij"
"""Names of the variables."""

Row = tuple[RulePart, KeyPlace]
"""A part, and one of its sources."""
Ranges = tuple[tuple[str, str], ...]
"""The variables of a rule, each with the list of its values as an expression."""


def rows_of(group: Group) -> list[Row]:
    """Every part with each of its sources, in order."""
    return [(part, place) for part in group for place in part.sources]


def loops_of(bundle: Bundle) -> tuple[Ranges, Sequence[Columns]] | None:
    """The variables that enumerate the parts of each source in every group, and their values in each group;
    None if there are none."""
    places = {place.values for group in bundle for part in group for place in part.sources}
    loops: list[tuple[Ranges, Columns]] = []
    for rows in map(rows_of, bundle):
        parts: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, (_, place) in enumerate(rows):
            parts[place.values].append(at)
        counts = {len(several) for several in parts.values()}
        if parts.keys() != places or len(counts) != 1:
            return None
        loop = ((), {}) if counts == {1} else _repeated(rows, list(parts.values()))
        if loop is None:
            return None
        loops.append(loop)
    (ranges, *others), columns = zip(*loops, strict=True)
    return None if set(others) - {ranges} else (ranges, columns)


def _repeated(rows: Sequence[Row], by_place: Sequence[Sequence[int]]) -> tuple[Ranges, Columns] | None:
    """One variable, or two, that number the rows of each place."""
    coordinates = _coordinates(rows)
    for several in (*((column,) for column in coordinates), *itertools.combinations(coordinates, 2)):
        named = dict(zip(NAMES, (_ranks(column, by_place) for column in several), strict=False))
        lengths = [max(ranks) + 1 for ranks, _ in named.values()]
        wanted = set(itertools.product(*map(range, lengths)))
        each = ([tuple(ranks[at] for ranks, _ in named.values()) for at in place] for place in by_place)
        if all(len(indices) == len(wanted) and set(indices) == wanted for indices in each):
            ranges = tuple(
                (name, f"range({length})" if odd is None else str(odd))
                for length, (name, (_, odd)) in zip(lengths, named.items(), strict=True)
            )
            return ranges, {
                name: ranks if odd is None else [odd[rank] for rank in ranks]
                for name, (ranks, odd) in named.items()
            }
    return None


def _coordinates(rows: Sequence[Row]) -> list[list[int]]:
    """The numbers of targets and the holes of values, without those that never vary."""
    targets = zip(*(part.target.values for part, _ in rows if part.target is not None), strict=True)
    holes = zip(*(part.value.numbers for part, _ in rows), strict=True)
    numbers = [list(map(int, column)) for column in targets if all(map(str.isdigit, column))]
    return [column for column in (*numbers, *map(list, holes)) if len(set(column)) > 1]


def _ranks(column: Sequence[int], by_place: Sequence[Sequence[int]]) -> tuple[list[int], list[int] | None]:
    """The rank of each number among those of its place; and the numbers, where they are the same ones at
    every place and do not follow from their ranks."""
    ranks = [0] * len(column)
    lists: set[tuple[int, ...]] = set()
    for positions in by_place:
        values = sorted({column[at] for at in positions})
        lists.add(tuple(values))
        rank = {value: number for number, value in enumerate(values)}
        for at in positions:
            ranks[at] = rank[column[at]]
    first = next(iter(lists))
    even = len({b - a for a, b in itertools.pairwise(first)}) <= 1
    return ranks, None if even or len(lists) > 1 else list(first)
