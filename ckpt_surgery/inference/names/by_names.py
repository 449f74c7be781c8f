"""Match leaves by their names where values do not decide; the rest stays open."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from ckpt_surgery.inference.expressions.formations import Candidate, Evidence, Formation, Proposal, Undecided
from ckpt_surgery.inference.expressions.layouts import MOST, Layout
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.analogies import Analogies
from ckpt_surgery.inference.names.fused import fused_pairs
from ckpt_surgery.inference.names.matches import FusedPart, Match
from ckpt_surgery.inference.names.names import KeyNames
from ckpt_surgery.inference.names.pairing import MOST_NAMES, Pair, pair_names
from ckpt_surgery.inference.values.reading import Side

RESEMBLES = 0.6
"""Score from which names are reported to resemble each other, though nothing fits."""
_MOST_RESEMBLING = 4
MOST_CANDIDATES = 8
"""Maximum number of candidates that are reported for one leaf."""


def match_by_names(
    source: Side,
    target: Side,
    keys: tuple[Collection[str], Collection[str]] | None = None,
    known: Iterable[Formation] = (),
    known_layouts: Iterable[tuple[Match, Layout]] = (),
) -> Proposal:
    """Propose by names, shapes and dtypes how leaves of the target follow from those of the source.

    `keys`: of the leaves to match on both sides; None for all. The others show which numbers of keys are
    indices, and which words are rare. Each source leaf is used at most once. `known`: decided formations of
    other leaves, which teach words; `known_layouts`: layouts of others. Leaves of the target that are in
    neither part of the result resemble nothing that is left.
    """
    names = KeyNames.of(source, target, keys, [(each.sources[0], each.target) for each in known])
    pairs, unclear = pair_names(names)
    pairs += fused_pairs(names, _keys(pairs))
    done = _keys(pairs)
    rest = [
        {key for name in side for key in name.grid.keys} - done for side in (names.sources, names.targets)
    ]
    if all(rest) and max(map(len, rest)) <= MOST_NAMES:  # leaf by leaf
        singles, single_unclear = pair_names(names.alone(*rest))
        pairs += singles
        done = _keys(pairs)
        unclear = [near for near in unclear if done.isdisjoint(_target(near).keys)]
        covered = {key for near in unclear for key in _target(near).keys}
        unclear += [near for near in single_unclear if covered.isdisjoint(_target(near).keys)]
    ways = [pair.ways[0] for pair in pairs if len(pair.ways) == 1]
    analogies = Analogies([*known_layouts, *((way, *way.layouts) for way in ways if len(way.layouts) == 1)])
    formations: list[Formation] = []
    undecided: list[Undecided] = []
    for pair in pairs:
        decided = _decided(pair, analogies)
        if decided is None:
            undecided.append(_layouts_open(pair))
        else:
            formations += _formations(pair.ways[0], *decided)
    for near in unclear:
        rest_of = [pair for pair in near if done.isdisjoint(pair.ways[0].source.keys)]
        undecided.append(_names_open(_target(near), rest_of, analogies))
    done.update(key for near in unclear for key in _target(near).keys)
    return Proposal(tuple(formations), (*undecided, *_resembling(names, done)))


def _keys(pairs: Iterable[Pair]) -> set[str]:
    """The keys of both sides that are in these pairs."""
    return {key for pair in pairs for key in pair.keys}


def _target(near: Sequence[Pair]) -> Grid:
    return near[0].ways[0].target


def _decided(pair: Pair, analogies: Analogies) -> tuple[Layout, Evidence] | None:
    """The layout of a pair, and what decides it; None where nothing does."""
    way, *others = pair.ways
    if others or not 0 < len(way.layouts) < MOST:
        return None
    if len(way.layouts) == 1:
        return way.layouts[0], Evidence.ONLY_LAYOUT
    layout = analogies.layout(way)
    return None if layout is None else (layout, Evidence.ANALOGY)


def _formations(match: Match, layout: Layout, evidence: Evidence) -> Iterator[Formation]:
    """Formations of a match with a layout; they say what is assumed."""
    why = ""
    if isinstance(match.source, FusedPart):
        why = "the order of what is fused is taken to be plain: queries, keys, values"
    elif max(map(len, (*layout.before, *layout.after)), default=0) > 1:
        why = "the order inside of axes that are cut or joined is taken to be plain"
    same = match.how == "same" and match.source.text == match.target.text
    if same and match.source.shape == match.target.shape and evidence is Evidence.ANALOGY:
        why = "the key and the shape are the same"
    return match.formations(layout, evidence, why)


def _layouts_open(pair: Pair) -> Undecided:
    """Leave open the layout of a pair whose names fit."""
    candidates = [one for way in pair.ways for one in candidates_of(way, way.layouts, pair.score)]
    count = f"{MOST} or more" if len(candidates) >= MOST else str(len(candidates) or "no")
    source, target = (str(list(grid.shape)) for grid in (pair.ways[0].source, pair.ways[0].target))
    why = f"names fit, but {count} layouts take {source} to {target}"
    return Undecided(pair.ways[0].target.keys, why, tuple(candidates))


def candidates_of(way: Match, layouts: Iterable[Layout], score: float) -> Iterator[Candidate]:
    """Candidates that a match gives, one for each of these layouts."""
    for layout in layouts:
        maker = partial(_formations, way, layout, Evidence.HINT)
        yield Candidate(way.source.keys, str(way.value(layout)), score, way.how, (maker,))


def _names_open(target: Grid, pairs: Sequence[Pair], analogies: Analogies) -> Undecided:
    """Leave open a grid if none of these candidates stands out."""
    candidates: list[Candidate] = []
    for pair in pairs:
        way, decided = pair.ways[0], _decided(pair, analogies)
        layouts = way.layouts[:MOST_CANDIDATES] if decided is None else decided[:1]
        plain = Candidate(way.source.keys, "", pair.score, way.how)
        candidates += [*candidates_of(way, layouts, pair.score)] or [plain]
    several = "several source leaves fit"
    if len({candidate.sources for candidate in candidates}) == 1:
        several = "several leaves of the target fit this source leaf"
    why = f"{several}, and neither names nor values tell them apart"
    return Undecided(target.keys, why, tuple(candidates))


def _resembling(names: KeyNames, done: set[str]) -> Iterator[Undecided]:
    """Grids of the target whose names resemble others that do not fit; without those that are done."""
    left, right = (
        [name for name in side if done.isdisjoint(name.grid.keys)] for side in (names.sources, names.targets)
    )
    if not left or not right or max(len(left), len(right)) > MOST_NAMES:
        return
    said = names.alignment.compare([name.said for name in left], [name.said for name in right])
    for name, shares in zip(right, said.shares.T, strict=True):
        best = [i for i in np.argsort(-shares, kind="stable") if shares[i] >= RESEMBLES][:_MOST_RESEMBLING]
        near = [(key, float(shares[i])) for i in best for key in left[i].grid.keys]
        candidates = tuple(Candidate((key,), "", score, "") for key, score in near[:MOST_CANDIDATES])
        why = "names resemble these, but neither sizes nor values fit"
        if candidates:
            yield Undecided(name.grid.keys, why, candidates)
