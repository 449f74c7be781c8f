"""Fused queries, keys and values of the source whose parts are leaves of the target, by their names."""

import itertools
from collections.abc import Container, Iterator
from dataclasses import replace

from ckpt_surgery.inference.keys.concepts import Meaning
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.matches import FusedPart, Match, matches
from ckpt_surgery.inference.names.names import KeyNames, Name
from ckpt_surgery.inference.names.pairing import Pair, pair_names
from ckpt_surgery.inference.values.pieces import Window

FUSED, PARTS = "qkv", ("query", "key", "value")
"""The concept of a fused leaf, and those of its parts, in the order in which they lie."""
_PLAIN = frozenset({("in", "proj"), ("c", "attn")})
"""Names of fused leaves that lie in this order in all models: PyTorch's attention and GPT-2's.

Others, such as `qkv` and `query_key_value`, lie head by head in some models, which shapes do not show.
"""


def fused_pairs(names: KeyNames, done: Container[str]) -> Iterator[Pair]:
    """Pair the parts of fused grids of the source with grids of the target by names, all three or none.

    `done`: keys of both sides that are in other pairs.
    """
    sources, targets = (
        [one for one in side if one.grid.keys[0] not in done] for side in (names.sources, names.targets)
    )
    fused = [name for name in sources if FUSED in name.said.concepts]
    plain = [name for name in fused if not _PLAIN.isdisjoint(itertools.pairwise(name.said.words))]
    parts = [part for name in plain for part in _parts(name)]
    wanted = [name for name in targets if part_of_attention(name.said)]
    pairs_of: dict[int, list[Pair]] = {}
    for pair in pair_names(names.among(parts, wanted), _matches)[0] if parts else ():
        pairs_of.setdefault(pair.at[0] // len(PARTS), []).append(pair)
    for pairs in pairs_of.values():
        if len(pairs) == len(PARTS):
            yield from pairs


def part_of_attention(said: Meaning) -> str | None:
    """The part of an attention that a leaf is; None if its name says none or several."""
    kinds = set(PARTS) & set(said.concepts)
    return kinds.pop() if len(kinds) == 1 else None


def _parts(name: Name) -> list[Name]:
    """Queries, keys and values: each third of the longest axis."""
    shape = name.grid.shape
    longest, third = max(shape, default=0), max(shape, default=0) // len(PARTS)
    if not third or shape.count(longest) != 1 or longest != third * len(PARTS):
        return []
    axis, parts = shape.index(longest), []
    for number, part in enumerate(PARTS):
        window = Window(axis, 1, number * third, third)
        meant = tuple(part if concept == FUSED else concept for concept in name.said.concepts)
        rows = replace(name.grid, shape=window.shape(shape))
        said = replace(name.said, concepts=meant, parent=f"{name.said.parent}.{part}")
        parts.append(Name(FusedPart(**vars(rows), window=window, whole=shape), said))
    return parts


def _matches(source: Grid, target: Grid) -> tuple[Match, ...]:
    return tuple(way for way in matches(source, target) if len(way.lengths) < 2)
