"""Pair grids of a source and a target by their names, where sizes and indices allow it.

Two grids are a pair only if each is the best for the other, by a margin, and the names resemble each other
enough. The others stay open, with their candidates.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ckpt_surgery.inference.keys.concepts import shifted
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.alignment import Comparison
from ckpt_surgery.inference.names.matches import Match, matches
from ckpt_surgery.inference.names.names import KeyNames

LEAST = -1.0
"""Least log-likelihood ratio of a pair."""
MARGIN = 1.5
"""Least margin of a pair's score over the next one's, in both directions."""
_LEAST_ALONE = -6.0
"""Score above which a pair is considered at all, and decided if it has no rivals."""
_DOUBTFUL = 4.0
"""Score below which a pair with rivals is refused if one of both parents has another partner."""
_MOST_CANDIDATES = 8
MOST_NAMES = 2000
"""Most names of one size and kind on a side; more are left open."""

Matches = Callable[[Grid, Grid], tuple[Match, ...]]
"""The ways in which a grid of the source makes one of the target; none where it cannot."""


class Pair(NamedTuple):
    """Two grids that fit each other."""

    at: tuple[int, int]
    """Their places among the names of the sources, and of the targets."""
    ways: tuple[Match, ...]
    """The ways in which their indices fit; at least one."""
    score: float
    """Resemblance of their names, from 0 to 1."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of both sides."""
        return self.ways[0].source.keys + self.ways[0].target.keys


def pair_names(names: KeyNames, matches: Matches = matches) -> tuple[list[Pair], list[list[Pair]]]:
    """Pair names round by round, until a round decides nothing.

    Return the candidates of each target that stays open, too, the best first; each has at least one.
    Each name is in at most one pair; pairs are in the order of the target. In a round, larger leaves come
    first: once matrices have their partners, those of the biases beside them are known.
    """
    pairing = _Pairing(names, matches)
    blocks: dict[tuple[int, str], tuple[list[int], list[int]]] = {}
    for side, some in enumerate((names.sources, names.targets)):
        for at, (grid, _) in enumerate(some):
            blocks.setdefault((grid.elements, grid.kind), ([], []))[side].append(at)
    ordered = [block for _, block in sorted(blocks.items(), reverse=True) if all(block)]
    pairing.decide(pairing.namesakes())
    known = -1
    while len(pairing.decided) > known:
        known = len(pairing.decided)
        for block in ordered:
            while clear := pairing.best(*block):
                pairing.decide(clear)
    still_open = {b: one for block in ordered for b, one in pairing.open(*block)}
    return sorted(pairing.decided, key=lambda pair: pair.at[1]), [still_open[b] for b in sorted(still_open)]


class _Table(NamedTuple):
    """Sources (rows) and targets (columns) of one kind and size that are left."""

    left: Sequence[int]
    right: Sequence[int]
    scores: np.ndarray
    """Log-likelihood ratios; -inf where a pair is impossible."""
    said: Comparison


class _Pairing:
    """Pairs that are decided so far, and those that follow from what these teach."""

    def __init__(self, names: KeyNames, matches: Matches) -> None:
        self._names = names
        self._mine, self._theirs = ([name.said for name in side] for side in (names.sources, names.targets))
        self._ways = functools.cache(lambda a, b: matches(names.sources[a].grid, names.targets[b].grid))
        self.decided: list[Pair] = []

    def decide(self, pairs: Iterable[Pair]) -> None:
        """Take these pairs, and learn from them."""
        for pair in pairs:
            self.decided.append(pair)
            a, b = pair.at
            self._names.alignment.learn(self._mine[a], self._theirs[b])

    def namesakes(self) -> Iterator[Pair]:
        """Leaves with the same keys; `ln_1` of `ln_0` and `ln_1` is not `ln_1` of `ln_1` and `ln_2`."""
        known = {name.grid.text: a for a, name in enumerate(self._names.sources)}
        for b, (grid, said) in enumerate(self._names.targets):
            a = known.get(grid.text, -1)
            if a >= 0 and not shifted(self._mine[a], said) and any(way.exact for way in self._ways(a, b)):
                yield Pair((a, b), self._ways(a, b), 1.0)

    def best(self, left: Sequence[int], right: Sequence[int]) -> list[Pair]:
        """Pairs that are better by the margin than all others of their sources and of their targets.

        None where each name lacks words of the other that its checkpoint has elsewhere. Without rivals a low
        score is enough, unless both checkpoints call most things the same.
        """
        table, clear = self._table(left, right), []
        for i, row in enumerate(table.scores):
            j = int(row.argmax())
            rivals = np.concatenate([np.delete(row, j), np.delete(table.scores[:, j], i)])
            rival, pair = rivals.max(initial=-np.inf), self._pair(table, i, j)
            alone = MARGIN if self._names.alike else _LEAST_ALONE
            least = alone if rival == -np.inf else LEAST
            if row[j] >= least and row[j] - rival >= MARGIN and not table.said.lacking[i, j]:
                doubtful = rival > -np.inf and row[j] < _DOUBTFUL
                if not doubtful or not self._against(*pair.at, doubtful):
                    clear.append(pair)
        return clear

    def open(self, left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int, list[Pair]]]:
        """Places of targets that have candidates, with these."""
        table = self._table(left, right)
        for j, b in enumerate(table.right):
            order = map(int, np.argsort(-table.scores[:, j], kind="stable")[:_MOST_CANDIDATES])
            if near := [self._pair(table, i, j) for i in order if table.scores[i, j] > -np.inf]:
                yield b, near

    def _against(self, a: int, b: int, doubtful: bool = False) -> bool:
        return self._names.alignment.against(self._mine[a], self._theirs[b], doubtful)

    def _pair(self, table: _Table, i: int, j: int) -> Pair:
        at = table.left[i], table.right[j]
        return Pair(at, self._ways(*at), float(table.said.shares[i, j]))

    def _table(self, left: Sequence[int], right: Sequence[int]) -> _Table:
        """The rest of these sources and targets; empty if it is too large, or one side has none."""
        used = [{pair.at[side] for pair in self.decided} for side in (0, 1)]
        left, right = [a for a in left if a not in used[0]], [b for b in right if b not in used[1]]
        if not left or not right or max(len(left), len(right)) > MOST_NAMES:
            left, right = [], []
        said = self._names.alignment.compare([self._mine[a] for a in left], [self._theirs[b] for b in right])
        scores = np.full(said.ratios.shape, -np.inf)
        for i, j in np.argwhere(said.ratios > _LEAST_ALONE):
            if not self._against(left[i], right[j]) and self._ways(left[i], right[j]):
                scores[i, j] = said.ratios[i, j]
        return _Table(left, right, scores, said)
