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
_PLAIN = (("in", "proj"), ("c", "attn"))
"""Names of fused leaves that lie in this order in all models: PyTorch's attention and GPT-2's.

Others, such as `qkv` and `query_key_value`, lie head by head in some models, which shapes do not show.
"""


def fused_pairs(names: KeyNames, done: Container[str]) -> Iterator[Pair]:
    """Pair the parts of fused grids of the source with grids of the target by names, all three or none.

    `done`: keys of both sides that are in other pairs.
    """
    targets = [
        name for name in names.targets if name.grid.keys[0] not in done and part_of_attention(name.said)
    ]
    keys = {name.grid.elements for name in targets if part_of_attention(name.said) == "key"}
    parts = [
        part
        for name in names.sources
        if name.grid.keys[0] not in done and _is_plain(name.said)
        for elements in sorted(keys)
        for part in _parts(name, elements)
    ]
    pairs_of: dict[int, list[Pair]] = {}
    for pair in pair_names(names.among(parts, targets), _matches)[0] if parts else ():
        pairs_of.setdefault(pair.at[0] // len(PARTS), []).append(pair)
    for pairs in pairs_of.values():
        if len(pairs) == len(PARTS):
            yield from pairs


def part_of_attention(said: Meaning) -> str | None:
    """The part of an attention that a leaf is; None if its name says none or several."""
    kinds = set(PARTS) & set(said.concepts)
    return kinds.pop() if len(kinds) == 1 else None


def _is_plain(said: Meaning) -> bool:
    return FUSED in said.concepts and any(pair in _PLAIN for pair in itertools.pairwise(said.words))


def _parts(name: Name, keys: int) -> list[Name]:
    """Queries, keys and values as rows along the longest axis, if keys have so many elements."""
    whole, sizes = name.grid, (name.grid.elements - 2 * keys, keys, keys)
    longest = max(whole.shape, default=0)
    if whole.shape.count(longest) != 1 or min(sizes) <= 0:
        return []
    if any(longest * size % whole.elements for size in sizes):
        return []
    parts, start = [], 0
    for part, size in zip(PARTS, sizes, strict=True):
        window = Window(whole.shape.index(longest), 1, start, longest * size // whole.elements)
        start += window.length
        meant = tuple(part if concept == FUSED else concept for concept in name.said.concepts)
        rows = replace(whole, shape=window.shape(whole.shape))
        grid = FusedPart(**vars(rows), window=window, whole=whole.shape)
        said = replace(name.said, concepts=meant, parent=f"{name.said.parent}.{part}")
        parts.append(Name(grid, said))
    return parts


def _matches(source: Grid, target: Grid) -> tuple[Match, ...]:
    return tuple(way for way in matches(source, target) if len(way.lengths) < 2)
