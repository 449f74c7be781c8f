"""Find leaves of the target that could be made of unused leaves of the source, by their size alone.

Only other leaves that nothing fits can safely get the target's own value without a question.
"""

import math
from collections.abc import Collection, Iterable, Sequence

from ckpt_surgery.inference.expressions.formations import Candidate, Undecided
from ckpt_surgery.inference.keys.concepts import NUMBER, meaning
from ckpt_surgery.inference.keys.grids import Grid, KeyTemplate, apart, varying
from ckpt_surgery.inference.names.by_names import MOST_CANDIDATES, candidates_of
from ckpt_surgery.inference.names.fused import FUSED, part_of_attention
from ckpt_surgery.inference.names.matches import matches
from ckpt_surgery.inference.names.names import outline
from ckpt_surgery.inference.values.reading import Side

MAYBE = "it could be made of source leaves of its size or value, or keep its own: names do not decide"


def leftovers(
    source: Side, target: Side, left: Collection[str], alone: Collection[str], compared: bool = False
) -> tuple[list[Undecided], set[str]]:
    """Leave open what unused leaves of the source could make; return the keys of these leaves, too.

    `left`: unused leaves of the source; `alone`: leaves of the target that nothing fits. A leaf could be one
    of the source with the same size, a stack of several whose keys differ in numbers alone, or one of several
    that are taken from a stack, or queries, keys or values of a fused leaf. `compared`: whether values say
    that it is none as a whole.
    """
    given = _by_numbers(source, left)
    undecided: list[Undecided] = []
    held: set[str] = set()
    for part in _by_numbers(target, alone):
        ways: dict[str, list[Grid]] = {"same": [], "stack": [], "unstack": []}
        for one in given:
            if how := _how(one, part):
                ways[how].append(one)
                held.update(one.keys)
        how, fitting = next((way for way in ways.items() if way[1]), ("", []))
        undecided += _open(fitting, part, how, compared) if fitting else ()
    return undecided, held


def _by_numbers(side: Side, keys: Collection[str]) -> list[Grid]:
    """Grids of keys that differ in numbers alone, even where these are parts of names."""
    groups: dict[object, list[Grid]] = {}
    for grid in side.alike(frozenset(keys)):
        groups.setdefault((outline(grid.text), grid.kind, grid.shape, grid.dtype), []).append(grid)
    merged = []
    for several in groups.values():
        members = {tuple(NUMBER.findall(key)): key for grid in several for key in grid.keys}
        template = KeyTemplate(tuple(NUMBER.split(several[0].keys[0])))
        merged.append(varying(template, members, (several[0].kind, several[0].shape, several[0].dtype)))
    return merged


def _how(one: Grid, part: Grid) -> str:
    """Match one grid to another by sizes, where members may be left over; empty where they do not fit."""
    size, wanted = math.prod(one.shape), math.prod(part.shape)
    if one.kind != part.kind or (size != wanted and 0 in (size, wanted)):
        return ""
    if size == wanted:
        return "same"
    if size < wanted:
        return "stack" if wanted % size == 0 and wanted // size <= len(one.members) else ""
    whole, said = meaning(one.text), meaning(part.text)
    fused = FUSED in whole.concepts and part_of_attention(said) is not None
    fused &= ("bias" in whole.concepts) == ("bias" in said.concepts)
    return "unstack" if fused or (size % wanted == 0 and size // wanted <= len(part.members)) else ""


def _open(given: Sequence[Grid], part: Grid, how: str, compared: bool) -> list[Undecided]:
    """Undecided leaves of a grid, with candidates for all of it, or else for each member."""
    keys = [one.keys for one in given] if how == "stack" else [(key,) for one in given for key in one.keys]
    plain = [Candidate(each, "", 0.0, how) for each in keys]
    if together := plain if compared else _ways(given, part):
        return [Undecided(part.keys, MAYBE, tuple(together[:MOST_CANDIDATES]))]
    singles = [single for one in given for single in apart(one)]
    ways = {single.keys: _ways(singles, single) or plain for single in apart(part)}
    return [Undecided(keys, MAYBE, tuple(several[:MOST_CANDIDATES])) for keys, several in ways.items()]


def _ways(given: Iterable[Grid], wanted: Grid) -> list[Candidate]:
    ways = (way for grid in given for way in matches(grid, wanted))
    return [candidate for way in ways for candidate in candidates_of(way, way.layouts, 0.0)]
