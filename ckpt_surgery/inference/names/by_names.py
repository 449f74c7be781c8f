"""Match leaves by their names where values do not decide; the rest stays open."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ckpt_surgery.inference.expressions.formations import Candidate, Evidence, Formation, Proposal, Undecided
from ckpt_surgery.inference.expressions.layouts import MOST, Layout
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.analogies import Analogies
from ckpt_surgery.inference.names.fused import fused_pairs
from ckpt_surgery.inference.names.matches import FusedPart, Match
from ckpt_surgery.inference.names.names import KeyNames
from ckpt_surgery.inference.names.pairing import MOST_NAMES, Open, Pair, pair_names
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
    every = source.alike(), target.alike()
    left, right = every if keys is None else (source.alike(keys[0]), target.alike(keys[1]))
    names = KeyNames.of(left, right, *every, [(each.sources[0], each.target) for each in known])
    pairs, unclear = pair_names(names)
    pairs += fused_pairs(names, _keys(pairs))
    unclear = _without(unclear, pairs)
    done = _keys(pairs)
    rest = [{key for grid in side for key in grid.keys} - done for side in (left, right)]
    if all(rest) and max(map(len, rest)) <= MOST_NAMES:
        single_pairs, left_open = pair_names(names.alone(*rest))
        pairs += single_pairs
        unclear_keys = {key for one in unclear for key in one.target.keys}
        new = (one for one in left_open if not unclear_keys.issuperset(one.target.keys))
        unclear = [*_without(unclear, single_pairs), *new]
    ways = [pair.ways[0] for pair in pairs if len(pair.ways) == 1]
    analogies = Analogies([*known_layouts, *((way, *way.layouts) for way in ways if len(way.layouts) == 1)])
    formations: list[Formation] = []
    undecided: list[Undecided] = []
    for pair in pairs:
        decided = _decided(pair.ways[0], analogies) if len(pair.ways) == 1 else None
        if decided is None:
            undecided.append(_layouts_open(pair))
        else:
            formations += _formations(pair.ways[0], *decided)
    undecided += [_names_open(one, analogies) for one in unclear]
    done = _keys(pairs).union(*(one.target.keys for one in unclear))
    undecided += _resembling(names, done)
    return Proposal(tuple(formations), tuple(undecided))


def _keys(pairs: Iterable[Pair]) -> set[str]:
    """The keys of both sides that are in these pairs."""
    return {key for pair in pairs for grid in (pair.source, pair.target) for key in grid.keys}


def _without(some: Iterable[Open], pairs: Iterable[Pair]) -> list[Open]:
    """Remove the leaves of decided pairs from open grids, and from their candidates."""
    done = {key for pair in pairs for key in pair.target.keys}
    used = {key for pair in pairs for key in pair.source.keys}
    left = []
    for one in some:
        rest = {numbers: key for numbers, key in one.target.members.items() if key not in done}
        candidates = tuple(pair for pair in one.candidates if not used.issuperset(pair.source.keys))
        if rest:
            left.append(Open(replace(one.target, members=rest), candidates))
    return left


def _decided(match: Match, analogies: Analogies) -> tuple[Layout, Evidence] | None:
    """The layout of a match, and what decides it; None where nothing does."""
    if len(match.layouts) == 1:
        return match.layouts[0], Evidence.ONLY_LAYOUT
    if not match.layouts or len(match.layouts) >= MOST:
        return None
    layout = analogies.layout(match)
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
    count = f"{MOST} or more" if len(candidates) >= MOST else str(len(candidates))
    layouts = f"{count} layouts take" if candidates else "no layout takes"
    why = f"names fit, but {layouts} {_shape(pair.source)} to {_shape(pair.target)}"
    return Undecided(pair.target.keys, why, tuple(candidates))


def candidates_of(way: Match, layouts: Iterable[Layout], score: float) -> Iterator[Candidate]:
    """Candidates that a match gives, one for each of these layouts."""
    for layout in layouts:
        maker = partial(_formations, way, layout, Evidence.HINT)
        yield Candidate(way.source.keys, str(way.value(layout)), score, way.how, (maker,))


def _names_open(one: Open, analogies: Analogies) -> Undecided:
    """Leave open a grid if none of its candidates stands out."""
    candidates = [each for pair in one.candidates for each in _ways(pair, analogies)]
    several = "several source leaves fit"
    if len({candidate.sources for candidate in candidates}) == 1:
        several = "several leaves of the target fit this source leaf"
    why = f"{several}, and neither names nor values tell them apart"
    return Undecided(one.target.keys, why, tuple(candidates))


def _ways(pair: Pair, analogies: Analogies) -> Sequence[Candidate]:
    """A candidate for each layout, or for the one chosen by analogy; at least one."""
    way = pair.ways[0]
    decided = _decided(way, analogies) if len(pair.ways) == 1 else None
    layouts = way.layouts[:MOST_CANDIDATES] if decided is None else decided[:1]
    return [*candidates_of(way, layouts, pair.score)] or [
        Candidate(pair.source.keys, "", pair.score, way.how)
    ]


def _resembling(names: KeyNames, done: set[str]) -> Iterator[Undecided]:
    """Grids of the target whose names resemble others that do not fit; without those that are done."""
    left, right = ([name.grid for name in side] for side in (names.sources, names.targets))
    some = [at for at, grid in enumerate(left) if done.isdisjoint(grid.keys)]
    others = [at for at, grid in enumerate(right) if done.isdisjoint(grid.keys)]
    if not some or not others or max(len(some), len(others)) > MOST_NAMES:
        return
    shares = names.alignment.compare(some, others).shares
    for j, b in enumerate(others):
        best = [i for i in np.argsort(-shares[:, j], kind="stable") if shares[i, j] >= RESEMBLES]
        near = [(left[some[i]], float(shares[i, j])) for i in best[:_MOST_RESEMBLING]]
        keys = [(key, score) for grid, score in near for key in grid.keys]
        candidates = tuple(Candidate((key,), "", score, "") for key, score in keys[:MOST_CANDIDATES])
        why = "names resemble these, but neither sizes nor values fit"
        if candidates:
            yield Undecided(right[b].keys, why, candidates)


def _shape(grid: Grid) -> str:
    return f"[{', '.join(map(str, grid.shape))}]"
