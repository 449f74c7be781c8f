"""Fused leaves by their names: one of queries, keys and values beside three, in either direction."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.alignment import concepts_contradict
from ckpt_surgery.inference.concepts import Meaning
from ckpt_surgery.inference.names import Names
from ckpt_surgery.inference.pairing import MARGIN
from ckpt_surgery.inference.subfamilies import Subfamily
from ckpt_surgery.inference.windows import Window

PARTS = {"qkv": ("query", "key", "value")}
"""What is fused, in the order in which it lies."""
_PLAIN = (("in", "proj"), ("c", "attn"))
"""Names of fused leaves that lie in this order in all models: PyTorch's attention and GPT-2's.

Others, such as `qkv` and `query_key_value`, lie head by head in some models, which no shape shows.
"""


@frozen()
class Fusion:
    """A fused subfamily, and those that it consists of."""

    whole: int
    parts: tuple[int, ...]
    windows: tuple[Window, ...]
    """The rows of each part, along the one axis where they lie behind each other."""


def fusions(
    wholes: Sequence[tuple[Subfamily, Meaning]],
    parts: Sequence[tuple[Subfamily, Meaning]],
    done: tuple[Collection[int], Collection[int]],
    score: Callable[[int, int], float],
) -> list[Fusion]:
    """The fused subfamilies on one side whose parts are on the other.

    `done`: numbers of those that are something else. `score`: how well a whole and a part fit by name.
    """
    groups = list(_groups(parts, done[1]))
    found: list[tuple[float, Fusion]] = []
    for at, (whole, said) in enumerate(wholes):
        if at in done[0] or not any(pair in _PLAIN for pair in itertools.pairwise(said.words)):
            continue
        for fused in PARTS.keys() & set(said.concepts):
            for group in groups:
                if set(group) != set(PARTS[fused]):
                    continue
                members = [group[part] for part in PARTS[fused]]
                cut = _windows(whole, [parts[one][0] for one in members])
                own = frozenset(said.concepts) - {fused}
                if cut is None or any(
                    concepts_contradict(own, frozenset(parts[one][1].concepts) - {part})
                    for part, one in zip(PARTS[fused], members, strict=True)
                ):
                    continue
                total = sum(score(at, one) for one in members)
                found.append((total, Fusion(at, tuple(members), cut)))
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


def _groups(parts: Sequence[tuple[Subfamily, Meaning]], done: Collection[int]) -> Iterator[dict[str, int]]:
    """The parts of one place: those whose names differ in what they are a part of."""
    every = {part for names in PARTS.values() for part in names}
    groups: dict[object, dict[str, int]] = {}
    for at, (one, said) in enumerate(parts):
        kinds = every & set(said.concepts)
        if at not in done and len(kinds) == 1:
            (kind,) = kinds
            rest = frozenset(said.tokens) - {kind}
            groups.setdefault((rest, tuple(one.members), one.kind), {})[kind] = at
    yield from groups.values()


def _windows(whole: Subfamily, parts: Sequence[Subfamily]) -> tuple[Window, ...] | None:
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


def part_of(whole: Subfamily, window: Window) -> Subfamily:
    """The subfamily of the rows of a window of each member."""
    return replace(whole, shape=window.shape(whole.shape))


def score_of(names: Names, wholes_are_sources: bool) -> Callable[[int, int], float]:
    """How well the names of a whole and of a part fit."""

    def score(whole: int, part: int) -> float:
        pair = ([whole], [part]) if wholes_are_sources else ([part], [whole])
        return float(names.alignment.compare(*pair).ratios[0, 0])

    return score
