"""Fused queries, keys and values of the source whose parts are leaves of the target, by their names."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.keys.concepts import Meaning
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.alignment import concepts_contradict
from ckpt_surgery.inference.names.names import KeyNames
from ckpt_surgery.inference.names.pairing import MARGIN
from ckpt_surgery.inference.values.windows import Window

FUSED, PARTS = "qkv", ("query", "key", "value")
"""The concept of a fused leaf, and those of its parts, in the order in which they lie."""
_PLAIN = (("in", "proj"), ("c", "attn"))
"""Names of fused leaves that lie in this order in all models: PyTorch's attention and GPT-2's.

Others, such as `qkv` and `query_key_value`, lie head by head in some models, which no shape shows.
"""


@frozen()
class Fusion:
    """A fused grid, and those that it consists of."""

    whole: int
    parts: tuple[int, ...]
    windows: tuple[Window, ...]
    """The rows of each part, along the one axis where they lie behind each other."""


def fusions(
    wholes: Sequence[Grid],
    parts: Sequence[Grid],
    names: KeyNames,
    done: tuple[Collection[int], Collection[int]],
) -> list[Fusion]:
    """The fused grids of the source whose parts are grids of the target.

    `names`: of both. `done`: numbers of those that are something else.
    """
    groups = list(_groups(parts, names.targets, done[1]))
    found: list[tuple[float, Fusion]] = []
    for at, (whole, said) in enumerate(zip(wholes, names.sources, strict=True)):
        fused = any(pair in _PLAIN for pair in itertools.pairwise(said.words)) and FUSED in said.concepts
        if at in done[0] or not fused:
            continue
        own = frozenset(said.concepts) - {FUSED}
        for members in groups:
            cut = _windows(whole, [parts[one] for one in members])
            if cut is not None and not any(
                concepts_contradict(own, frozenset(names.targets[one].concepts) - {part})
                for part, one in zip(PARTS, members, strict=True)
            ):
                score = float(names.alignment.compare([at], members).ratios.sum())
                found.append((score, Fusion(at, members, cut)))
    return _best(found)


def _best(found: Sequence[tuple[float, Fusion]]) -> list[Fusion]:
    """Those that are the best for their whole, and for their parts, by a margin."""
    kept = []
    for score, one in found:
        rivals = [
            other for other, it in found if it is not one and (it.whole == one.whole or it.parts == one.parts)
        ]
        if all(score - other >= MARGIN for other in rivals):
            kept.append(one)
    return kept


def _groups(
    parts: Sequence[Grid], names: Sequence[Meaning], done: Collection[int]
) -> Iterator[tuple[int, ...]]:
    """The parts of one place: those whose names differ in what they are a part of."""
    groups: dict[object, dict[str, int]] = {}
    for at, (one, said) in enumerate(zip(parts, names, strict=True)):
        kinds = set(PARTS) & set(said.concepts)
        if at not in done and len(kinds) == 1:
            (kind,) = kinds
            rest = frozenset(said.tokens) - {kind}
            groups.setdefault((rest, tuple(one.members), one.kind), {})[kind] = at
    return (tuple(group[part] for part in PARTS) for group in groups.values() if len(group) == len(PARTS))


def _windows(whole: Grid, parts: Sequence[Grid]) -> tuple[Window, ...] | None:
    """The rows of the parts along the longest axis of what they make; None where they do not fit."""
    sizes = [one.elements for one in parts]
    if sum(sizes) != whole.elements or not whole.shape or not all(sizes) or whole.kind != parts[0].kind:
        return None
    longest = max(whole.shape)
    if whole.shape.count(longest) > 1 or any(longest * size % whole.elements for size in sizes):
        return None
    axis, start = whole.shape.index(longest), 0
    found = []
    for size in sizes:
        length = longest * size // whole.elements
        found.append(Window(axis, 1, start, length, keep=True))
        start += length
    return tuple(found)


def part_of(whole: Grid, window: Window) -> Grid:
    """The grid of the rows of a window of each member."""
    return replace(whole, shape=window.shape(whole.shape))
