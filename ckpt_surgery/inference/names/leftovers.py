"""Find leaves of the target that could be made of unused leaves of the source, by their size alone.

Only other leaves that nothing fits can safely get the target's own value without a question.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from ckpt_surgery.inference.expressions.formations import Candidate, Undecided
from ckpt_surgery.inference.keys.concepts import meaning
from ckpt_surgery.inference.keys.grids import Grid, KeyTemplate, apart, varying
from ckpt_surgery.inference.names.alignment import concepts_contradict
from ckpt_surgery.inference.names.by_names import MOST_CANDIDATES, candidates_of
from ckpt_surgery.inference.names.fused import FUSED, part_of_attention
from ckpt_surgery.inference.names.matches import matches
from ckpt_surgery.inference.values.reading import Side

MAYBE = "it could be made of source leaves of its size or value, or keep its own: names do not decide"
_NUMBER = re.compile(r"\d+")


def leftovers(
    source: Side, target: Side, left: Iterable[str], alone: Iterable[str], compared: bool = False
) -> tuple[list[Undecided], set[str]]:
    """Leave open what unused leaves of the source could make; return the keys of these leaves, too.

    `left`: unused leaves of the source; `alone`: leaves of the target that nothing fits. A leaf could be one
    of the source with the same size, a stack of several whose keys differ in numbers alone, or one of several
    that are taken from a stack, or queries, keys or values of a fused leaf. `compared`: whether values say
    that it is none as a whole.
    """
    given, wanted = (
        _by_numbers(side.alike(frozenset(keys))) for side, keys in ((source, left), (target, alone))
    )
    undecided: list[Undecided] = []
    held: set[str] = set()
    for part in wanted:
        ways = {how: [one for one in given if _how(one, part) == how] for how in ("same", "stack", "unstack")}
        how = next((how for how, fitting in ways.items() if fitting), None)
        if how is not None:
            undecided += _open(ways[how], part, how, compared)
            held.update(key for several in ways.values() for one in several for key in one.keys)
    return undecided, held


def _how(one: Grid, part: Grid) -> str | None:
    """Match one grid to another by sizes, where members may be left over; None where they do not fit."""
    size, wanted = math.prod(one.shape), math.prod(part.shape)
    if one.kind != part.kind:
        return None
    if size == wanted:
        return "same"
    if size > wanted and _is_fused_with(one, part):
        return "unstack"
    if size and wanted % size == 0 and 1 < wanted // size <= len(one.members):
        return "stack"
    return "unstack" if wanted and size % wanted == 0 and 1 < size // wanted <= len(part.members) else None


def _is_fused_with(one: Grid, part: Grid) -> bool:
    """True if names say that a leaf has queries, keys and values together, and a part is one of them."""
    whole, said = (meaning(grid.text) for grid in (one, part))
    kind = part_of_attention(said)
    if kind is None or FUSED not in whole.concepts:
        return False
    alone = frozenset(kind if concept == FUSED else concept for concept in whole.concepts)
    return not concepts_contradict(alone, frozenset(said.concepts))


def _open(given: Sequence[Grid], part: Grid, how: str, compared: bool) -> Iterator[Undecided]:
    """Undecided leaves of a grid, with candidates for all of it, or else for each member."""
    keys = [one.keys for one in given] if how == "stack" else [(key,) for one in given for key in one.keys]
    plain = [Candidate(each, "", 0.0, how) for each in keys]
    candidates = [] if compared else list(_ways(given, part))
    if candidates or compared:
        yield Undecided(part.keys, MAYBE, tuple((candidates or plain)[:MOST_CANDIDATES]))
        return
    singles = [single for one in given for single in apart(one)]
    for single in apart(part):
        candidates = list(_ways(singles, single)) or plain
        yield Undecided(single.keys, MAYBE, tuple(candidates[:MOST_CANDIDATES]))


def _ways(given: Iterable[Grid], wanted: Grid) -> Iterator[Candidate]:
    for grid in given:
        for way in matches(grid, wanted):
            yield from candidates_of(way, way.layouts, 0.0)


def _by_numbers(some: Iterable[Grid]) -> list[Grid]:
    """Merge grids whose keys differ in numbers alone, even where these are parts of names."""
    groups: dict[object, list[Grid]] = {}
    for grid in some:
        likeness = _NUMBER.sub("{}", grid.text), grid.kind, grid.shape, grid.dtype
        groups.setdefault(likeness, []).append(grid)
    merged = []
    for first, *others in groups.values():
        members = {tuple(_NUMBER.findall(key)): key for grid in (first, *others) for key in grid.keys}
        template = KeyTemplate(tuple(_NUMBER.split(first.keys[0])))
        merged.append(varying(template, members, (first.kind, first.shape, first.dtype)) if others else first)
    return merged
