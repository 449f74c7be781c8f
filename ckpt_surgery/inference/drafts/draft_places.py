"""Indices for rules: a number of a name is an index too where it tells nothing but leaves apart.

`layer1.0.conv` to `layer3.1.conv` can be one rule, though names number no layers from 1; but not `w1`, `w2`
and `w3` that become `wi_0`, `wo` and `wi_1`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from ckpt_surgery.inference.keys.grids import MOST_KINDS, Grid, KeyTemplate, Places, grids, places_of

_NUMBER = re.compile(r"([0-9]+)")
Fate = Callable[[str], Hashable]
"""What becomes of a key: equal for keys that one rule may be about, None where nothing is known."""


def outline(key: str) -> str:
    """The key without its numbers."""
    return _NUMBER.sub("#", key)


def draft_places(keys: Iterable[str], fate: Fate) -> Places:
    """The grid of every key: that of its name, or a larger one of keys that have the same fate."""
    found = grids(keys)
    known = dict(places_of(found))
    outlines: dict[str, list[Grid]] = defaultdict(list)
    for grid in found:
        outlines[outline("0".join(grid.template.texts))].append(grid)
    for several in outlines.values():
        alike: dict[Hashable, list[str]] = defaultdict(list)
        for key in (key for grid in several if len(several) > 1 for key in grid.keys):
            alike[fate(key)].append(key)
        for mark, group in alike.items() if len(alike) <= MOST_KINDS else ():
            if mark is not None and len({known[key][0].template for key in group}) > 1:
                others = (key for other in alike.values() if other is not group for key in other)
                known |= places_of(_joined(group, others))
    return known


def _joined(keys: Sequence[str], others: Iterable[str]) -> Iterator[Grid]:
    """Keys that differ in numbers alone, as one grid; none if its template stands for others, too."""
    split = [_NUMBER.split(key) for key in keys]
    varies = [len(set(column)) > 1 for column in zip(*split, strict=True)]
    fixed = _where(varies, split[0], False)
    if any(_where(varies, _NUMBER.split(key), False) == fixed for key in others):
        return
    texts = [""]
    for part, index in zip(split[0], varies, strict=True):
        if index:
            texts.append("")
        else:
            texts[-1] += part
    members = {tuple(_where(varies, parts, True)): key for parts, key in zip(split, keys, strict=True)}
    yield Grid(KeyTemplate(tuple(texts)), members)


def _where(varies: Sequence[bool], parts: Sequence[str], wanted: bool) -> list[str]:
    """The parts of a key that vary, or the others."""
    return [part for part, index in zip(parts, varies, strict=True) if index is wanted]
